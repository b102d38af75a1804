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
