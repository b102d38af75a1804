"""The benchmark of a training step, run as a user runs it; its speeds are not judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "training_step.py"
PRESETS = {"captioning": "counterfactual_top_2_compositional", "translation": "counterfactual_top_1"}
REWARDS = ("bind", "score", "score_edits")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def result(folder):
    command = [sys.executable, SCRIPT, "--quick", "--output", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("task", PRESETS)
def test_every_step_is_timed_and_the_paper_s_preset_is_named(result, task):
    shape = result[task]
    assert shape["preset"] == PRESETS[task]
    assert shape["systems"].keys() == {
        "xe", "all_action", "counterfactual_top_2_compositional", PRESETS[task],
    }  # fmt: skip
    assert {"versions", "hardware", "commit", "size"} <= result.keys()


@pytest.mark.slow
@pytest.mark.parametrize("task", PRESETS)
def test_ratios_are_those_of_the_seconds(result, task):
    shape, systems = result[task], result[task]["systems"]
    preset, xe = systems[PRESETS[task]], systems["xe"]
    ca = systems["counterfactual_top_2_compositional"]
    assert shape["reward_share"] == pytest.approx(preset["rewards_seconds"] / preset["step_seconds"])
    assert shape["cmal_over_xe"] == pytest.approx(preset["step_seconds"] / xe["step_seconds"])
    ratio = systems["all_action"]["step_seconds"] / ca["step_seconds"]
    assert shape["all_action_over_ca"] == pytest.approx(ratio)


@pytest.mark.slow
@pytest.mark.parametrize("task", PRESETS)
def test_the_parts_make_up_the_step_and_only_cmal_spends_time_on_rewards(result, task):
    for name, system in result[task]["systems"].items():
        parts = system["parts"]
        assert min(parts.values()) >= 0.0
        # one round: the medians add up, but for the clocks themselves
        assert sum(parts.values()) == pytest.approx(system["step_seconds"], abs=1e-3)
        assert system["rewards_seconds"] == pytest.approx(sum(parts[part] for part in REWARDS))
        spent = [parts[part] > 0.0 for part in (*REWARDS, "propose", "surrogate")]
        assert not any(spent) if name == "xe" else all(spent)


@pytest.mark.slow
@pytest.mark.parametrize("task", PRESETS)
def test_the_policy_is_as_certain_and_as_good_as_is_claimed(result, task):
    setting = result[task]["setting"]
    assert setting["entropy"] == pytest.approx(1.0, abs=0.5)
    assert setting["mean_reward"] > 0.05
    assert setting["dtype"] == "float32"


@pytest.mark.slow
def test_the_file_holds_what_is_printed_and_a_figure_lies_beside_it(result, folder):
    assert json.loads((folder / "training_step.json").read_text()) == result
    assert (folder / "training_step.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_quick_run_writes_nothing_where_no_folder_is_named(tmp_path):
    script = tmp_path / "benchmarks" / SCRIPT.name
    script.parent.mkdir()
    script.write_text(SCRIPT.read_text())
    (script.parent / "parts").mkdir()
    for part in (SCRIPT.parent / "parts").glob("*.py"):
        (script.parent / "parts" / part.name).write_text(part.read_text())
    done = subprocess.run(
        [sys.executable, script, "--quick"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert json.loads(done.stdout.splitlines()[-1])["size"] == "quick"
    assert not list(tmp_path.rglob("training_step.json"))
