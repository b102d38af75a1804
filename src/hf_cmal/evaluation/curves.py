"""Training curves (CMAL Fig. 7), read from what the Trainer logged in the folder of a trained stage.

Every logged point is kept, with the values that say how training went, rounded so that a result stays small.
Time is the mean duration of one forward and backward pass (`step_time`, seconds): the log does not say how
many of them make an update. It trains and draws nothing.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TRAINER_STATE = "trainer_state.json"
TRAINED = ("reward", "repetition_rate", "entropy", "loss", "step_time")
VALIDATED = "eval_"
NOT_QUALITY = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second")


def read_curve(name: str, folder: str) -> dict[str, list[dict[str, float]]]:
    """The curve of a trained stage.

    Args:
        name: of the curve, for messages.
        folder: the stage's output_dir, with the Trainer's state in it.

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
        curve = training_curve(json.loads(path.read_text(encoding="utf-8"))["log_history"])
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


def training_curve(log_history: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, float]]]:
    """The points of a Trainer's log.

    Args:
        log_history: entries as the Trainer logs them, with their `step` (updates so far).

    Returns:
        `train`: at every logged step those of `TRAINED` that were logged; `reward` and `repetition_rate` are
        of the sampled sentences, means since the point before. `validation`: at every evaluation all scores
        by their names without "eval_". Values have 5 significant digits.
    """
    train = [_point(entry, {key: key for key in TRAINED}) for entry in log_history if "loss" in entry]
    validation = [
        _point(entry, {key: key.removeprefix(VALIDATED) for key in entry if _is_score(key)})
        for entry in log_history
        if any(_is_score(key) for key in entry)
    ]
    return {"train": train, "validation": validation}


def _is_score(key: str) -> bool:
    return key.startswith(VALIDATED) and key not in NOT_QUALITY


def _point(entry: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, float]:
    """The step, and the values of `entry` at the keys of `names` under their new names."""
    values = {new: float(f"{entry[key]:.5g}") for key, new in names.items() if key in entry}
    return {"step": entry["step"], **values}
