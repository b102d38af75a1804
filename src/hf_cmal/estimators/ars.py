"""AR and ARS: the noise of each agent is swapped while the others keep their true actions (Yin et al. 2019).

Every pseudo action is then an edit of the sampled joint action, and an agent learns what its own word was
worth. Agents after the first eos change nothing and get no gradient. The mathematics is in arsm.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hf_cmal.estimators.ars_draw import draw_changing_swaps
from hf_cmal.estimators.arsm import ar_gradient, centre, changing_swaps
from hf_cmal.estimators.arsm_samples import (
    NoiseSource,
    Policy,
    blocks,
    by_sentence,
    drawn_noise,
    given_noise,
    gradient_surrogate,
    of_alive,
    pack_edits,
)
from hf_cmal.estimators.base import Surrogate, check_rewards, sample_proposals
from hf_cmal.sampling.proposals import Proposals
from hf_cmal.sampling.sample import sample_actions


class Ar:
    """AR: g_c = R (1 - C pi_c). Unbiased, of more variance than REINFORCE, and here to be compared with.

    It asks for the rewards of the samples alone, and holds their noise: B * S * N * V numbers.
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
        policy = Policy.of(log_probs, agent_mask)
        noise = drawn_noise(policy, actions, generator=generator)
        return self._propose(log_probs, policy, agent_mask, noise, num_samples, eos_token_id)

    def propose_from_noise(
        self, log_probs: Tensor, agent_mask: Tensor, noise: Tensor, *, eos_token_id: int | None
    ) -> Proposals:
        """As `propose`, for given noise [B,S,N,V]: positive, of sum 1 over the possible words."""
        policy, source = Policy.of(log_probs, agent_mask), given_noise(noise)
        return self._propose(log_probs, policy, agent_mask, source, noise.shape[1], eos_token_id)

    def _propose(
        self,
        log_probs: Tensor,
        policy: Policy,
        agent_mask: Tensor,
        source: NoiseSource,
        num_samples: int,
        eos_token_id: int | None,
    ) -> Proposals:
        held = policy.probs.new_empty(num_samples, *policy.probs.shape)
        true = torch.empty(held.shape[:2], dtype=torch.long, device=held.device)
        for sample, rows, noise, race in policy.races(num_samples, source):
            held[sample, rows] = noise
            true[sample, rows] = race.true
        actions = by_sentence(true, agent_mask)
        samples = sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)
        return replace(samples, state=held)

    def surrogate(
        self,
        log_probs: Tensor,
        proposals: Proposals,
        rewards: Tensor,
        edit_rewards: Tensor | None,
        *,
        num_inputs: int | Tensor,
    ) -> Surrogate:
        """See `Estimator.surrogate`. The advantages are None: all words have a gradient."""
        check_rewards(proposals, rewards, edit_rewards)
        policy = Policy.of(log_probs, proposals.alive.any(1))
        earned = torch.where(proposals.alive, rewards[..., None], 0.0).to(policy.probs.dtype)
        gradient = torch.zeros_like(policy.probs)
        for noise, of_sample in zip(proposals.state, earned.unbind(1), strict=True):
            gradient += ar_gradient(noise, policy.possible, of_sample.flatten())
        return gradient_surrogate(log_probs, gradient, proposals, num_inputs=num_inputs)


@dataclass(frozen=True)
class WeightedSwaps:
    """Private state of ARS: swap i adds `weight` times the difference that edit `edit` (of the flat [B,S,M])
    makes to category `category` of row `row`. [I] each.
    """

    row: Tensor
    category: Tensor
    edit: Tensor
    weight: Tensor


def random_references(possible: Tensor, number: int, *, generator: torch.Generator | None = None) -> Tensor:
    """Reference words of ARS: any possible word of the agent, all alike and whatever the noise.

    Args:
        possible: bool [Q,V].
        number: K, drawn with replacement.
        generator: on the device of `possible`.

    Returns:
        long [Q,K].
    """
    rank_of_words = possible.cumsum(-1, dtype=torch.int32)
    shape = (len(possible), number)
    uniform = torch.rand(shape, generator=generator, dtype=torch.float64, device=possible.device)
    rank = (uniform * rank_of_words[:, -1:]).to(torch.int32) + 1
    # clamped for padding where nothing is possible
    return torch.searchsorted(rank_of_words, rank).clamp_(max=possible.shape[-1] - 1)


