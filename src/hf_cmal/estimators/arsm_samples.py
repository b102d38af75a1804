"""What AR, ARS and ARSM of single agents share: noise sample by sample, swaps as edits, and a surrogate.

Here an agent of an input is a row, b * N + n. The noise is as large as the log-probs, and of every sample; it
is made and used in blocks of rows, which fit in a processor's cache and are let go of.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from hf_cmal.estimators.arsm import Race, draw_noise, logit_gradient_loss, run_race
from hf_cmal.estimators.base import Surrogate
from hf_cmal.sampling.proposals import Edits, Proposals

BLOCK = 2**18  # numbers of a block of rows


def blocks(rows: Tensor) -> Iterator[slice]:
    """Splits [Q,V] into blocks of rows."""
    size = max(1, BLOCK // rows.shape[1])
    for start in range(0, len(rows), size):
        yield slice(start, min(start + size, len(rows)))


NoiseSource = Callable[[int, slice], Tensor]
"""Gives the noise [rows,V] of a sample and a block of rows."""


@dataclass(frozen=True)
class Policy:
    """Log-probs [B,N,V] as rows: probabilities [B*N,V], and which words are possible, bool [B*N,V]. None
    is in rows of padding, which may hold anything.
    """

    probs: Tensor
    possible: Tensor

    @classmethod
    def of(cls, log_probs: Tensor, agent_mask: Tensor) -> "Policy":
        flat, padding = log_probs.detach().flatten(0, 1), ~agent_mask.flatten()
        dtype = torch.promote_types(log_probs.dtype, torch.float32)
        probs, possible = flat.to(dtype).exp(), flat > -torch.inf
        probs[padding], possible[padding] = 0.0, False
        return cls(probs, possible)

    def races(self, num_samples: int, source: NoiseSource) -> Iterator[tuple[int, slice, Tensor, Race]]:
        """Sample, rows, their noise, and the race that it makes."""
        for sample in range(num_samples):
            for rows in blocks(self.probs):
                noise = source(sample, rows)
                yield sample, rows, noise, run_race(noise, self.probs[rows])


def drawn_noise(policy: Policy, actions: Tensor, *, generator: torch.Generator | None) -> NoiseSource:
    """Noise drawn anew for given joint actions [B,S,N], that were sampled from the policy."""

    def source(sample: int, rows: slice) -> Tensor:
        said = actions[:, sample].flatten()[rows]
        return draw_noise(said, policy.probs[rows], policy.possible[rows], generator=generator)

    return source


def given_noise(noise: Tensor) -> NoiseSource:
    """Slices of noise [B,S,N,V]."""

    def source(sample: int, rows: slice) -> Tensor:
        return noise[:, sample].flatten(0, 1)[rows]

    return source


def by_sentence(actions: Tensor, agent_mask: Tensor) -> Tensor:
    """Actions [S,B*N] -> [B,S,N]."""
    return actions.reshape(-1, *agent_mask.shape).transpose(0, 1).contiguous()


def of_alive(alive: Tensor, sample: Tensor, row: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """The entries [I] whose agents are alive, [B,S,N]: their samples, their rows, and all else of them."""
    num_agents = alive.shape[-1]
    kept = alive[row // num_agents, sample, row % num_agents]
    return sample[kept], row[kept], *(other[kept] for other in others)


def pack_edits(
    sample: Tensor, row: Tensor, word: Tensor, alive: Tensor, *, vocab_size: int
) -> tuple[Edits, Tensor]:
    """Edits of width 1, each once, in as few slots per sample as the fullest sample needs.

    Args:
        sample: long [I].
        row: long [I].
        word: long [I].
        alive: [B,S,N], for its shape.
        vocab_size: V.

    Returns:
        the edits, of at least one slot, and where each of the I went: long [I], index of the flat [B,S,M].
    """
    batch_size, num_samples, num_agents = alive.shape
    sentence = row // num_agents * num_samples + sample
    key = (sentence * num_agents + row % num_agents) * vocab_size + word
    key, which = torch.unique(key, return_inverse=True)
    sentence = key // (num_agents * vocab_size)
    counts = sentence.bincount(minlength=batch_size * num_samples)
    num_slots = max(1, int(counts.max()))
    slot = torch.arange(len(key), device=key.device) - (counts.cumsum(0) - counts)[sentence]
    index = sentence * num_slots + slot
    shape = (batch_size, num_samples, num_slots)
    position = key.new_zeros(batch_size * num_samples * num_slots)
    words, mask = position.clone(), torch.zeros_like(position, dtype=torch.bool)
    position[index] = key // vocab_size % num_agents
    words[index] = key % vocab_size
    mask[index] = True
    edits = Edits(
        position=position.reshape(shape),
        words=words.reshape(*shape, 1).expand(*shape, 2),
        width=torch.ones((), dtype=torch.long, device=key.device).expand(shape),
        mask=mask.reshape(shape),
    )
    return edits, index[which]


def gradient_surrogate(
    log_probs: Tensor, gradient: Tensor, proposals: Proposals, *, num_inputs: int | Tensor
) -> Surrogate:
    """Of the gradient [B*N,V], summed over the samples. Logs the rewards asked for per agent that is alive.

    The advantages are None: more words than the sampled one have a gradient.
    """
    loss = logit_gradient_loss(log_probs, gradient.reshape(log_probs.shape), num_inputs=num_inputs)
    stats = {}
    if proposals.edits is not None:
        stats["edits_per_agent"] = proposals.edits.mask.sum() / proposals.alive.sum().clamp(min=1)
    return Surrogate(loss / proposals.num_samples, None, stats)
