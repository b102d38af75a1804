"""The figures of a ladder as PNG: main score by source length (CMAL Fig. 6), training curves (CMAL Fig. 7).

Drawn from results alone, so that the pages can be made anew without a model. The same results give the same
bytes under one version of matplotlib, which comes with the extra `plots`; deciding what is drawn needs none.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_cmal.evaluation.curves import last_mean
from hf_cmal.evaluation.source_length import bucket_labels
from hf_cmal.evaluation.tables import column_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Results = Sequence[Mapping[str, Any]]
Line = tuple[list[float], list[float]]  # updates or seconds, values

SIZE = (7.2, 3.4)  # inches, of a row of panels
DPI = 100
MOST_NAMES_INSIDE = 8  # of the lines of a panel; more stand outside
COLOURS = (*(f"C{number}" for number in range(10)), "black", "gold", "navy", "lime", "salmon", "teal")
AXES = {"step": "updates", "seconds": "seconds of training"}  # key of a point -> what it is


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


def curve_points(results: Results, part: str, value: str, *, against: str = "step") -> dict[str, list[Line]]:
    """Curves: name -> for every result that has it (updates or seconds, values).

    Args:
        part: `train` or `validation`.
        value: a key of its points; a curve without it is left out.
        against: a key of `AXES`; likewise.
    """
    curves: dict[str, list[Line]] = {}
    for result in results:
        for name, curve in result.get("curves", {}).items():
            points = [(one[against], one[value]) for one in curve[part] if {against, value} <= one.keys()]
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
    """The reward of the sampled sentences, and the main score on validation; a line per curve and result, the
    lines of one curve in one colour.

    Against the updates, in one row; where training was timed, each in a row of its own, against the updates
    and against the seconds.
    """
    panels = _panels(results)
    names = curve_names(results)
    timed = is_timed(results)
    titles = list(dict.fromkeys(title for title, _ in panels))
    rows, columns = (len(titles), len(AXES)) if timed else (1, len(titles))
    figure.set_size_inches(SIZE[0], SIZE[1] * rows)
    for (title, against), curves in panels.items():
        place = titles.index(title)
        if timed:
            place = columns * place + list(AXES).index(against)
        axes = figure.add_subplot(rows, columns, place + 1)
        for name, lines in curves.items():
            for number, (where, values) in enumerate(lines):
                axes.plot(
                    where, values, label=None if number else name, marker="o", markersize=2, linewidth=1,
                    color=COLOURS[names.index(name) % len(COLOURS)],
                )  # fmt: skip
        axes.set_xlabel(AXES[against])
        axes.set_ylabel(title)
        _tidy(axes)
    if len(names) <= MOST_NAMES_INSIDE:
        for axes in figure.axes:
            axes.legend(fontsize=7, frameon=False)
        return
    handles = {
        label: line
        for axes in figure.axes
        for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(
        handles.values(), handles.keys(), fontsize=7, frameon=False, ncols=4, loc="outside lower center"
    )


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


def curve_names(results: Results) -> list[str]:
    """The names of all curves, in the order of the results."""
    return list(dict.fromkeys(name for result in results for name in result.get("curves", {})))


def is_timed(results: Results) -> bool:
    """Whether there is a curve to draw against the seconds."""
    return any(against == "seconds" for _, against in _panels(results))


def averages_rewards(results: Results) -> bool:
    """Whether rewards are drawn as `last_mean`: as many curves as they are logged cannot be told apart."""
    return len(curve_names(results)) > MOST_NAMES_INSIDE


def _panels(results: Results) -> dict[tuple[str, str], dict[str, list[Line]]]:
    """(Title, key of `AXES`) -> curves, of the panels that have any."""
    score = results[0]["main_score"]
    panels = {}
    for against in AXES:
        rewards = curve_points(results, "train", "reward", against=against)
        if averages_rewards(results):
            rewards = {
                name: [(where, last_mean(values)) for where, values in lines]
                for name, lines in rewards.items()
            }
        panels["reward of the samples", against] = rewards
        scores = curve_points(results, "validation", score, against=against)
        panels[f"validation {column_title(score)}", against] = scores
    return {panel: curves for panel, curves in panels.items() if curves}


def _finish(figure: "Figure", axes: "Axes") -> None:
    _tidy(axes)
    if len(axes.get_legend_handles_labels()[1]) > MOST_NAMES_INSIDE:
        figure.legend(fontsize=7, frameon=False, loc="outside right center")
    else:
        axes.legend(fontsize=7, frameon=False)


def _tidy(axes: "Axes") -> None:
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
