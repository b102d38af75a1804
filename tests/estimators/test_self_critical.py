"""Baseline "SC" of CMAL Table III."""

import torch

from hf_cmal.estimators import get_estimator

# Agents prefer words 2 and 1.
LOG_PROBS = torch.tensor([[[0.1, 0.2, 0.7], [0.3, 0.6, 0.1]]], dtype=torch.float64).log()
MASK = torch.ones(1, 2, dtype=torch.bool)
ACTIONS = torch.tensor([[[0, 0], [1, 2]]])


def test_the_one_auxiliary_row_is_the_greedy_joint_action():
    proposals = get_estimator("self_critical").propose_from_actions(
        LOG_PROBS, MASK, ACTIONS, eos_token_id=None
    )
    assert proposals.actions.tolist() == [[[0, 0], [1, 2], [2, 1]]]
    assert proposals.num_samples == 2
    assert proposals.edits is None
    assert proposals.alive.shape == (1, 2, 2)


def test_the_reward_of_the_greedy_row_is_the_baseline_of_all_samples_and_agents():
    estimator = get_estimator("self_critical")
    proposals = estimator.propose_from_actions(LOG_PROBS, MASK, ACTIONS, eos_token_id=None)
    rewards = torch.tensor([[3.0, 5.0, 4.0]], dtype=torch.float64)
    surrogate = estimator.surrogate(LOG_PROBS, proposals, rewards, None, num_inputs=1)
    assert surrogate.advantages.tolist() == [[[-1.0, -1.0], [1.0, 1.0]]]


def test_inputs_keep_their_own_baseline():
    estimator = get_estimator("self_critical")
    proposals = estimator.propose_from_actions(
        LOG_PROBS.expand(2, -1, -1), MASK.expand(2, -1), ACTIONS.expand(2, -1, -1), eos_token_id=None
    )
    rewards = torch.tensor([[3.0, 5.0, 4.0], [3.0, 5.0, 0.0]], dtype=torch.float64)
    surrogate = estimator.surrogate(LOG_PROBS.expand(2, -1, -1), proposals, rewards, None, num_inputs=2)
    assert surrogate.advantages[:, :, 0].tolist() == [[-1.0, 1.0], [3.0, 5.0]]
