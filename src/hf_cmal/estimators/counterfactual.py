"""Counterfactual baselines of individual and compositional agents (CMAL Secs. 4.4 and 4.5, Eqs. (10)-(18)).

An agent's baseline is what the team would have earned on average had it chosen another word while the others
kept theirs, Eq. (13); and likewise for pairs of neighbours, Eq. (15). Both are unbiased for every top_k,
because the words compared are chosen without a look at the agent's own action: that one is not added to them.
No sentence is written out here; the reward scores the edits.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hf_cmal.estimators.base import Surrogate, baseline_surrogate, check_rewards, sample_proposals
from hf_cmal.sampling.proposals import OTHER, Edits, Proposals
from hf_cmal.sampling.sample import sample_actions


def individual_counterfactuals(log_probs: Tensor, *, top_k: int) -> tuple[Tensor, Tensor]:
    """The most probable words of each agent, the set T_a of CMAL Eq. (13).

    Args:
        log_probs: [B,N,V], -inf for suppressed words.
        top_k: at least 1; more than V words are V.

    Returns:
        words long [B,N,K] and their probabilities pi [B,N,K], most probable first, K = min(top_k, V).
        Suppressed words among them have probability 0; in a row of padding where nothing is possible, all
        have.
    """
    top = log_probs.detach().topk(min(top_k, log_probs.shape[-1]), dim=-1)
    return top.indices, torch.where(top.values > -torch.inf, top.values.exp(), 0.0)


def exact_counterfactuals(log_probs: Tensor, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """All words, for the baseline of CMAL Eq. (12): those that can change the reward, and one for all others.

    Args:
        log_probs: [B,N,V].
        candidates: long [B,C], distinct and padded with `OTHER`, of a reward that says `other_is_exact`.

    Returns:
        words long [B,N,C+1] and their probabilities [B,N,C+1]. The last word is `OTHER` with the probability
        of all words that are no candidates; other `OTHER` are padding, of probability 0.
    """
    words = candidates[:, None].expand(-1, log_probs.shape[1], -1)
    probs = log_probs.detach().gather(-1, words.clamp(min=0)).exp().masked_fill(words == OTHER, 0.0)
    others = (1.0 - probs.sum(-1, keepdim=True)).clamp(min=0.0)  # rounded, it could be negative
    words = torch.nn.functional.pad(words, (0, 1), value=OTHER)
    return words, torch.cat([probs, others], dim=-1)  # Eq. (12)


def compositional_counterfactuals(words: Tensor, probs: Tensor, *, top_k: int) -> tuple[Tensor, Tensor]:
    """The most probable pairs of words of each two neighbours, the set T of CMAL Eq. (15).

    A pair among the k most probable consists of two words among the k most probable of their agents (if a
    word had k better ones, so had each pair with it), so the k x k grid is searched.

    Args:
        words: long [B,N,K], of `individual_counterfactuals` with the same `top_k`.
        probs: [B,N,K].
        top_k: more than K * K pairs are K * K; 0 for none.

    Returns:
        pairs long [B,N-1,P,2] and their probabilities [B,N-1,P], most probable first, P = min(top_k, K * K).
    """
    size = words.shape[-1]
    joint = (probs[:, :-1, :, None] * probs[:, 1:, None, :]).flatten(-2)  # Eq. (15), first line
    # A stable sort, so that of equally probable pairs every device takes the same.
    ranked, order = joint.sort(dim=-1, descending=True, stable=True)
    order = order[..., :top_k]
    first = words[:, :-1].gather(-1, order // size)
    second = words[:, 1:].gather(-1, order % size)
    return torch.stack([first, second], dim=-1), ranked[..., :top_k]


def renormalise(probs: Tensor) -> Tensor:
    """Probabilities pi' within a set of words or pairs, CMAL Eqs. (13) and (15); all 0 stays so (padding)."""
    total = probs.sum(-1, keepdim=True)
    return probs / torch.where(total > 0.0, total, 1.0)  # Eq. (13), Eq. (15)


