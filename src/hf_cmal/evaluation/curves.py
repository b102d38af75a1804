"""Training curves (CMAL Fig. 7), read from what the Trainer logged in the folder of a trained stage.

Every logged point is kept, with the values that say how training went, rounded so that a result stays small.
Time is the mean duration of one forward and backward pass with its rewards (`step_time`, seconds). How many
of them make an update is not in the log, but in the recipe beside it. It trains and draws nothing.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

TRAINER_STATE = "trainer_state.json"
RECIPE = "recipe.yaml"
TRAINED = ("reward", "repetition_rate", "entropy", "loss", "step_time")
VALIDATED = "eval_"
NOT_QUALITY = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second")
LAST_POINTS = 10  # logged points that a noisy value is averaged over


def read_curve(name: str, folder: str) -> dict[str, list[dict[str, float]]]:
    """The curve of a trained stage.

    Args:
        name: of the curve, for messages.
        folder: the stage's output_dir, with the Trainer's state in it. Without the recipe beside it no point
            has `seconds`.

    Returns:
        See `training_curve`.

    Raises:
        FileNotFoundError: there is no such file; the message names it.
        ValueError: the file is no Trainer's state, or nothing was logged.
    """
    path = Path(folder) / TRAINER_STATE
    if not path.is_file():
        raise FileNotFoundError(
            f"evaluation.curves.{name}: there is no {path}; give the output_dir of a stage that has trained"
        )
    try:
        log_history = json.loads(path.read_text(encoding="utf-8"))["log_history"]
        curve = training_curve(log_history, micro_batches=_micro_batches(Path(folder) / RECIPE))
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"evaluation.curves.{name}: {path} is no state that a Trainer saved ({error!r})"
        ) from error
    if not curve["train"] and not curve["validation"]:
        raise ValueError(
            f"evaluation.curves.{name}: nothing was logged in {path}; set training.logging_steps to less "
            "than the steps of the stage"
        )
    return curve


def training_curve(
    log_history: Sequence[Mapping[str, Any]], *, micro_batches: int | None = None
) -> dict[str, list[dict[str, float]]]:
    """The points of a Trainer's log.

    Args:
        log_history: entries as the Trainer logs them, with their `step` (updates so far).
        micro_batches: of an update; None: unknown.

    Returns:
        `train`: at every logged step those of `TRAINED` that were logged; `reward` and `repetition_rate` are
        of the sampled sentences, means since the point before. `validation`: at every evaluation all scores
        by their names without "eval_". Where `step_time` was always logged and `micro_batches` is known, both
        have `seconds` (see `elapsed_seconds`). Values have 5 significant digits.
    """
    trained = [entry for entry in log_history if "loss" in entry]
    validated = [entry for entry in log_history if any(_is_score(key) for key in entry)]
    curve = {
        "train": [_point(entry, {key: key for key in TRAINED}) for entry in trained],
        "validation": [
            _point(entry, {key: key.removeprefix(VALIDATED) for key in entry if _is_score(key)})
            for entry in validated
        ],
    }
    if micro_batches is not None and trained and all("step_time" in entry for entry in trained):
        steps = [entry["step"] for entry in trained]
        update_seconds = [micro_batches * entry["step_time"] for entry in trained]
        for points in curve.values():
            seconds = elapsed_seconds(steps, update_seconds, at=[point["step"] for point in points])
            for point, value in zip(points, seconds, strict=True):
                point["seconds"] = _rounded(value)
    return curve


def elapsed_seconds(
    steps: Sequence[float], update_seconds: Sequence[float], *, at: Sequence[float]
) -> list[float]:
    """Seconds of training until certain updates.

    Args:
        steps: the logged updates, rising.
        update_seconds: for each the mean seconds of an update since the one before.
        at: updates; those after the last logged one take as long as it did.

    Example:
        >>> elapsed_seconds([10, 20], [1.0, 2.0], at=[10, 15, 25])
        [10.0, 20.0, 40.0]
    """
    edges = [0, *steps, max([*at, steps[-1]]) + 1]
    rates = [*update_seconds, update_seconds[-1]]
    return [float(value) for value in np.interp(at, edges, [0.0, *np.cumsum(np.diff(edges) * rates)])]


def last_mean(values: Sequence[float]) -> list[float]:
    """At every value the mean of the last `LAST_POINTS` up to it, of fewer at the beginning."""
    sums = [0.0, *accumulate(values)]
    firsts = [max(0, end - LAST_POINTS) for end in range(1, len(sums))]
    return [(sums[end] - sums[first]) / (end - first) for end, first in enumerate(firsts, start=1)]


def _micro_batches(recipe: Path) -> int | None:
    if not recipe.is_file():
        return None
    count = OmegaConf.select(OmegaConf.load(recipe), "training.gradient_accumulation_steps", default=1)
    return int(count)


def _is_score(key: str) -> bool:
    return key.startswith(VALIDATED) and key not in NOT_QUALITY


def _point(entry: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    """The step, and the values of `entry` at the keys of `names` under their new names."""
    values = {new: _rounded(entry[key]) for key, new in names.items() if key in entry}
    return {"step": entry["step"], **values}


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
