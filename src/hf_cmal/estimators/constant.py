"""Baselines that are one number for all inputs, samples and agents (CMAL Table III: "None" and "MA").

`NoBaseline` is plain REINFORCE, Eq. (8); `MovingAverage` subtracts the mean reward of earlier steps, Eq. (9).
Both leave an agent with the credit of the whole team; they are here to compare with.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from hf_cmal.estimators.base import Surrogate, baseline_surrogate, check_rewards, sample_proposals
from hf_cmal.sampling.proposals import Proposals
from hf_cmal.sampling.sample import sample_actions


def next_moving_average(average: float, mean_reward: float, *, decay: float = 0.9) -> float:
    """decay * average + (1 - decay) * mean_reward."""
    return decay * average + (1.0 - decay) * mean_reward


class NoBaseline:
    """REINFORCE, CMAL Eq. (8). Its variance is so high that it warns when it is made."""

    def __init__(self) -> None:
        warnings.warn(
            "estimator 'none' subtracts no baseline from the reward: its gradient has a very high variance "
            "and often makes a trained model worse; it is for comparison, train with 'counterfactual'",
            UserWarning,
            stacklevel=2,
        )

    def propose(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        num_samples: int = 5,
        candidates: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Proposals:
        """See `Estimator.propose`."""
        actions = sample_actions(log_probs, num_samples, generator=generator)
        return self.propose_from_actions(log_probs, agent_mask, actions, eos_token_id=eos_token_id)

    def propose_from_actions(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        actions: Tensor,
        *,
        eos_token_id: int | None,
        candidates: Tensor | None = None,
    ) -> Proposals:
        """See `SamplingEstimator.propose_from_actions`."""
        return sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)

    def surrogate(
        self,
        log_probs: Tensor,
        proposals: Proposals,
        rewards: Tensor,
        edit_rewards: Tensor | None,
        *,
        num_inputs: int | Tensor,
    ) -> Surrogate:
        """See `Estimator.surrogate`."""
        check_rewards(proposals, rewards, edit_rewards)
        return baseline_surrogate(log_probs, proposals, rewards, 0.0, num_inputs=num_inputs)  # Eq. (8)


class MovingAverage:
    """The exponential moving average of the rewards of earlier steps as baseline, CMAL Eq. (9).

    It is 0 at the first step and never holds the rewards it is subtracted from.

    Args:
        decay: in [0, 1); how much of the average a step keeps.

    Raises:
        ValueError: if `decay` is not in [0, 1).
    """

    def __init__(self, *, decay: float = 0.9) -> None:
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay must be in [0, 1), got {decay}")
        self.decay = decay
        self.baseline = 0.0

    def propose(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        num_samples: int = 5,
        candidates: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Proposals:
        """See `Estimator.propose`."""
        actions = sample_actions(log_probs, num_samples, generator=generator)
        return self.propose_from_actions(log_probs, agent_mask, actions, eos_token_id=eos_token_id)

    def propose_from_actions(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        actions: Tensor,
        *,
        eos_token_id: int | None,
        candidates: Tensor | None = None,
    ) -> Proposals:
        """See `SamplingEstimator.propose_from_actions`."""
        return sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)

    def surrogate(
        self,
        log_probs: Tensor,
        proposals: Proposals,
        rewards: Tensor,
        edit_rewards: Tensor | None,
        *,
        num_inputs: int | Tensor,
    ) -> Surrogate:
        """See `Estimator.surrogate`."""
        check_rewards(proposals, rewards, edit_rewards)
        baseline = self.baseline  # Eq. (9), b
        return baseline_surrogate(log_probs, proposals, rewards, baseline, num_inputs=num_inputs)

    def update(self, mean_reward: float) -> None:
        """See `StatefulEstimator.update`."""
        self.baseline = next_moving_average(self.baseline, mean_reward, decay=self.decay)

    def state_dict(self) -> dict[str, Any]:
        return {"baseline": self.baseline}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises a ValueError if `state` is not one that `state_dict` returned."""
        if set(state) != {"baseline"}:
            raise ValueError(f"the state of a moving average holds 'baseline' alone, got {sorted(state)}")
        self.baseline = float(state["baseline"])
