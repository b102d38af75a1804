"""The leave-one-out baseline: by hand, unbiased over all pairs of samples, and at least two of them."""

from dataclasses import replace

import pytest
import torch

from hf_cmal.estimators.leave_one_out import LeaveOneOut
from tests.estimators.enumeration import enumerate_estimates, random_problem

LOG_PROBS = torch.zeros(1, 2, 4, dtype=torch.float64).log_softmax(-1)
MASK = torch.ones(1, 2, dtype=torch.bool)


def test_the_baseline_of_a_sample_is_the_mean_reward_of_the_others():
    actions = torch.tensor([[[0, 1], [2, 3], [1, 1]]])
    proposals = LeaveOneOut().propose_from_actions(LOG_PROBS, MASK, actions, eos_token_id=None)
    assert proposals.edits is None and proposals.actions is actions
    rewards = torch.tensor([[1.0, 2.0, 6.0]], dtype=torch.float64)
    surrogate = LeaveOneOut().surrogate(LOG_PROBS, proposals, rewards, None, num_inputs=1)
    assert surrogate.advantages.tolist() == [[[-3.0, -3.0], [-1.5, -1.5], [4.5, 4.5]]]


@pytest.mark.parametrize("num_samples", [2, 3])
@pytest.mark.parametrize("eos", [None, 1])
def test_it_is_unbiased_and_nothing_happens_after_the_eos(eos, num_samples):
    problem = random_problem(11, num_agents=2, vocab_size=3, eos=eos)
    estimates = enumerate_estimates(LeaveOneOut(), problem, num_samples=num_samples)
    assert estimates.relative_bias < 1e-9
    assert (estimates.advantages[~estimates.alive] == 0.0).all()


def test_a_constant_added_to_all_rewards_changes_nothing():
    problem = random_problem(11, num_agents=2, vocab_size=3, eos=1)
    shifted = replace(problem, reward=problem.reward.shifted(7.0))
    before, after = (enumerate_estimates(LeaveOneOut(), one, num_samples=2) for one in (problem, shifted))
    torch.testing.assert_close(after.gradients, before.gradients, rtol=0.0, atol=1e-12)


def test_a_single_sample_has_no_others():
    with pytest.raises(ValueError, match="got num_samples=1; give 2 or more"):
        LeaveOneOut().propose(LOG_PROBS, MASK, eos_token_id=None, num_samples=1)
