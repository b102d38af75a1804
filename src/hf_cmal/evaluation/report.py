"""Result JSON files to tables: the one a run prints, and docs/results.md.

No number is typed by hand: every cell comes from a file that an evaluation wrote. Results of several seeds
become mean and spread. It measures nothing.
"""

import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
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
HEADLINE = "multi30k/short/results"
README_BEGIN, README_END = "<!-- results: begin -->", "<!-- results: end -->"
AS_PERCENT = ("repetition_rate", "length_accuracy")


def result_table(*results: Mapping[str, Any]) -> str:
    """A Markdown table of one run, or of several that differ in the seed (mean and range).

    Args:
        results: as `evaluate_systems` gives them, with `seed`; all of the same task, split and systems.
    """
    first = results[0]
    columns = [name for name in COLUMNS if any(name in system for system in first["systems"].values())]
    lines = [
        f"{first['task']}, {first['split']} split, {first['rows']} inputs, "
        + (
            f"seed {first['seed']}"
            if len(results) == 1
            else f"seeds {', '.join(str(r['seed']) for r in results)}"
        ),
        "",
        "| system | " + " | ".join(COLUMNS[name] for name in columns) + " |",
        "|---|" + "---:|" * len(columns),
    ]
    for name in first["systems"]:
        cells = [_cell(column, [r["systems"][name].get(column) for r in results]) for column in columns]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(column: str, values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    if column in AS_PERCENT:
        return f"{100 * statistics.fmean(known):.1f} %"
    digits = 3 if column in ("cider", "rouge_l", "bleu_4") else 1
    mean = f"{statistics.fmean(known):.{digits}f}"
    if len(known) > 1 and column not in ("latency_ms", "speedup"):
        mean += f" ({min(known):.{digits}f}-{max(known):.{digits}f})"
    return mean + (" x" if column == "speedup" else "")


def examples_text(examples: Sequence[Mapping[str, Any]]) -> str:
    """The sentences of every system for a few inputs, one block each."""
    blocks = []
    for example in examples:
        lines = [f"source: {example['source']}"] if example["source"] else []
        lines.append(f"reference: {example['references'][0]}")
        lines += [f"{name}: {text}" for name, text in example["systems"].items()]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def signatures(result: Mapping[str, Any]) -> str:
    """The signatures of a result's scores, one a line."""
    system = next(iter(result["systems"].values()))
    return "\n".join(
        f"- {name.removesuffix('_signature')}: `{value}`"
        for name, value in system.items()
        if name.endswith("_signature")
    )


def results_page(folders: Mapping[str, Path]) -> str:
    """docs/results.md: for every title the table of the result files in its folder."""
    parts = [
        "# Results",
        "",
        "Written by `python -m hf_cmal.evaluation.report` from the result files in recipes/; do not edit.",
        "Columns: repeated = consecutive equal tokens / tokens, before postprocessing; ms = batch 1.",
    ]
    for title, folder in folders.items():
        results = read_results(folder)
        parts += ["", f"## {title}", "", *(_section(results) if results else ["Not run."])]
    return "\n".join(parts) + "\n"


def _section(results: Sequence[Mapping[str, Any]]) -> list[str]:
    first = results[0]
    parts = [result_table(*results), "", signatures(first)]
    if "latency" in first:
        latency = first["latency"]
        parts.append(
            f"- latency: mean of {latency['inputs']} inputs one by one, {latency['dtype']}, "
            f"{latency['device']}, {latency['threads']} threads, "
            f"speed-up over {latency['rival']} in the same run"
        )
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    hardware = first["hardware"]
    parts.append(f"- run on {hardware['processor']}, {hardware['cpus']} CPUs; {versions}")
    return parts


def read_results(folder: Path) -> list[dict[str, Any]]:
    """The result files of a folder, by name."""
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]


def result_folders(recipes: Path) -> dict[str, Path]:
    """Title -> folder of result files, for every recipe folder that has a ladder."""
    ladders = sorted({path.parent for path in recipes.rglob("0*.yaml")})
    return {str(folder.relative_to(recipes)): folder / "results" for folder in ladders}


def readme_with_results(readme: str, results: Sequence[Mapping[str, Any]]) -> str:
    """The README with the table of `results` between its two marks.

    Raises:
        ValueError: if a mark is missing.
    """
    before, begin, rest = readme.partition(README_BEGIN)
    _, end, after = rest.partition(README_END)
    if not begin or not end:
        raise ValueError(f"the README has no {README_BEGIN} ... {README_END} for the table to stand between")
    table = result_table(*results) if results else "Not run."
    return f"{before}{begin}\n\n{table}\n\n{end}{after}"


def write_pages(root: Path) -> None:
    """Writes docs/results.md and the README's table anew from the result files of a clone."""
    recipes, readme = root / "recipes", root / "README.md"
    page = results_page(result_folders(recipes))
    headline = readme_with_results(readme.read_text(encoding="utf-8"), read_results(recipes / HEADLINE))
    (root / "docs" / "results.md").write_text(page, encoding="utf-8")
    readme.write_text(headline, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path())
