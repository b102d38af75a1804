"""Results of a ladder written by hand, for tables, figures and pages."""


def ladder(seed: int = 1, *, xe: float = 20.0, cmal: float = 26.5, teacher: float = 30.0, **more) -> dict:
    """A result with a teacher of two ways to decode, the XE student and the CMAL student."""
    teacher_row = {"kind": "teacher", "repetition_rate": 0.0}
    student_row = {"kind": "student", "num_beams": 1, "repetition_rate": 0.125, "latency_ms": 10.0}
    return {
        "task": "translation", "split": "test", "rows": 100, "seed": seed, "main_score": "bleu",
        "latency": {
            "inputs": 50, "dtype": "float32", "device": "cpu", "threads": 2, "rival": "teacher_beam4",
        },
        "systems": {
            "teacher_greedy": {**teacher_row, "num_beams": 1, "bleu": teacher - 1, "latency_ms": 40.0},
            "teacher_beam4": {**teacher_row, "num_beams": 4, "bleu": teacher, "latency_ms": 80.0},
            "nat_xe": {**student_row, "bleu": xe},
            "nat_cmal": {**student_row, "bleu": cmal},
        },
        "versions": {"torch": "2.14.1"}, "hardware": {"processor": "A processor", "cpus": 2}, "commit": "abc",
        **more,
    }  # fmt: skip


def without(result: dict, *names: str) -> dict:
    """The result as if these systems had not been measured."""
    systems = {name: row for name, row in result["systems"].items() if name not in names}
    return {**result, "systems": systems}


def cells(table: str, system: str) -> list[str]:
    """The cells of a system's row in a Markdown table, without its name."""
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {system} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def compared_ladder(
    seed: int, resampled: dict[str, list[float]], *, bleu: float = 21.0, difference: float = 0.5, **more
) -> dict:
    """A result with a baseline `ca` and `ca_postprocess`, and the systems whose resampled differences are
    given; a postprocessed one is 1 BLEU better than `bleu`."""
    student = {"kind": "student", "num_beams": 1, "repetition_rate": 0.125}
    models = {name.removesuffix("_postprocess") for name in resampled}
    systems = {"ca": {**student, "bleu": 20.0}, "ca_postprocess": {**student, "bleu": 25.0}}
    for name in sorted(models):
        systems[name] = {**student, "bleu": bleu}
        systems[f"{name}_postprocess"] = {**student, "bleu": bleu + 1.0}
    comparison = {
        "baseline": "ca",
        "signature": f"bs:{len(next(iter(resampled.values())))}",
        "systems": {
            name: {
                "baseline": "ca_postprocess" if name.endswith("_postprocess") else "ca",
                "difference": difference, "low": min(values), "high": max(values),
                "resampled": " ".join(f"{value:.3f}" for value in values),
            }
            for name, values in resampled.items()
        },
    }  # fmt: skip
    return {**ladder(seed), "systems": systems, "comparison": comparison, **more}
