"""variance_problems.json: bias and total variance of each estimator on four problems, by enumeration.

Where the problem has an eos, the figures with agents after it masked are ours; else there is nothing to mask.
"""

import pytest
import torch

from hf_cmal.estimators import get_estimator
from hf_cmal.estimators.base import policy_gradient_loss
from tests.estimators.biased import AllActionRenormalised, EosMaskedOut, SampledWordAdded
from tests.estimators.enumeration import enumerate_estimates, reference_problems

pytestmark = pytest.mark.filterwarnings("ignore:estimator 'none'")

PROBLEMS = reference_problems()
EXACT = 36  # V * V of the largest problem

SUBJECTS = {
    "none": lambda: get_estimator("none"),
    "self_critical": lambda: get_estimator("self_critical"),
} | {
    f"{name}_{label}": lambda k=k, weight=weight: get_estimator(
        "counterfactual", top_k=k, compositional_weight=weight
    )
    for name, weight in (("counterfactual", 0.0), ("counterfactual_plus_compositional", 0.5))
    for label, k in (("top_1", 1), ("top_2", 2), ("exact", EXACT))
}


def figures(entry, name):
    suffix = "_masked" if entry["eos"] is not None else ""
    row = entry["estimators"][name]
    return row[f"relative_bias{suffix}"], row[f"total_variance{suffix}"]


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_bias_and_variance_are_the_published_ones(subject, problem):
    setting, entry = PROBLEMS[problem]
    bias, variance = figures(entry, subject)
    estimates = enumerate_estimates(SUBJECTS[subject](), setting)
    assert bias == 0.0
    assert estimates.relative_bias < 1e-9
    assert estimates.total_variance == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_over_the_candidates_of_the_reward_counterfactual_is_the_published_exact_one(problem):
    setting, entry = PROBLEMS[problem]
    assert setting.reward.other_is_exact
    bias, variance = figures(entry, "counterfactual_exact")
    estimates = enumerate_estimates(get_estimator("counterfactual", exact=True), setting)
    assert bias == 0.0
    assert estimates.relative_bias < 1e-9
    assert estimates.total_variance == pytest.approx(variance, rel=1e-9)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_constant_baseline_has_the_published_variance(problem):
    setting, entry = PROBLEMS[problem]
    actions, probs = setting.joint_actions()
    logits = setting.logits.expand(len(actions), -1, -1).clone().requires_grad_()
    advantages = setting.reward.score(actions) - setting.expected_reward()
    alive = (
        get_estimator("self_critical")
        .propose_from_actions(
            logits, setting.agent_mask.expand(len(actions), -1), actions, eos_token_id=setting.eos_token_id
        )
        .alive
    )
    policy_gradient_loss(logits.log_softmax(-1), actions, advantages, alive, num_inputs=1).backward()
    mean = torch.einsum("u,unv->nv", probs, -logits.grad)
    variance = (probs * (-logits.grad - mean).square().sum((1, 2))).sum()
    torch.testing.assert_close(mean, setting.exact_gradient(), rtol=0.0, atol=1e-12)
    assert float(variance) == pytest.approx(figures(entry, "constant_expected_reward")[1], rel=1e-9)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("BIASED_counterfactual_top_2_with_sampled_word", SampledWordAdded(2)),
        ("BIASED_all_action_renormalised_top_2", AllActionRenormalised(2)),
    ],
)
def test_biased_variants_have_the_published_bias(name, subject, problem):
    setting, entry = PROBLEMS[problem]
    bias, variance = figures(entry, name)
    estimates = enumerate_estimates(subject, setting)
    assert bias > 0.03
    assert estimates.relative_bias == pytest.approx(bias, rel=1e-6)
    assert estimates.total_variance == pytest.approx(variance, rel=1e-6)


@pytest.mark.parametrize(
    "problem", [name for name, (setting, _) in PROBLEMS.items() if setting.eos_token_id == 0]
)
def test_masking_out_the_eos_position_is_biased_by_at_least_the_published_39_percent(problem):
    setting, _ = PROBLEMS[problem]
    assert enumerate_estimates(EosMaskedOut(get_estimator("none"), 0), setting).relative_bias > 0.38
