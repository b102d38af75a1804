"""ARSM of each agent: all swaps of its noise while the others keep their true actions (Yin et al. 2019).

From four agents on this has far less variance than swapping in all agents at once (arsm_joint.py). Agents
after the first eos change nothing and get no gradient. The mathematics is in arsm.py.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hf_cmal.estimators.arsm import MergedSwaps, run_race
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

MOST_WORDS = 1_000  # rewards of one agent and sample


@dataclass(frozen=True)
class KeptWords:
    """Private state of ARSM: the noise [S,B*N,V] and the order of the words by probability [B*N,V]; and of
    each kept word its sample, its row, the word, its edit (of the flat [B,S,M]) and how likely it was kept,
    [I] each.
    """

    noise: Tensor
    order: Tensor
    sample: Tensor
    row: Tensor
    word: Tensor
    edit: Tensor
    probability: Tensor


def keep_probabilities(sizes: Tensor, budget: float | None) -> Tensor:
    """How likely each word is kept: in proportion to its size, at most `budget` words on average.

    Args:
        sizes: [Q,V], not negative; words of size 0 are never kept.
        budget: None keeps all others.

    Returns:
        [Q,V] in [0, 1].

    Example:

        >>> keep_probabilities(torch.tensor([[1.0, 3.0, 0.0]]), 1.0).tolist()
        [[0.25, 0.75, 0.0]]
    """
    if budget is None:
        return (sizes > 0.0).to(sizes.dtype)
    total = sizes.sum(-1, keepdim=True)
    return (sizes * (budget / torch.where(total > 0.0, total, 1.0))).clamp(max=1.0)


class Arsm:
    """ARSM: the mean of ARS over all reference words. It asks for a reward of every word that could have won.

    Those are up to V per agent and sample where the policy is flat, and at a vocabulary of 10,000 hundreds
    unless it is nearly certain. With a budget, words are kept at random in proportion to how much they can
    move the gradient, and divided by the probability of that (Horvitz-Thompson): as unbiased, of more
    variance. The noise of all samples is held: B * S * N * V numbers.

    Args:
        budget: rewards per agent and sample, at most on average; None for all.

    Raises:
        ValueError: `budget` is not positive; in `propose`, more than `MOST_WORDS` words of one agent.
    """

    def __init__(self, *, budget: float | None = None) -> None:
        if budget is not None and not budget > 0:
            raise ValueError(f"budget must be positive, or None for all words, got {budget}")
        self.budget = budget

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
        return self._propose(log_probs, policy, agent_mask, noise, num_samples, eos_token_id, generator)

    def propose_from_noise(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        noise: Tensor,
        *,
        eos_token_id: int | None,
        generator: torch.Generator | None = None,
    ) -> Proposals:
        """As `propose`, for given noise [B,S,N,V]: positive, of sum 1 over the possible words. The generator
        decides what is kept.
        """
        policy, source = Policy.of(log_probs, agent_mask), given_noise(noise)
        return self._propose(log_probs, policy, agent_mask, source, noise.shape[1], eos_token_id, generator)

    def _propose(
        self,
        log_probs: Tensor,
        policy: Policy,
        agent_mask: Tensor,
        source: NoiseSource,
        num_samples: int,
        eos_token_id: int | None,
        generator: torch.Generator | None,
    ) -> Proposals:
        probs, possible = policy.probs, policy.possible
        order = probs.argsort(-1, descending=True)
        held = probs.new_empty(num_samples, *probs.shape)
        true = torch.empty(held.shape[:2], dtype=torch.long, device=held.device)
        found = []
        for index, rows, noise, race in policy.races(num_samples, source):
            held[index, rows] = noise
            true[index, rows] = race.true
            sizes = MergedSwaps(race, noise, probs[rows], possible[rows], order[rows]).sizes()
            probability = keep_probabilities(sizes, self.budget)
            row, word = probability.nonzero(as_tuple=True)
            probability = probability[row, word]
            uniform = torch.rand(
                probability.shape, generator=generator, dtype=probs.dtype, device=probs.device
            )
            kept = uniform < probability
            row, word, probability = row[kept], word[kept], probability[kept]
            self._check_number(row)
            found.append((torch.full_like(row, index), row + rows.start, word, probability))
        actions = by_sentence(true, agent_mask)
        samples = sample_proposals(log_probs, agent_mask, actions, eos_token_id=eos_token_id)
        sample, row, word, probability = (torch.cat(part) for part in zip(*found, strict=True))
        sample, row, word, probability = of_alive(samples.alive, sample, row, word, probability)
        edits, edit = pack_edits(sample, row, word, samples.alive, vocab_size=log_probs.shape[-1])
        state = KeptWords(held, order, sample, row, word, edit, probability)
        return replace(samples, edits=edits, state=state)

    def _check_number(self, row: Tensor) -> None:
        most = int(row.bincount(minlength=1).max())
        if most > MOST_WORDS:
            raise ValueError(
                f"ARSM asks for {most} rewards of one agent, more than {MOST_WORDS}, because the policy is "
                f"unsure among many words; set budget (it is {self.budget}) to the number that an agent may "
                "ask for, such as 8, or take the estimator 'ars'"
            )

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
        kept: KeptWords = proposals.state
        policy = Policy.of(log_probs, proposals.alive.any(1))
        values = (edit_rewards - rewards[..., None]).flatten()[kept.edit].to(policy.probs.dtype)
        values = values / kept.probability
        gradient = torch.zeros_like(policy.probs)
        for sample, held in enumerate(kept.noise):
            of_sample = kept.sample == sample
            differences = torch.zeros_like(policy.probs)
            differences[kept.row[of_sample], kept.word[of_sample]] = values[of_sample]
            for rows in blocks(policy.probs):
                noise, probs = held[rows], policy.probs[rows]
                swaps = MergedSwaps(
                    run_race(noise, probs), noise, probs, policy.possible[rows], kept.order[rows]
                )
                gradient[rows] += swaps.gradient(differences[rows])
        return gradient_surrogate(log_probs, gradient, proposals, num_inputs=num_inputs)
