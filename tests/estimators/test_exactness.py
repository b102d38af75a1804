"""Every estimator on all joint actions: no bias, nothing after the eos, blind to a shift of the reward."""

import pytest
import torch

from hf_cmal.estimators import ESTIMATORS, get_estimator
from tests.estimators.biased import EosMaskedOut, LengthNormalised, PairsOfTheAlive, SampledWordAdded
from tests.estimators.enumeration import (
    enumerate_estimates,
    random_problem,
    reference_problems,
    tiny_problems,
)
from tests.estimators.noise import NOISE_ESTIMATORS

pytestmark = pytest.mark.filterwarnings("ignore:estimator 'none'")

PROBLEMS = tiny_problems()
COUNTERFACTUALS = [(k, weight) for k in (1, 2, 3, 16) for weight in (0.0, 0.5, 1.0)]
# One sample of an input is all most of these tests draw; leave_one_out needs two and has a file of its own.
# So have those that swap noise, test_arsm_exactness.py.
ELSEWHERE = ("leave_one_out", *NOISE_ESTIMATORS)
SUBJECTS = (
    {name: (name, {}) for name in ESTIMATORS if name not in ELSEWHERE}
    | {
        f"counterfactual k={k} lambda={weight}": (
            "counterfactual",
            {"top_k": k, "compositional_weight": weight},
        )
        for k, weight in COUNTERFACTUALS
    }
    | {f"all_action k={k}": ("all_action", {"top_k": k}) for k in (1, 2, 3)}
)


def make(subject):
    name, options = SUBJECTS[subject]
    estimator = get_estimator(name, **options)
    if name == "moving_average":
        estimator.update(4.0)  # b = 0.4
    return estimator


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_expected_gradient_is_the_gradient_of_the_expected_reward(subject, problem):
    assert enumerate_estimates(make(subject), PROBLEMS[problem]).relative_bias < 1e-9


@pytest.mark.parametrize("subject", SUBJECTS)
def test_two_samples_per_input_leave_the_expectation_and_halve_the_variance(subject):
    problem = random_problem(10, num_agents=2, vocab_size=3, eos=0)
    one = enumerate_estimates(make(subject), problem)
    two = enumerate_estimates(make(subject), problem, num_samples=2)
    assert two.relative_bias < 1e-9
    assert two.total_variance == pytest.approx(one.total_variance / 2, rel=1e-9)


@pytest.mark.parametrize("subject", SUBJECTS)
@pytest.mark.parametrize("problem", ["eos", "likely eos", "padding and eos", "lone agent"])
def test_after_the_eos_and_on_padding_advantage_and_gradient_are_exactly_zero(subject, problem):
    estimates = enumerate_estimates(make(subject), PROBLEMS[problem])
    alive = estimates.alive[:, 0]
    assert (~alive).any()
    if estimates.advantages is not None:
        assert (estimates.advantages[:, 0][~alive] == 0.0).all()
    assert (estimates.gradients[~alive] == 0.0).all()
    # and not because everything is zero
    assert (estimates.gradients[alive].abs().sum(-1) > 0.0).float().mean() > 0.5


@pytest.mark.parametrize("subject", [name for name in SUBJECTS if name not in ("none", "moving_average")])
@pytest.mark.parametrize("problem", PROBLEMS)
def test_adding_a_constant_to_all_rewards_changes_nothing(subject, problem):
    plain = PROBLEMS[problem]
    shifted = type(plain)(plain.logits, plain.agent_mask, plain.eos_token_id, plain.reward.shifted(7.0))
    before, after = enumerate_estimates(make(subject), plain), enumerate_estimates(make(subject), shifted)
    if before.advantages is not None:
        torch.testing.assert_close(after.advantages, before.advantages, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(after.gradients, before.gradients, rtol=0.0, atol=1e-12)


def test_without_a_baseline_a_constant_added_to_all_rewards_is_seen():
    plain = PROBLEMS["eos"]
    shifted = type(plain)(plain.logits, plain.agent_mask, plain.eos_token_id, plain.reward.shifted(7.0))
    before, after = enumerate_estimates(make("none"), plain), enumerate_estimates(make("none"), shifted)
    assert (after.gradients - before.gradients).abs().max() > 1.0


# ---- the same helper finds what is biased ------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["no eos", "eos", "padding", "suppressed word", "lone agent"])
def test_adding_the_sampled_word_to_the_top_k_set_is_found_biased(problem):
    assert enumerate_estimates(SampledWordAdded(1), PROBLEMS[problem]).relative_bias > 0.03


@pytest.mark.parametrize("problem", ["eos", "likely eos", "padding and eos", "suppressed word"])
def test_masking_out_the_eos_position_is_found_biased(problem):
    subject = PROBLEMS[problem]
    for sound in (make("counterfactual"), make("none"), make("self_critical")):
        biased = EosMaskedOut(sound, subject.eos_token_id)
        assert enumerate_estimates(biased, subject).relative_bias > 0.1


@pytest.mark.parametrize("problem", ["eos", "likely eos", "padding and eos", "suppressed word"])
def test_dividing_by_the_sampled_length_is_found_biased(problem):
    biased = LengthNormalised(make("counterfactual"))
    subject = PROBLEMS[problem]
    estimates = enumerate_estimates(biased, subject)
    # Biased in direction too: a loss divided by the number of agents would only be a smaller step.
    cosine = torch.cosine_similarity(estimates.mean.flatten(), estimates.exact.flatten(), dim=0)
    assert estimates.relative_bias > 0.1
    assert cosine < 1 - 1e-3


@pytest.mark.parametrize("problem", ["eos", "likely eos", "padding and eos", "suppressed word"])
def test_pairs_that_exist_only_between_agents_alive_are_found_biased(problem):
    assert enumerate_estimates(PairsOfTheAlive(2), PROBLEMS[problem]).relative_bias > 0.01


@pytest.mark.parametrize("problem", ["no eos", "padding"])
def test_pairs_of_the_alive_are_unbiased_where_no_eos_can_be_sampled(problem):
    assert enumerate_estimates(PairsOfTheAlive(2), PROBLEMS[problem]).relative_bias < 1e-9


def test_the_helper_reproduces_the_published_gradients():
    for problem, entry in reference_problems().values():
        expected = torch.tensor(entry["exact_gradient"], dtype=torch.float64)
        torch.testing.assert_close(problem.exact_gradient(), expected, rtol=0.0, atol=1e-11)
        assert float(problem.expected_reward()) == pytest.approx(entry["expected_reward"], abs=1e-12)
