"""Results to a Markdown table: a row per system, a column per score, several seeds as mean and range.

The table that a run prints and the pages show. It reads no files.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = {
    "bleu": "BLEU",
    "gleu": "GLEU",
    "chrf": "chrF",
    "cider": "CIDEr",
    "bleu_4": "BLEU-4",
    "rouge_l": "ROUGE-L",
    "repetition_rate": "repeated",
    "length_accuracy": "length right",
    "latency_ms": "ms",
    "speedup": "speed-up",
}
AS_PERCENT = ("repetition_rate", "length_accuracy")
WITHOUT_RANGE = ("latency_ms", "speedup")


def result_table(*results: Mapping[str, Any]) -> str:
    """A Markdown table of one run, or of several that differ in the seed (mean and range; of times the mean).

    Args:
        results: as `evaluate_systems` gives them, with `seed`; all of the same task and split. A system that
            some of them lack has its row, with the seeds it was measured with.
    """
    first = results[0]
    names = system_names(results)
    columns = [name for name in COLUMNS if any(name in one for r in results for one in r["systems"].values())]
    lines = [
        f"{first['task']}, {first['split']} split, {first['rows']} inputs, {seeds(results)}",
        "",
        "| system | " + " | ".join(COLUMNS[name] for name in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for name in names:
        measured = [result for result in results if name in result["systems"]]
        rows = [result["systems"][name] for result in measured]
        cells = [score_cell(column, [row[column] for row in rows if column in row]) for column in columns]
        lines.append(f"| {row_name(name, measured, results)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def system_names(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """The names of all systems, in the order of the results."""
    return list(dict.fromkeys(name for result in results for name in result["systems"]))


def row_name(name: str, measured: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> str:
    """The system's name; where a row is made of fewer than all results, with the seeds of those it is of."""
    return name if len(measured) == len(results) else f"{name} ({seeds(measured)})"


def seeds(results: Sequence[Mapping[str, Any]]) -> str:
    """Which seeds the results are of: `seed 1`, or `seeds 1, 2`."""
    return ("seed " if len(results) == 1 else "seeds ") + ", ".join(str(r["seed"]) for r in results)


def column_title(score: str) -> str:
    """What a score is called; one that no table knows by its key."""
    return COLUMNS.get(score, score)


def digits(score: str) -> int:
    """How many digits of a score are shown behind the point."""
    return 3 if score in ("cider", "rouge_l", "bleu_4") else 1


def score_cell(column: str, values: Sequence[float]) -> str:
    """The values of a column of `COLUMNS`, one of each seed, as they stand in a table; none are a dash."""
    if not values:
        return "-"
    if column in AS_PERCENT:
        return f"{100 * statistics.fmean(values):.1f} %"
    mean = f"{statistics.fmean(values):.{digits(column)}f}"
    if len(values) > 1 and column not in WITHOUT_RANGE:
        mean += f" ({min(values):.{digits(column)}f}-{max(values):.{digits(column)}f})"
    return mean + (" x" if column == "speedup" else "")