class Ars:
    """ARS: g_c = [R(z^{c<->j}) - mean_m R(z^{m<->j})] (1 - C pi_j), for reference words j drawn at random.

    An agent asks for about one or two rewards per sample and reference whatever the vocabulary, and for fewer
    where the policy is certain. Of the noise only what counts is drawn and held.

    Args:
        num_references: R, the words j of each agent and sample; the mean over them is taken.

    Raises:
        ValueError: `num_references` is below 1.
    """

    def __init__(self, *, num_references: int = 1) -> None:
        if num_references < 1:
            raise ValueError(f"num_references must be at least 1, got {num_references}")
        self.num_references = num_references

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
        policy = Policy.of(log_probs, agent_mask)
        said = actions.transpose(1, 2).flatten(0, 1)
        said = said.repeat_interleave(self.num_references, dim=1)  # [B*N,S*R]
        found = []
        for rows in blocks(policy.probs):
            probs, possible = policy.probs[rows], policy.possible[rows]
            references = random_references(possible, said.shape[1], generator=generator)
            swaps = draw_changing_swaps(probs, possible, said[rows], references, generator=generator)
            sample = swaps.column // self.num_references
            weight = swaps.weight / self.num_references
            found.append((sample, swaps.row + rows.start, swaps.category, swaps.word, weight))
        return self._proposals(log_probs, agent_mask, actions, found, eos_token_id)

    def propose_from_noise(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        noise: Tensor,
        references: Tensor,
        *,
        eos_token_id: int | None,
    ) -> Proposals:
        """As `propose`, for given noise [B,S,N,V], positive and of sum 1 over the possible words, and given
        possible reference words long [B,S,N,R], which must not depend on the noise.
        """
        policy = Policy.of(log_probs, agent_mask)
        references = references.transpose(0, 1).flatten(1, 2)  # [S,B*N,R]
        true = torch.empty(references.shape[:2], dtype=torch.long, device=references.device)
        found = []
        for sample, rows, one, race in policy.races(noise.shape[1], given_noise(noise)):
            true[sample, rows] = race.true
            for reference in references[sample, rows].unbind(-1):
                row, category, word = changing_swaps(
                    race, one, policy.probs[rows], policy.possible[rows], reference
                )
                of_reference = one.gather(-1, reference[:, None])[:, 0]
                count = policy.possible[rows].sum(-1)
                weight = (1.0 - count * of_reference) / references.shape[-1]
                found.append((torch.full_like(row, sample), row + rows.start, category, word, weight[row]))
        return self._proposals(log_probs, agent_mask, by_sentence(true, agent_mask), found, eos_token_id)

    def _proposals(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        actions: Tensor,
        found: Sequence[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]],
        eos_token_id: int | None,
    ) -> Proposals:
        """Of swaps found: their samples, rows, categories, words said then, and weights."""
        samples = sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)
        sample, row, category, word, weight = (torch.cat(part) for part in zip(*found, strict=True))
        sample, row, category, word, weight = of_alive(samples.alive, sample, row, category, word, weight)
        edits, edit = pack_edits(sample, row, word, samples.alive, vocab_size=log_probs.shape[-1])
        return replace(samples, edits=edits, state=WeightedSwaps(row, category, edit, weight))

    def surrogate(
        self,
        log_probs: Tensor,
        proposals: Proposals,
        rewards: Tensor,
        edit_rewards: Tensor | None,
        *,
        num_inputs: int | Tensor,
    ) -> Surrogate:
        """See `Estimator.surrogate`. The advantages are None: all words have a gradient."""
        check_rewards(proposals, rewards, edit_rewards)
        assert edit_rewards is not None  # checked: these proposals hold edits
        swaps: WeightedSwaps = proposals.state
        differences = (edit_rewards - rewards[..., None]).flatten()[swaps.edit] * swaps.weight
        possible = log_probs.detach().flatten(0, 1) > -torch.inf
        gradient = torch.zeros_like(possible, dtype=log_probs.dtype)
        gradient.index_put_((swaps.row, swaps.category), differences.to(gradient.dtype), accumulate=True)
        for rows in blocks(gradient):
            gradient[rows] = centre(gradient[rows], possible[rows])
        return gradient_surrogate(log_probs, gradient, proposals, num_inputs=num_inputs)
