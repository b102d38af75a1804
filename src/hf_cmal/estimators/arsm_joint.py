"""ARSM of all agents at once: the same two words swap their noise in every agent (Yin et al. 2019, App. C).

The pseudo joint actions are auxiliary rows of the proposals, one for each two words, so this is for small
vocabularies: to compare the local swaps of arsm_local.py with. Agents after the first eos keep their
gradient: a swap may bring them back, and masking them would bias it by 7-8 %.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hf_cmal.estimators.arsm import centre, draw_noise, logit_gradient_loss, run_race, swapped_actions
from hf_cmal.estimators.base import Surrogate, check_rewards, sample_proposals
from hf_cmal.sampling.proposals import Proposals
from hf_cmal.sampling.sample import sample_actions

MOST_ROWS = 10_000  # pseudo joint actions of one sample


@dataclass(frozen=True)
class JointSwaps:
    """Private state: the noise [B,S,N,V], the pairs c < j of the rows long [2,P], and whose gradient counts,
    bool [B,S,N].
    """

    noise: Tensor
    pairs: Tensor
    counts: Tensor


class JointArsm:
    """ARSM: g_{k,c} = sum_j [f(z^{c<->j}) - mean_m f(z^{m<->j})] (1/V - pi_{k,j}), z of all agents k.

    A sample costs 1 + V (V - 1) / 2 rewards. A suppressed word is a category as all others, that never wins.
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
        """See `Estimator.propose`.

        Raises:
            ValueError: of more pseudo joint actions than `MOST_ROWS` per sample.
        """
        check_rows(log_probs.shape[-1])
        actions = sample_actions(log_probs, num_samples, generator=generator)
        probs = log_probs.detach().to(torch.promote_types(log_probs.dtype, torch.float32)).exp()
        probs = probs[:, None].expand(-1, num_samples, -1, -1).flatten(0, 2)
        every = torch.ones_like(probs, dtype=torch.bool)
        noise = draw_noise(actions.flatten(), probs, every, generator=generator)
        noise = noise.reshape(*actions.shape, -1)
        return self.propose_from_noise(log_probs, agent_mask, noise, eos_token_id=eos_token_id)

    def propose_from_noise(
        self, log_probs: Tensor, agent_mask: Tensor, noise: Tensor, *, eos_token_id: int | None
    ) -> Proposals:
        """As `propose`, for given noise [B,S,N,V]: positive, of sum 1 over all words, suppressed or not."""
        num_samples, num_agents, vocab_size = noise.shape[1:]
        check_rows(vocab_size)
        pairs = torch.triu_indices(vocab_size, vocab_size, offset=1, device=noise.device)
        probs = log_probs.detach().to(noise.dtype).exp()[:, None].expand(noise.shape).flatten(0, 2)
        flat = noise.flatten(0, 2)
        race = run_race(flat, probs)
        one, other = pairs[:, None].expand(-1, len(flat), -1)
        pseudo = swapped_actions(race, flat, probs, one, other)  # [B*S*N,P]
        pseudo = pseudo.reshape(-1, num_samples, num_agents, pairs.shape[1]).transpose(2, 3).flatten(1, 2)
        true = race.true.reshape(-1, num_samples, num_agents)
        samples = sample_proposals(log_probs, agent_mask, true, eos_token_id=eos_token_id)
        counts = agent_mask[:, None].expand_as(samples.alive)
        return replace(samples, actions=torch.cat([true, pseudo], 1), state=JointSwaps(noise, pairs, counts))

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
        swaps: JointSwaps = proposals.state
        num_samples, vocab_size = proposals.num_samples, log_probs.shape[-1]
        true, pseudo = rewards.to(swaps.noise.dtype).tensor_split([num_samples], dim=1)
        above = pseudo.reshape(*true.shape, -1) - true[..., None]
        differences = above.new_zeros(*true.shape, vocab_size, vocab_size)  # of swapping c and j, [B,S,V,V]
        differences[..., swaps.pairs[0], swaps.pairs[1]] = above
        differences = differences + differences.transpose(-1, -2)
        weights = torch.where(swaps.counts[..., None], 1.0 / vocab_size - swaps.noise, 0.0)
        gradient = torch.einsum("bscj,bsnj->bnc", differences, weights)
        gradient = centre(gradient, torch.ones_like(gradient, dtype=torch.bool))
        loss = logit_gradient_loss(log_probs, gradient, num_inputs=num_inputs)
        return Surrogate(loss / num_samples, None, {})


def check_rows(vocab_size: int) -> None:
    """Raises a ValueError that names the number of rows if there are more than `MOST_ROWS`."""
    rows = vocab_size * (vocab_size - 1) // 2
    if rows > MOST_ROWS:
        raise ValueError(
            f"joint ARSM swaps each two of {vocab_size} words and asks for {rows} rewards of one sample, "
            f"more than {MOST_ROWS}; take the estimator 'ars' or 'arsm', which swap in one agent at a time"
        )
