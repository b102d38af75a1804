"""The table of systems that are compared with a baseline: BLEU, how sure the difference is, and what it cost.

A row is a model, with its scores before and after the postprocessing; its training is the curve of the same
name. It measures nothing: differences are `paired_bootstrap`'s.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hf_cmal.evaluation.curves import LAST_POINTS, last_mean
from hf_cmal.evaluation.paired_bootstrap import PERCENT, interval
from hf_cmal.evaluation.tables import row_name, score_cell, seeds, system_names

POSTPROCESS = "_postprocess"
COMPARISON = "comparison"


def pooled_difference(parts: Sequence[Mapping[str, Any]], name: str) -> tuple[float, float, float]:
    """The mean difference of a system to its baseline over training seeds, and its interval.

    The interval is of the mean over the seeds on one drawn test set, as all seeds were resampled by the same
    draws: it tells what other sentences would have given with these models, not what other seeds would.

    Args:
        parts: `comparison` of results that have the system.

    Returns:
        (difference, low, high) in BLEU points.

    Raises:
        ValueError: they were resampled differently, or compared with different baselines.
    """
    first = parts[0]
    for part in parts[1:]:
        for one, other, what in (
            (part["signature"], first["signature"], "signature"),
            (part["systems"][name]["baseline"], first["systems"][name]["baseline"], f"baseline of {name}"),
        ):
            if one != other:
                raise ValueError(
                    f"the {what} of a comparison is {one!r} in one result and {other!r} in another of the "
                    "same ladder; evaluate all seeds with the same recipe and versions"
                )
    rows = [part["systems"][name] for part in parts]
    resampled = np.array([[float(value) for value in row["resampled"].split()] for row in rows])
    low, high = interval(resampled.mean(0))
    return statistics.fmean(row["difference"] for row in rows), low, high


def comparison_table(results: Sequence[Mapping[str, Any]]) -> str | None:
    """A Markdown table: a row for every model that was compared, and for the baseline.

    Args:
        results: of one ladder, differing in the seed. A model is shown with the seeds it was measured with.

    Returns:
        The table and how it is read, or None: no result has a comparison.
    """
    there = [result for result in results if COMPARISON in result]
    if not there:
        return None
    baseline = there[0][COMPARISON]["baseline"].removesuffix(POSTPROCESS)
    head = f"| system | BLEU | against {baseline} | BLEU, postprocessed | against {baseline} |"
    lines = [head + " s per update | reward at the end |", "|---|" + "---:|" * 6]
    for name in dict.fromkeys(name.removesuffix(POSTPROCESS) for name in system_names(there)):
        both = (name, name + POSTPROCESS)
        measured = [result for result in there if any(one in result["systems"] for one in both)]
        cells = [cell for one in both for cell in (_score(one, measured), _difference(one, measured))]
        cells.append(_rounded(_update_seconds(measured[0], name), 2))
        cells.append(_rounded(_last_reward(measured[0], name), 3))
        lines.append(f"| {row_name(name, measured, results)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *_notes(there)])


def _notes(there: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"In brackets the middle {PERCENT} % of the differences on resampled sentences, for all systems and "
        f"seeds the same (Koehn 2004; {seeds(there)}): how much hangs on the sentences, not on the seeds. s "
        "per update: forward pass, rewards and backward pass. Reward at the end: of the sampled sentences, "
        f"mean of the last {LAST_POINTS} logged points. Both are of the first seed: others learn from other "
        "batches.",
        "",
        f"- differences: `{there[0][COMPARISON]['signature']}`",
    ]


def _score(name: str, results: Sequence[Mapping[str, Any]]) -> str:
    return score_cell("bleu", [r["systems"][name]["bleu"] for r in results if name in r["systems"]])


def _difference(name: str, results: Sequence[Mapping[str, Any]]) -> str:
    parts = [result[COMPARISON] for result in results if name in result[COMPARISON]["systems"]]
    if not parts:
        return "-"
    difference, low, high = pooled_difference(parts, name)
    return f"{difference:+.2f} ({low:+.2f} to {high:+.2f})"


def _update_seconds(result: Mapping[str, Any], name: str) -> float | None:
    train = result.get("curves", {}).get(name, {}).get("train", [])
    return train[-1]["seconds"] / train[-1]["step"] if train and "seconds" in train[-1] else None


def _last_reward(result: Mapping[str, Any], name: str) -> float | None:
    train = result.get("curves", {}).get(name, {}).get("train", [])
    rewards = [point["reward"] for point in train if "reward" in point]
    return last_mean(rewards)[-1] if rewards else None


def _rounded(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
