"""The figures of a ladder as PNG: main score by source length (CMAL Fig. 6), training curves (CMAL Fig. 7).

Drawn from results alone, so that the pages can be made anew without a model. The same results give the same
bytes under one version of matplotlib, which comes with the extra `plots`; deciding what is drawn needs none.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_cmal.evaluation.source_length import bucket_labels
from hf_cmal.evaluation.tables import column_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
Line = tuple[list[int], list[float]]  # updates, values

SIZE = (7.2, 3.4)  # inches
DPI = 100
MOST_NAMES_INSIDE = 8  # of the lines of a panel; more stand beside it


def figure_names(results: Results, title: str) -> dict[str, str]:
    """Which figures results give, and the file of each: kind -> file name.

    Args:
        results: of one ladder, at least one.
        title: of the ladder, e.g. `toy/translation`.

    Returns:
        `length` where at least two buckets of source lengths have a score, `curves` where curves have a
        reward or a main score.

    Example:
        >>> figure_names([{"main_score": "bleu", "by_source_length": {"rows": [70, 30]}}], "toy/translation")
        {'length': 'toy-translation-length.png'}
    """
    there = {
        "length": any(
            sum(rows > 0 for rows in result["by_source_length"]["rows"]) > 1
            for result in results
            if "by_source_length" in result
        ),
        "curves": bool(_panels(results)),
    }
    return {kind: f"{title.replace('/', '-')}-{kind}.png" for kind in there if there[kind]}


def write_figures(results: Results, title: str, folder: Path) -> None:
    """Writes the figures of `figure_names` into `folder`.

    Raises:
        ImportError: there is a figure to draw and matplotlib is not installed.
        ValueError: the results were measured in different buckets.
    """
    for kind, name in figure_names(results, title).items():
        write_png(DRAWERS[kind], results, folder / name)


def length_series(results: Results) -> dict[str, list[list[float]]]:
    """Main scores by source length: system -> for every bucket its scores, one of each result that has one.

    Raises:
        ValueError: two results have different buckets.
    """
    parts = [result["by_source_length"] for result in results if "by_source_length" in result]
    series: dict[str, list[list[float]]] = {}
    for part in parts:
        if part["bounds"] != parts[0]["bounds"]:
            raise ValueError(
                f"by_source_length has bounds {part['bounds']} in one result and {parts[0]['bounds']} in "
                "another of the same ladder; evaluate them with the same evaluation.length_bounds"
            )
        for name, scores in part["systems"].items():
            buckets = series.setdefault(name, [[] for _ in scores])
            for bucket, score in zip(buckets, scores, strict=True):
                if score is not None:
                    bucket.append(score)
    return series


def curve_points(results: Results, part: str, value: str) -> dict[str, list[Line]]:
    """Curves: name -> for every result that has it (updates, values).

    Args:
        part: `train` or `validation`.
        value: a key of its points; a curve without it is left out.
    """
    curves: dict[str, list[Line]] = {}
    for result in results:
        for name, curve in result.get("curves", {}).items():
            points = [(point["step"], point[value]) for point in curve[part] if value in point]
            if points:
                curves.setdefault(name, []).append(([x for x, _ in points], [y for _, y in points]))
    return curves


def draw_length(figure: "Figure", results: Results) -> None:
    """A line per system over the buckets: the mean over the results, with bars from the least to the most."""
    series = length_series(results)
    parts = [result["by_source_length"] for result in results if "by_source_length" in result]
    labels = bucket_labels(parts[0]["bounds"])
    if all(part["rows"] == parts[0]["rows"] for part in parts):  # tokenizers may differ with the seed
        labels = [f"{label}\nn = {rows}" for label, rows in zip(labels, parts[0]["rows"], strict=True)]
    axes = figure.add_subplot()
    for number, (name, buckets) in enumerate(series.items()):
        means = [statistics.fmean(bucket) if bucket else math.nan for bucket in buckets]
        # never below 0: the mean of equal scores may differ from them in the last bit
        below = [max(0.0, m - min(bucket, default=m)) for m, bucket in zip(means, buckets, strict=True)]
        above = [max(0.0, max(bucket, default=m) - m) for m, bucket in zip(means, buckets, strict=True)]
        # so that the bars of two systems lie side by side
        shift = min(0.05, 0.4 / len(series)) * (number - (len(series) - 1) / 2)
        axes.errorbar(
            [place + shift for place in range(len(labels))], means, yerr=[below, above],
            label=name, marker="o", markersize=3, linewidth=1.2, capsize=2, color=f"C{number % 10}",
            linestyle="-" if number < 10 else "--",
        )  # fmt: skip
    axes.set_xticks(range(len(labels)), labels)
    axes.set_xlabel("source length in subwords")
    axes.set_ylabel(column_title(results[0]["main_score"]))
    _finish(figure, axes)


def draw_curves(figure: "Figure", results: Results) -> None:
    """Against the updates: the reward of the sampled sentences, and the main score on validation; a line per
    curve and result, the lines of one curve in one colour."""
    panels = _panels(results)
    names = list(dict.fromkeys(name for result in results for name in result.get("curves", {})))
    for place, (title, curves) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), place)
        for name, lines in curves.items():
            for number, (updates, values) in enumerate(lines):
                axes.plot(
                    updates, values, label=None if number else name, marker="o", markersize=2, linewidth=1,
                    color=f"C{names.index(name) % 10}",
                )  # fmt: skip
        axes.set_xlabel("updates")
        axes.set_ylabel(title)
        _finish(figure, axes)


DRAWERS: dict[str, Callable[["Figure", Results], None]] = {"length": draw_length, "curves": draw_curves}


def write_png(draw: Callable[["Figure", Results], None], results: Results, path: Path) -> None:
    """Writes what `draw` draws. Nothing of the day, of the machine or of a user's settings is in the file.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib import style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            "the figures are drawn by matplotlib, which is not installed; run pip install 'hf-cmal[plots]'"
        ) from error
    with style.context("default", after_reset=True):
        figure = Figure(figsize=SIZE, dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, results)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, format="png", metadata={"Software": None})


def _panels(results: Results) -> dict[str, dict[str, list[Line]]]:
    """Title -> curves, of the panels that have any."""
    score = results[0]["main_score"]
    panels = {
        "reward of the samples": curve_points(results, "train", "reward"),
        f"validation {column_title(score)}": curve_points(results, "validation", score),
    }
    return {title: curves for title, curves in panels.items() if curves}


def _finish(figure: "Figure", axes: "Axes") -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if len(axes.get_legend_handles_labels()[1]) > MOST_NAMES_INSIDE:
        figure.legend(fontsize=7, frameon=False, loc="outside right center")
    else:
        axes.legend(fontsize=7, frameon=False)
