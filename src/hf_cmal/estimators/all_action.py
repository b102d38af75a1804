"""All-action: an agent learns from every word it could have said, not only from the one it did.

The others' words are sampled, the agent's own are summed out: sum_w R(w, the others) grad pi(w). It is the
policy gradient of CMAL Eq. (7) with its inner expectation taken exactly, and has the least variance of all
estimators here (Mean Actor-Critic, Allen et al. 2017, with rewards in place of a critic). The sum runs over a
set of words T that is chosen without a look at the agent's own action; a sampled word outside T counts as in
REINFORCE, with a baseline. That is unbiased for every T. No sentence is written out here; the reward scores
the edits.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hf_cmal.estimators.base import Surrogate, baseline_surrogate, check_rewards, sample_proposals
from hf_cmal.estimators.counterfactual import (
    counterfactual_baseline,
    individual_counterfactuals,
    renormalise,
)
from hf_cmal.sampling.proposals import OTHER, Edits, Proposals
from hf_cmal.sampling.sample import sample_actions

LIKELIEST = 8  # words of an agent that are summed where the reward names no candidates


@dataclass(frozen=True)
class ActionSets:
    """The words T of every agent, and whether they stand for all words.

    Attributes:
        words: long [B,N,K]; `OTHER` is padding, but for the last of each agent where `complete`.
        complete: the last word is `OTHER` and stands for all words that are not among the others.
    """

    words: Tensor
    complete: bool


def all_action_sum(probs: Tensor, values: Tensor) -> Tensor:
    """sum_w pi(w) (R(w) - b), whose gradient is the all-action gradient of one agent, over its set T.

    Args:
        probs: [B,N,K], with their gradient.
        values: [B,S,N,K], R - b, without.

    Returns:
        [B,S,N].
    """
    return torch.einsum("bnk,bsnk->bsn", probs, values.to(probs.dtype))


def word_edits(words: Tensor, alive: Tensor, wanted: Tensor) -> Edits:
    """Each agent alive says each wanted word: words and wanted [B,N,K], alive [B,S,N] -> M = N * K edits."""
    num_samples, num_agents = alive.shape[1:]
    position = torch.arange(num_agents, device=words.device).repeat_interleave(words.shape[-1])
    shape = (len(words), num_samples, len(position))
    flat = words.flatten(1)[:, None].expand(shape)
    return Edits(
        position=position.expand(shape),
        words=flat[..., None].expand(*shape, 2),
        width=torch.ones_like(position).expand(shape),
        mask=wanted.flatten(1)[:, None] & alive[..., position],
    )


class AllAction:
    """Sums over the words of each agent: all of them where the reward allows it, else the likeliest.

    With candidates, of a reward that says `other_is_exact`, the sum is complete: it runs over them and one
    word that stands for all others. Without, it runs over the agent's likeliest words, and a sampled word
    outside them counts by itself. Both are unbiased.

    Args:
        top_k: how many of the likeliest words are summed, candidates or not; None: all by the candidates, and
            8 where there are none.

    Raises:
        ValueError: `top_k` is below 1.
    """

    def __init__(self, *, top_k: int | None = None) -> None:
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k must be at least 1, or None, got {top_k}")
        self.top_k = top_k

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
        """See `Estimator.propose`; only candidates of a reward that says `other_is_exact`."""
        actions = sample_actions(log_probs, num_samples, generator=generator)
        return self.propose_from_actions(
            log_probs, agent_mask, actions, eos_token_id=eos_token_id, candidates=candidates
        )

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
        sets = self._sets(log_probs, candidates)
        wanted = sets.words != OTHER
        if sets.complete:
            wanted[..., -1] = True
        return replace(samples, edits=word_edits(sets.words, samples.alive, wanted), state=sets)

    def _sets(self, log_probs: Tensor, candidates: Tensor | None) -> ActionSets:
        if self.top_k is not None or candidates is None:
            top_k = LIKELIEST if self.top_k is None else self.top_k
            words, probs = individual_counterfactuals(log_probs, top_k=top_k)
            return ActionSets(torch.where(probs > 0.0, words, OTHER), complete=False)
        words = torch.nn.functional.pad(candidates, (0, 1), value=OTHER)
        return ActionSets(words[:, None].expand(-1, log_probs.shape[1], -1), complete=True)

    def surrogate(
        self,
        log_probs: Tensor,
        proposals: Proposals,
        rewards: Tensor,
        edit_rewards: Tensor | None,
        *,
        num_inputs: int | Tensor,
    ) -> Surrogate:
        """See `Estimator.surrogate`. The advantages are None: agents learn from more than sampled words."""
        check_rewards(proposals, rewards, edit_rewards)
        assert edit_rewards is not None  # checked: these proposals hold edits
        sets: ActionSets = proposals.state
        values = edit_rewards.reshape(*proposals.alive.shape, -1)
        known = sets.words != OTHER
        chosen = log_probs.gather(-1, sets.words.clamp(min=0))
        # masked before the exponential: the gradient of a log-prob of -inf is nan
        probs = torch.where(known, chosen.masked_fill(~known, 0.0).exp(), 0.0)
        if sets.complete:
            baseline = values[..., -1]  # any other word's: all probabilities sum to 1, so no baseline matters
        else:
            baseline = counterfactual_baseline(renormalise(probs.detach()), values)
        exact = all_action_sum(probs, torch.where(known[:, None], values - baseline[..., None], 0.0))
        loss = -exact.masked_fill(~proposals.alive, 0.0).sum() / (num_inputs * proposals.num_samples)
        stats = {"summed_probability": _mean(probs.detach().sum(-1)[:, None], proposals.alive)}
        if not sets.complete:
            in_set = (proposals.actions[..., None] == sets.words[:, None]).any(-1)
            rest = replace(proposals, alive=proposals.alive & ~in_set)
            loss = loss + baseline_surrogate(log_probs, rest, rewards, baseline, num_inputs=num_inputs).loss
        return Surrogate(loss, None, stats)


def _mean(values: Tensor, alive: Tensor) -> Tensor:
    return torch.where(alive, values, 0.0).sum() / alive.sum().clamp(min=1)