def counterfactual_baseline(probs: Tensor, edit_rewards: Tensor) -> Tensor:
    """The expected reward over counterfactual replacements, CMAL Eq. (13), and for pairs Eq. (15), last
    lines. Over all words instead of the top k they are Eq. (12) and Eq. (14).

    Args:
        probs: [B,N,K], or [B,N-1,P] for pairs.
        edit_rewards: [B,S,N,K], or [B,S,N-1,P].

    Returns:
        [B,S,N], or [B,S,N-1], in units of the reward.
    """
    return torch.einsum("bnk,bsnk->bsn", probs.to(edit_rewards.dtype), edit_rewards)  # Eq. (13), Eq. (15)


def existing_pairs(agent_mask: Tensor) -> Tensor:
    """Which pairs of neighbours are compositional agents: those of two agents. bool [B,N] -> bool [B,N-1].

    Not those of two agents that are alive: that would depend on the action, and bias the gradient.
    """
    return agent_mask[:, :-1] & agent_mask[:, 1:]


def pairs_of_agents(pair_exists: Tensor) -> Tensor:
    """In how many compositional agents each agent is: bool [B,N-1] -> long [B,N] of 0, 1 or 2."""
    left = torch.nn.functional.pad(pair_exists.long(), (1, 0))
    right = torch.nn.functional.pad(pair_exists.long(), (0, 1))
    return left + right


def compositional_baseline(pair_baseline: Tensor, pair_exists: Tensor) -> Tensor:
    """Averages the baselines of the compositional agents that an agent is in, CMAL Eq. (16).

    The paper's two are one at the first and the last agent; the average is over those that exist.

    Args:
        pair_baseline: [B,S,N-1].
        pair_exists: bool [B,N-1].

    Returns:
        [B,S,N]; 0 for an agent without neighbours.
    """
    baseline = torch.where(pair_exists[:, None], pair_baseline, 0.0)
    left = torch.nn.functional.pad(baseline, (1, 0))
    right = torch.nn.functional.pad(baseline, (0, 1))
    return (left + right) / pairs_of_agents(pair_exists)[:, None].clamp(min=1)  # Eq. (16)


def mixed_baseline(
    individual: Tensor, compositional: Tensor, pair_exists: Tensor, *, weight: float
) -> Tensor:
    """Weighs the two baselines, CMAL Eq. (17); an agent without neighbours keeps its individual one.

    Args:
        individual: [B,S,N].
        compositional: [B,S,N].
        pair_exists: bool [B,N-1].
        weight: lambda, of the compositional one.

    Returns:
        [B,S,N].
    """
    mixed = (1.0 - weight) * individual + weight * compositional  # Eq. (17)
    return torch.where((pairs_of_agents(pair_exists) > 0)[:, None], mixed, individual)


@dataclass(frozen=True)
class CounterfactualWeights:
    """Private state: the weight of every edit in its baseline, 0 where it is never scored.

    `individual` [B,N,K] and `compositional` [B,N-1,P] in the order of the edits, `pair_exists` bool [B,N-1].
    """

    individual: Tensor
    compositional: Tensor
    pair_exists: Tensor


def counterfactual_edits(
    words: Tensor, pairs: Tensor, weights: CounterfactualWeights, alive: Tensor
) -> Edits:
    """The edits whose rewards the baselines are made of; those that would not count are masked.

    An agent after the eos has no gradient and needs no baseline. A pair counts if its first agent is alive:
    its second may be the first word after the eos, which speaks once the eos is replaced.

    Args:
        words: long [B,N,K].
        pairs: long [B,N-1,P,2].
        weights: of both.
        alive: bool [B,S,N].

    Returns:
        M = N * K + (N-1) * P edits, those of the words first.
    """
    num_samples, num_agents = alive.shape[1:]
    agents = torch.arange(num_agents, device=words.device)
    position = torch.cat(
        [agents.repeat_interleave(words.shape[-1]), agents[:-1].repeat_interleave(pairs.shape[-2])]
    )
    width = torch.ones_like(position)
    width[num_agents * words.shape[-1] :] = 2
    all_words = torch.cat([torch.stack([words, words], dim=-1).flatten(1, 2), pairs.flatten(1, 2)], dim=1)
    counts = torch.cat([weights.individual.flatten(1), weights.compositional.flatten(1)], dim=1) > 0.0
    shape = (len(words), num_samples, len(position))
    return Edits(
        position=position.expand(shape),
        words=all_words[:, None].expand(*shape, 2),
        width=width.expand(shape),
        mask=counts[:, None] & alive[..., position],
    )


