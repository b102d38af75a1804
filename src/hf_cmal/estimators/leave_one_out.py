"""Leave-one-out baseline (RLOO): the mean reward of the input's other samples.

Kool et al. 2019, "Buy 4 REINFORCE samples, get a baseline for free!". It costs no reward beyond those of the
samples; all agents of a sample share it, so which of them earned the reward is left open. Not of the paper.
"""

import torch
from torch import Tensor

from hf_cmal.estimators.base import Surrogate, baseline_surrogate, check_rewards, sample_proposals
from hf_cmal.sampling.proposals import Proposals
from hf_cmal.sampling.sample import sample_actions


def leave_one_out_baseline(rewards: Tensor) -> Tensor:
    """The mean reward of the others: [B,S] -> [B,S]; S is at least 2.

    Example:
        >>> leave_one_out_baseline(torch.tensor([[1.0, 2.0, 6.0]]))
        tensor([[4.0000, 3.5000, 1.5000]])
    """
    return (rewards.sum(-1, keepdim=True) - rewards) / (rewards.shape[-1] - 1)


class LeaveOneOut:
    """Subtracts the mean reward of the other samples of the input, CMAL Eq. (9) with that b.

    Raises:
        ValueError: in `propose`, of fewer than 2 samples.
    """

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
        if actions.shape[1] < 2:
            raise ValueError(
                f"leave_one_out compares samples, got num_samples={actions.shape[1]}; give 2 or more"
            )
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
        baseline = leave_one_out_baseline(rewards)
        return baseline_surrogate(log_probs, proposals, rewards, baseline, num_inputs=num_inputs)  # Eq. (9)
