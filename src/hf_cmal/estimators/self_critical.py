"""Self-critical baseline (CMAL Table III: "SC"): the reward of the greedy joint action, Eq. (9).

The greedy joint action is the one auxiliary row of the proposals. One baseline serves all agents of an input;
which agent earned the reward is left open, see counterfactual.py.
"""

from dataclasses import replace

import torch
from torch import Tensor

from hf_cmal.estimators.base import Surrogate, baseline_surrogate, check_rewards, sample_proposals
from hf_cmal.sampling.proposals import Proposals
from hf_cmal.sampling.sample import greedy_actions, sample_actions


class SelfCritical:
    """Subtracts the reward of what the model would say now, CMAL Eq. (9) with b = R(argmax pi)."""

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
        samples = sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)
        return replace(samples, actions=torch.cat([actions, greedy_actions(log_probs)], dim=1))

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
        baseline = rewards[:, proposals.num_samples :]  # [B,1]
        return baseline_surrogate(log_probs, proposals, rewards, baseline, num_inputs=num_inputs)  # Eq. (9)
