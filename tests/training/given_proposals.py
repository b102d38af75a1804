"""An estimator with given joint actions, for tests that compare two ways of making the same step."""

from typing import Any

import torch
from torch import Tensor

from hf_cmal.estimators.counterfactual import Counterfactual
from hf_cmal.sampling.proposals import Proposals


class GivenProposals:
    """`Counterfactual` on fixed actions: sample s is the s-th likeliest word of every agent.

    A row's actions depend on its own log-probs alone, whatever else is in the batch.
    """

    def __init__(self, **options: Any) -> None:
        self.counterfactual = Counterfactual(**options)
        self.surrogate = self.counterfactual.surrogate

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
        actions = log_probs.topk(num_samples, dim=-1).indices.transpose(1, 2)
        return self.counterfactual.propose_from_actions(
            log_probs, agent_mask, actions, eos_token_id=eos_token_id, candidates=candidates
        )
