"""The benchmark of the estimators, run as a user runs it; what is enumerated must be as published."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.estimators.enumeration import reference_problems

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "estimator_variance.py"
LARGER = "N=12, V=40, peaked"
PROBLEMS = reference_problems()
# name in the benchmark -> name in variance_problems.json
PUBLISHED = {
    "none": "none",
    "moving_average": "constant_expected_reward",
    "self_critical": "self_critical",
    "counterfactual_top_1": "counterfactual_top_1",
    "counterfactual_top_2": "counterfactual_top_2",
    "counterfactual_exact": "counterfactual_exact",
    "compositional_top_1": "counterfactual_plus_compositional_top_1",
    "compositional_top_2": "counterfactual_plus_compositional_top_2",
    "all_action_top_2": "all_action_top_2_exact_plus_sampled_rest",
    "all_action": "all_action_exact",
}
SAMPLED = {"leave_one_out_5", "leave_one_out_25", "ar", "ars", "arsm", "arsm_budget_8", "arsm_joint"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def result(folder):
    command = [sys.executable, SCRIPT, "--quick", "--output", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_every_problem_has_every_estimator(result):
    assert result["problems"].keys() == {*PROBLEMS, LARGER}
    for problem in result["problems"].values():
        assert problem["estimators"].keys() == {*PUBLISHED, *SAMPLED}
    assert {"versions", "hardware", "commit", "size", "steps"} <= result.keys()


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", PUBLISHED)
def test_enumerated_figures_are_the_published_ones(result, name, problem):
    _, entry = PROBLEMS[problem]
    figures = entry["estimators"][PUBLISHED[name]]
    row = result["problems"][problem]["estimators"][name]
    assert row["method"] == "enumeration"
    assert row["relative_bias"] < 1e-9
    variance = figures["total_variance" if entry["eos"] is None else "total_variance_masked"]
    assert row["variance"] == pytest.approx(variance, rel=1e-9)
    assert result["problems"][problem]["expected_reward"] == pytest.approx(entry["expected_reward"])


@pytest.mark.slow
def test_sampled_figures_come_with_their_error_and_show_no_bias(result):
    for problem in result["problems"].values():
        for name, row in problem["estimators"].items():
            if row["method"] == "monte carlo":
                assert row["variance_standard_error"] > 0.0, name
                assert row["relative_bias"] < 2.0 * row["relative_bias_noise"] + 0.05, name


@pytest.mark.slow
def test_figures_that_follow_from_others_do(result):
    for problem in result["problems"].values():
        none = problem["estimators"]["none"]["variance"]
        for row in problem["estimators"].values():
            assert row["relative_variance"] == pytest.approx(row["variance"] / none)
            at_budget = row["variance"] * row["evaluations"] / result["budget"]
            assert row["variance_at_budget"] == pytest.approx(at_budget)


@pytest.mark.slow
@pytest.mark.parametrize(
    # worked by hand for N = 12 agents and one sample, where no agent is masked
    ("name", "evaluations"),
    [
        ("none", 1), ("self_critical", 2), ("leave_one_out_5", 5), ("counterfactual_top_1", 1 + 12),
        ("counterfactual_top_2", 1 + 24), ("compositional_top_2", 1 + 24 + 22),
    ],
)  # fmt: skip
def test_evaluations_are_the_rewards_that_are_asked_for(result, name, evaluations):
    assert result["problems"][LARGER]["estimators"][name]["evaluations"] == evaluations


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["medium, eos 0", "peaked, eos 0"])
def test_agents_after_the_eos_ask_for_no_rewards(result, problem):
    setting, _ = PROBLEMS[problem]
    goes_on = 1.0 - setting.logits.softmax(-1)[:-1, setting.eos_token_id]
    alive = 1.0 + float(goes_on.cumprod(0).sum())  # the first agent always is
    row = result["problems"][problem]["estimators"]["counterfactual_top_1"]
    assert row["evaluations"] == pytest.approx(1.0 + alive)


@pytest.mark.slow
def test_a_step_is_its_parts(result):
    for row in result["steps"]["estimators"].values():
        parts = [row[f"{part}_ms"] for part in ("bind", "propose", "score", "surrogate")]
        assert row["step_ms"] == pytest.approx(sum(parts))  # one round: medians add up
    assert abs(result["steps"]["entropy"] - 1.0) < 0.1


@pytest.mark.slow
def test_the_file_holds_what_is_printed_and_a_figure_lies_beside_it(result, folder):
    assert json.loads((folder / "estimator_variance.json").read_text()) == result
    assert (folder / "estimator_variance.png").read_bytes().startswith(b"\x89PNG")
