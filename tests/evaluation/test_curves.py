"""Curves from a log written by hand, and from one that a Trainer wrote."""

import json
from itertools import accumulate

import pytest

from hf_cmal.evaluation.curves import elapsed_seconds, last_mean, read_curve, training_curve
from hf_cmal.training.recipe import parse_recipe
from hf_cmal.training.stages import run_stage

LOG = [
    {
        "step": 10, "epoch": 0.5, "loss": -0.35038032, "reward": 0.33191337, "repetition_rate": 0.025691871,
        "entropy": 1.2043306, "step_time": 0.1167182, "grad_norm": 0.25, "learning_rate": 1e-4,
    },
    {
        "step": 20, "epoch": 1.0, "eval_bleu": 55.395719, "eval_repetition_rate": 0.0, "eval_loss": 9.1742219,
        "eval_runtime": 0.5, "eval_samples_per_second": 379.0, "eval_steps_per_second": 7.5,
    },
    {"step": 20, "epoch": 1.0, "train_loss": -0.069, "train_runtime": 26.4, "total_flos": 1e12},
]  # fmt: skip


def test_a_curve_has_the_values_of_training_with_five_significant_digits():
    assert training_curve(LOG)["train"] == [
        {
            "step": 10, "loss": -0.35038, "reward": 0.33191, "repetition_rate": 0.025692, "entropy": 1.2043,
            "step_time": 0.11672,
        }
    ]  # fmt: skip


def test_a_curve_has_the_scores_of_validation_by_their_names_and_no_times():
    assert training_curve(LOG)["validation"] == [
        {"step": 20, "bleu": 55.396, "repetition_rate": 0.0, "loss": 9.1742}
    ]


def test_a_stage_without_rewards_has_a_curve_without_rewards():
    assert training_curve([{"step": 50, "loss": 4.5, "epoch": 1.0}]) == {
        "train": [{"step": 50, "loss": 4.5}], "validation": [],
    }  # fmt: skip


# --- seconds

# 10 updates of 1 s, 10 of 0.5 s, 20 of 0.25 s, in micro-batches of which an update has two
TIMES = [
    {"step": 10, "loss": 1.0, "step_time": 0.5},
    {"step": 20, "loss": 1.0, "step_time": 0.25},
    {"step": 20, "eval_bleu": 10.0},
    {"step": 30, "eval_bleu": 20.0},
    {"step": 40, "loss": 1.0, "step_time": 0.125},
    {"step": 48, "eval_bleu": 30.0},
]


def test_seconds_are_the_time_of_every_update_until_then():
    curve = training_curve(TIMES, micro_batches=2)
    assert [point["seconds"] for point in curve["train"]] == [10.0, 15.0, 20.0]
    # between two logged updates, and behind the last, an update takes as long as its neighbours
    assert [point["seconds"] for point in curve["validation"]] == [15.0, 17.5, 22.0]
    assert [point["seconds"] for point in training_curve(TIMES, micro_batches=1)["train"]] == [5.0, 7.5, 10.0]


def test_an_evaluation_before_the_first_logged_update_has_its_seconds():
    assert elapsed_seconds([10, 20], [2.0, 1.0], at=[0, 5]) == [0.0, 10.0]


@pytest.mark.parametrize("log", [TIMES, [{"step": 5, "loss": 1.0}, *TIMES]])
def test_without_all_times_or_the_micro_batches_no_point_has_seconds(log):
    curve = training_curve(log, micro_batches=None if log is TIMES else 1)
    assert not any("seconds" in point for points in curve.values() for point in points)


@pytest.mark.parametrize(
    ("recipe", "seconds"),
    [("training: {gradient_accumulation_steps: 4}", 40.0), ("training: {max_steps: 9}", 10.0), ("{}", 10.0)],
)
def test_the_recipe_beside_the_log_says_how_many_micro_batches_an_update_has(recipe, seconds, tmp_path):
    state = {"log_history": [{"step": 10, "loss": 1.0, "step_time": 1.0}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    assert "seconds" not in read_curve("cmal", str(tmp_path))["train"][0]
    (tmp_path / "recipe.yaml").write_text(recipe, encoding="utf-8")
    assert read_curve("cmal", str(tmp_path))["train"][0]["seconds"] == seconds


def test_the_mean_of_the_last_points_has_fewer_at_the_beginning():
    """Of ten."""
    assert last_mean([1.0, 3.0, 5.0]) == [1.0, 2.0, 3.0]
    assert last_mean([*[7.0] * 5, *[1.0] * 10])[-2:] == [1.6, 1.0]


# --- files


def test_what_a_trainer_logged_is_read_at_every_step(translators, tmp_path):
    recipe = {
        "stage": "cmal", "task": "translation", "output_dir": str(tmp_path / "cmal"),
        "student": f"{translators}/student", "validation_rows": 2,
        "data": {"toy_rows": [4, 2, 2], "max_source_length": 48, "max_target_length": 48},
        "training": {
            "max_steps": 4, "per_device_train_batch_size": 2, "num_samples": 2, "logging_steps": 1,
            "eval_strategy": "steps", "eval_steps": 2, "predict_with_generate": True, "report_to": "none",
        },
    }  # fmt: skip
    run_stage(parse_recipe(recipe, where="recipe"))
    curve = read_curve("cmal", str(tmp_path / "cmal"))
    assert [point["step"] for point in curve["train"]] == [1, 2, 3, 4]
    assert [point["step"] for point in curve["validation"]] == [2, 4]
    assert all(
        point.keys() == {"step", "reward", "repetition_rate", "entropy", "loss", "step_time", "seconds"}
        for point in curve["train"]
    )
    assert {"bleu", "gleu", "repetition_rate"} <= curve["validation"][0].keys()
    # an update is one micro-batch: it takes what the log says
    seconds = list(accumulate(point["step_time"] for point in curve["train"]))
    assert [point["seconds"] for point in curve["train"]] == pytest.approx(seconds, rel=1e-3)
    assert [point["seconds"] for point in curve["validation"]] == pytest.approx(seconds[1::2], rel=1e-3)


def test_a_folder_without_a_trainers_state_is_an_error_that_names_curve_and_file(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        read_curve("cmal", str(tmp_path))
    assert f"evaluation.curves.cmal: there is no {tmp_path / 'trainer_state.json'}" in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"log_history": 3}', '{"log_history": [{"loss": 1}]}'])
def test_another_file_of_that_name_is_an_error_that_names_it(text, tmp_path):
    (tmp_path / "trainer_state.json").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"evaluation\.curves\.xe: .*trainer_state\.json is no state"):
        read_curve("xe", str(tmp_path))


def test_a_log_without_a_point_is_an_error_that_says_what_to_set(tmp_path):
    (tmp_path / "trainer_state.json").write_text(json.dumps({"log_history": LOG[2:]}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"nothing was logged in .*set training\.logging_steps"):
        read_curve("xe", str(tmp_path))
