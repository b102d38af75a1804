"""ARS without its noise: draws the swaps that change a word, and not the noise of a whole vocabulary.

A word's noise matters to ARS only if it is among the smallest. Exponential variables have no memory, so the
few that matter can be drawn one after the other, each given what the ones before leave open; the sum of all
others is a gamma variable. The swaps have the distribution of those that `changing_swaps` finds in a full
draw, Dirichlet weights included, at a cost that does not grow with the samples times the vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from hf_cmal.estimators.arsm import changing_swaps, draw_noise, exponential, run_race


@dataclass(frozen=True)
class DrawnSwaps:
    """Swap i is of row `row` and column `column` of the actions [Q,K]: with category `category` swapped,
    `word` is said, and counts `weight` = 1 - C pi_j. [I] each.
    """

    row: Tensor
    column: Tensor
    category: Tensor
    word: Tensor
    weight: Tensor


def draw_changing_swaps(
    probs: Tensor,
    possible: Tensor,
    actions: Tensor,
    reference: Tensor,
    *,
    generator: torch.Generator | None = None,
) -> DrawnSwaps:
    """The swaps with a reference word that change the word said, for noise drawn given the actions.

    Args:
        probs: [Q,V], 0 for impossible words.
        possible: bool [Q,V].
        actions: long [Q,K], each drawn from its row of `probs`.
        reference: long [Q,K], possible words.
        generator: on the device of `probs`.
    """
    count = possible.sum(-1, keepdim=True)
    of_true, of_reference = probs.gather(-1, actions), probs.gather(-1, reference)
    # Unscaled noise: the true action's is first * of_true, another word's is that of its own plus the rest.
    first = exponential(actions, probs, generator)  # when the true action arrives
    reference_left = exponential(actions, probs, generator)
    reference_noise = first * of_reference + reference_left
    reach = first * of_reference
    # Who comes next, of those that do not swap. Together they arrive at the rate of their probabilities.
    third_left = torch.where(count > 2, exponential(actions, probs, generator), 0.0)
    rate = (1.0 - of_true - of_reference).clamp(min=0.0)
    second_time = first + torch.where(count > 2, third_left / rate, torch.inf)
    second = sample_others(probs, actions, reference, generator=generator)
    second_noise = second_time * probs.gather(-1, second)

    # The reference and the true action.
    time_of_true, time_of_reference = reference_noise / of_true, first * of_true / of_reference
    word = torch.where(time_of_reference < second_time, reference, second)
    changes = torch.minimum(time_of_reference, second_time) < time_of_true
    changes &= reference != actions
    found = [(*changes.nonzero(as_tuple=True), actions[changes], word[changes])]
    # The reference and a more probable word, which wins by its noise.
    bar = torch.where(reference != actions, reference_noise / first, torch.inf)
    row, category = (probs > bar.amin(-1, keepdim=True)).nonzero(as_tuple=True)
    wins = (probs[row, category][:, None] > bar[row]) & (category[:, None] != actions[row])
    which, column = wins.nonzero(as_tuple=True)
    found.append((row[which], column, category[which], category[which]))
    # The reference and a less probable word, by whose noise the reference wins: the second word ...
    wins = (second_noise < reach) & (reference != actions) & (count > 2)
    found.append((*wins.nonzero(as_tuple=True), second[wins], reference[wins]))
    # ... and all others of little noise.
    taken = torch.stack([actions, reference, second], -1)
    row, column, category, left = draw_small_noise(possible, reach, taken, generator=generator)
    noise = second_time[row, column] * probs[row, category] + left
    wins = (noise < reach[row, column]) & (reference != actions)[row, column]
    found.append((row[wins], column[wins], category[wins], reference[row[wins], column[wins]]))

    # The sum of all noise, those not drawn being beyond the reach.
    flat = row * actions.shape[1] + column
    small = flat.bincount(minlength=actions.numel()).reshape(actions.shape)
    undrawn = (count - 3 - small).clamp(min=0)
    total = first + reference_left + third_left + undrawn * reach
    total = total + torch.zeros_like(total).flatten().index_add(0, flat, left).reshape(total.shape)
    shape = undrawn.clamp(min=1).to(probs.dtype)
    total = total + torch.where(undrawn > 0, torch._standard_gamma(shape, generator=generator), 0.0)
    weight = 1.0 - count * reference_noise / total

    row, column, category, word = (torch.cat(part) for part in zip(*found, strict=True))
    drawn = DrawnSwaps(row, column, category, word, weight[row, column])
    return _joined(drawn, _of_true_actions(probs, possible, actions, reference, generator=generator))


def sample_others(
    probs: Tensor, one: Tensor, other: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """Samples of a policy without two of its words, long [Q,K]: the cumulative distribution, skipping them.

    Args:
        probs: [Q,V].
        one: long [Q,K].
        other: long [Q,K], different from `one`.
        generator: on the device of `probs`.
    """
    cumulative = probs.cumsum(-1)
    low, high = torch.minimum(one, other), torch.maximum(one, other)
    of_low, of_high = probs.gather(-1, low), probs.gather(-1, high)
    before_low, before_high = cumulative.gather(-1, low) - of_low, cumulative.gather(-1, high) - of_high
    uniform = torch.rand(one.shape, generator=generator, dtype=probs.dtype, device=probs.device)
    point = uniform * (cumulative[:, -1:] - of_low - of_high).clamp(min=0.0)
    point = torch.where(point >= before_low, point + of_low, point)
    point = torch.where(point >= before_high, point + of_high, point)
    return torch.searchsorted(cumulative, point, right=True).clamp_(max=probs.shape[-1] - 1)


def draw_small_noise(
    possible: Tensor, reach: Tensor, taken: Tensor, *, generator: torch.Generator | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Exponential variables of all possible words but three, those alone that are less than `reach`.

    They are the first points of Poisson processes of rate 1, one for each word, which are drawn as one
    process of rate V whose points fall on any word.

    Args:
        possible: bool [Q,V].
        reach: [Q,K].
        taken: long [Q,K,3], the words left out.
        generator: on the device of `possible`.

    Returns:
        row, column, word, each long [I], and the variable [I].
    """
    vocab_size = possible.shape[-1]
    number = torch.poisson(vocab_size * reach, generator=generator).long()
    cell = torch.arange(number.numel(), device=reach.device).repeat_interleave(number.flatten())
    word = torch.randint(vocab_size, cell.shape, generator=generator, device=reach.device)
    value = torch.rand(cell.shape, generator=generator, dtype=reach.dtype, device=reach.device)
    value = value * reach.flatten()[cell]
    row = cell // reach.shape[1]
    kept = possible[row, word] & (taken.flatten(0, 1)[cell] != word[:, None]).all(-1)
    key, which = torch.unique((cell * vocab_size + word)[kept], return_inverse=True)
    earliest = torch.full(key.shape, torch.inf, dtype=reach.dtype, device=reach.device)
    earliest = earliest.scatter_reduce(0, which, value[kept], "amin")
    cell, word = key // vocab_size, key % vocab_size
    return cell // reach.shape[1], cell % reach.shape[1], word, earliest


def _of_true_actions(
    probs: Tensor,
    possible: Tensor,
    actions: Tensor,
    reference: Tensor,
    *,
    generator: torch.Generator | None,
) -> DrawnSwaps:
    """Where the reference is the true action, all words matter; of a large vocabulary that is rare."""
    rows, columns = (reference == actions).nonzero(as_tuple=True)
    said = actions[rows, columns]
    probs, possible = probs[rows], possible[rows]
    noise = draw_noise(said, probs, possible, generator=generator)
    row, category, word = changing_swaps(run_race(noise, probs), noise, probs, possible, said)
    weight = 1.0 - possible.sum(-1) * noise.gather(-1, said[:, None])[:, 0]
    return DrawnSwaps(rows[row], columns[row], category, word, weight[row])


def _joined(one: DrawnSwaps, other: DrawnSwaps) -> DrawnSwaps:
    return DrawnSwaps(
        torch.cat([one.row, other.row]),
        torch.cat([one.column, other.column]),
        torch.cat([one.category, other.category]),
        torch.cat([one.word, other.word]),
        torch.cat([one.weight, other.weight]),
    )
