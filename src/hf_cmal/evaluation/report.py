"""Result JSON files to pages: docs/results.md with its figures, and the table of the README.

No number is typed by hand: every cell comes from a file that an evaluation wrote. Results of several seeds
become mean and spread. It measures nothing.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_cmal.evaluation.comparison import comparison_table
from hf_cmal.evaluation.curves import LAST_POINTS
from hf_cmal.evaluation.gap import gap_table
from hf_cmal.evaluation.plots import averages_rewards, figure_names, is_timed, write_figures
from hf_cmal.evaluation.repeated_words import sentences_table
from hf_cmal.evaluation.tables import column_title, result_table, seeds

HEADLINE = "multi30k/results"
FIGURES = "figures"  # in docs/
# kind of figure -> its part of a result, alternative text, caption, what the caption says of several seeds
CAPTIONS = {
    "length": (
        "by_source_length",
        "{score} of every system by length of the source",
        "Sources by their number of subwords, without the end of the sentence; every bucket is scored as a "
        "corpus of its own.",
        "Mean and range",
    ),
    "curves": (
        "curves",
        "Reward while training and {score} on the validation split, against updates{timed}",
        "Training: the mean reward of the sampled sentences, and the score on the validation split.",
        "A line for each",
    ),
}
README_BEGIN, README_END = "<!-- results: begin -->", "<!-- results: end -->"


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
        parts += ["", f"## {title}", "", *(_section(results, title) if results else ["Not run."])]
    return "\n".join(parts) + "\n"


def _section(results: Sequence[Mapping[str, Any]], title: str) -> list[str]:
    tables = (comparison_table(results), result_table(*results), gap_table(results))
    parts = [part for table in tables if table is not None for part in (table, "")]
    return [*parts, *_settings(results[0]), *_figures(results, title), *_own_sentences(results)]


def _settings(first: Mapping[str, Any]) -> list[str]:
    parts = [signatures(first)]
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


def _figures(results: Sequence[Mapping[str, Any]], title: str) -> list[str]:
    parts = []
    for kind, name in figure_names(results, title).items():
        key, alternative, caption, several = CAPTIONS[kind]
        drawn = [result for result in results if key in result]
        timed = kind == "curves" and is_timed(results)
        if timed:
            caption += (
                " Seconds are those of forward passes, rewards and backward passes; the optimizer, the data "
                "and the evaluation come on top."
            )
        if kind == "curves" and averages_rewards(results):
            caption += f" A reward is the mean of the last {LAST_POINTS} logged points."
        if len(drawn) > 1:
            caption += f" {several} of {seeds(drawn)}."
        score = column_title(results[0]["main_score"])
        alternative = alternative.format(score=score, timed=" and seconds" if timed else "")
        parts += ["", f"![{alternative}]({FIGURES}/{name})", "", caption]
    return parts


def _own_sentences(results: Sequence[Mapping[str, Any]]) -> list[str]:
    for result in results:
        if "own_sources" in result:
            introduction = (
                f"Sentences written for this page, {seeds([result])}; a word that repeats the one before it "
                "is bold."
            )
            return ["", introduction, "", sentences_table(result["own_sources"])]
    return []


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
    """Writes docs/results.md, its figures and the README's table anew from the result files of a clone.

    Raises:
        ImportError: there are figures to draw and matplotlib is not installed; then no page is changed.
    """
    recipes, readme = root / "recipes", root / "README.md"
    folders = result_folders(recipes)
    for title, folder in folders.items():
        if results := read_results(folder):
            write_figures(results, title, root / "docs" / FIGURES)
    page = results_page(folders)
    headline = readme_with_results(readme.read_text(encoding="utf-8"), read_results(recipes / HEADLINE))
    (root / "docs" / "results.md").write_text(page, encoding="utf-8")
    readme.write_text(headline, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path())