def split_edit_rewards(edit_rewards: Tensor, weights: CounterfactualWeights) -> tuple[Tensor, Tensor]:
    """The rewards [B,S,M] of `counterfactual_edits` as [B,S,N,K] (of words) and [B,S,N-1,P] (of pairs)."""
    word_shape, pair_shape = weights.individual.shape[1:], weights.compositional.shape[1:]
    of_words, of_pairs = edit_rewards.tensor_split([word_shape.numel()], dim=-1)
    rows = edit_rewards.shape[:2]
    return of_words.reshape(*rows, *word_shape), of_pairs.reshape(*rows, *pair_shape)


class Counterfactual:
    """Counterfactuals-critical multi-agent learning: CMAL Eq. (11), or with compositional agents Eq. (18).

    An input costs at most S(1 + Nk + (N-1)k) rewards, and S(1 + Nk) without compositional agents. With
    `exact` it costs S(1 + N(C+1)), where C words can change the reward.

    Args:
        top_k: the number of counterfactual words of an agent, and of pairs of words of a compositional agent.
            The paper's are 2 (captions) and 1 (translation). At least V (V * V for pairs) is exact. None is
            2.
        compositional_weight: lambda in [0, 1]; 0 is Eq. (11), the paper's 0.5 is Eq. (18).
        exact: the baseline of an agent is Eq. (12), over all words: the candidates of the reward, and `OTHER`
            for the rest.

    Raises:
        ValueError: an option is out of range; `exact` with `top_k` or compositional agents; in `propose`,
            `exact` without candidates.
    """

    def __init__(
        self, *, top_k: int | None = None, compositional_weight: float = 0.0, exact: bool = False
    ) -> None:
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {top_k}")
        if not 0.0 <= compositional_weight <= 1.0:
            raise ValueError(f"compositional_weight must be in [0, 1], got {compositional_weight}")
        if exact and top_k is not None:
            raise ValueError(f"exact sums over all words, got top_k={top_k} too; leave one of them out")
        if exact and compositional_weight > 0.0:
            raise ValueError(
                f"exact is a baseline of single agents, got compositional_weight={compositional_weight}; "
                "leave it 0, or leave exact out"
            )
        self.top_k = 2 if top_k is None else top_k
        self.compositional_weight = compositional_weight
        self.exact = exact

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
        words, probs = self._words(log_probs, candidates)
        pair_exists = existing_pairs(agent_mask)
        num_pairs = self.top_k if self.compositional_weight > 0.0 else 0
        pairs, pair_probs = compositional_counterfactuals(words, probs, top_k=num_pairs)
        needs_individual = agent_mask
        if self.compositional_weight == 1.0:
            needs_individual = agent_mask & (pairs_of_agents(pair_exists) == 0)
        weights = CounterfactualWeights(
            individual=torch.where(needs_individual[..., None], renormalise(probs), 0.0),
            compositional=torch.where(pair_exists[..., None], renormalise(pair_probs), 0.0),
            pair_exists=pair_exists,
        )
        return replace(
            samples, edits=counterfactual_edits(words, pairs, weights, samples.alive), state=weights
        )

    def _words(self, log_probs: Tensor, candidates: Tensor | None) -> tuple[Tensor, Tensor]:
        if not self.exact:
            return individual_counterfactuals(log_probs, top_k=self.top_k)
        if candidates is None:
            raise ValueError(
                "exact=True needs the candidates of a reward that says other_is_exact, as GLEU and BLEU do; "
                "with other rewards leave exact out and set top_k"
            )
        return exact_counterfactuals(log_probs, candidates)

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
        assert edit_rewards is not None  # checked: these proposals hold edits
        weights: CounterfactualWeights = proposals.state
        word_rewards, pair_rewards = split_edit_rewards(edit_rewards, weights)
        individual = counterfactual_baseline(weights.individual, word_rewards)
        pair_baseline = counterfactual_baseline(weights.compositional, pair_rewards)
        compositional = compositional_baseline(pair_baseline, weights.pair_exists)
        baseline = mixed_baseline(
            individual, compositional, weights.pair_exists, weight=self.compositional_weight
        )
        return baseline_surrogate(log_probs, proposals, rewards, baseline, num_inputs=num_inputs)  # Eq. (18)
