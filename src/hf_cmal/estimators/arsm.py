"""Augment, REINFORCE, swap, merge (ARSM, Yin, Yue & Zhou 2019): the noise behind a word as its baseline.

A word can be sampled as the winner of a race: with noise pi ~ Dirichlet(1), word i arrives at pi_i / sigma_i,
and the first to arrive is said. Swap the noise of two words and run the race again: the word said then is a
pseudo action. How the reward of the pseudo actions differs from that of the true one is the gradient with
respect to the logits, and most swaps change nothing. Pure functions on agents one by one; the estimators are
in ars.py, arsm_local.py and arsm_joint.py. Nowhere is a tensor of words x words made.

Everywhere: Q agents of a vocabulary of V words, C of them possible (log-prob above -inf).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# ---- the race ----------------------------------------------------------------------------------------------


def exponential(shaped: Tensor, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """Exponential variables in the shape of one tensor and the dtype and place of another, all positive."""
    uniform = torch.rand(shaped.shape, generator=generator, dtype=like.dtype, device=like.device)
    # 0 can be drawn, and would last for ever. (`exponential_` is an order of magnitude slower on CPUs.)
    return uniform.clamp_(min=torch.finfo(like.dtype).eps / 4).log_().neg_()


def draw_noise(
    actions: Tensor, probs: Tensor, possible: Tensor, *, generator: torch.Generator | None = None
) -> Tensor:
    """pi ~ Dirichlet(1) given who won: of actions drawn from `probs`, it is one draw without a condition.

    Dirichlet noise is exponential variables over their sum. The first to arrive does so at a time that is
    exponential itself and says nothing about who it is, and exponential variables have no memory: the others
    have come as far as the time allowed, and what is left to them is exponential again.

    Args:
        actions: long [Q].
        probs: [Q,V], 0 for impossible words.
        possible: bool [Q,V], which words the noise is shared among.
        generator: on the device of `probs`; None for the global one.

    Returns:
        [Q,V], positive; that of an impossible word means nothing.
    """
    first = exponential(actions[:, None], probs, generator)
    noise = exponential(probs, probs, generator).scatter_(-1, actions[:, None], 0.0).add_(first * probs)
    total = torch.where(possible, noise, 0.0).sum(-1, keepdim=True)
    return noise.div_(torch.where(total > 0.0, total, 1.0))  # 0: padding where nothing is possible


@dataclass(frozen=True)
class Race:
    """The first two to arrive: `words` long [Q,2] and `times` [Q,2], inf where there are fewer."""

    words: Tensor
    times: Tensor

    @property
    def true(self) -> Tensor:
        """long [Q], the words that are said."""
        return self.words[:, 0]


def run_race(noise: Tensor, probs: Tensor) -> Race:
    """Word i arrives at noise_i / probs_i. Property I of the paper: the first is a sample of `probs`.

    Args:
        noise: [Q,V].
        probs: [Q,V], 0 for impossible words.

    Example:

        >>> race = run_race(torch.tensor([[0.2, 0.3, 0.5]]), torch.tensor([[0.1, 0.5, 0.4]]))
        >>> race.words.tolist()
        [[1, 2]]
    """
    times = noise / probs
    first = times.min(-1)
    second = times.scatter_(-1, first.indices[:, None], torch.inf).min(-1)
    return Race(
        torch.stack([first.indices, second.indices], -1), torch.stack([first.values, second.values], -1)
    )


def swapped_actions(race: Race, noise: Tensor, probs: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Who wins once two words have swapped their noise: the pseudo actions z^{c<->j}, each in O(1).

    Nobody but these two changes their time, so the winner is one of them or the first of the rest. If the
    first two of the race swap, one of them still wins: the more probable of the two comes no later than the
    second did. So no third is needed.

    Args:
        race: of `noise` and `probs`.
        noise: [Q,V].
        probs: [Q,V].
        one: long [Q,P], the words c.
        other: long [Q,P], the words j; the true action is the answer where they are equal.

    Returns:
        long [Q,P].
    """
    winner, time = one, noise.gather(-1, other) / probs.gather(-1, one)
    time_of_other = noise.gather(-1, one) / probs.gather(-1, other)
    winner = torch.where(time_of_other < time, other, winner)
    time = torch.minimum(time, time_of_other)
    for place in (0, 1):
        word, time_of_word = race.words[:, place, None], race.times[:, place, None]
        wins = (word != one) & (word != other) & (time_of_word < time)
        winner = torch.where(wins, word, winner)
        time = torch.where(wins, time_of_word, time)
    return winner


def changing_swaps(
    race: Race, noise: Tensor, probs: Tensor, possible: Tensor, reference: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The swaps with a reference word j after which another word is said: z^{c<->j} over all c in O(V).

    Of two words that both lost, the more probable one wins after the swap iff the noise it gets, of the other
    one, brings it before the true action; no runner-up matters. All swaps with the true action itself are
    run again.

    Args:
        race: of `noise` and `probs`.
        noise: [Q,V].
        probs: [Q,V].
        possible: bool [Q,V]; only possible words swap.
        reference: long [Q], possible words j.

    Returns:
        The row in 0..Q-1, the category c and the pseudo action of each such swap, long [I] each.
    """
    true, first = race.true, race.times[:, 0]
    with_true = reference == true
    noise_of_reference = noise.gather(-1, reference[:, None])[:, 0]
    prob_of_reference = probs.gather(-1, reference[:, None])[:, 0]
    bar = torch.where(with_true, torch.inf, noise_of_reference / first)
    row_of_c, c = (probs > bar[:, None]).nonzero(as_tuple=True)  # c wins with the noise of j
    bar = torch.where(with_true, 0.0, first * prob_of_reference)
    row_of_j, c_of_j = (noise < bar[:, None]).nonzero(as_tuple=True)  # j wins with the noise of c
    kept = c_of_j != true[row_of_j]
    row_of_j, c_of_j = row_of_j[kept], c_of_j[kept]

    pair_with_true = swapped_actions(race, noise, probs, true[:, None], reference[:, None])[:, 0]
    rows = torch.arange(len(true), device=true.device)
    of_true = with_true.nonzero()[:, 0]
    every = torch.arange(noise.shape[-1], device=true.device).expand(len(of_true), -1)
    swapped_with_every = swapped_actions(
        Race(race.words[of_true], race.times[of_true]),
        noise[of_true],
        probs[of_true],
        true[of_true, None].expand_as(every),
        every,
    )
    row = torch.cat([row_of_c, row_of_j, rows, of_true.repeat_interleave(every.shape[-1])])
    category = torch.cat([c, c_of_j, true, every.flatten()])
    word = torch.cat([c, reference[row_of_j], pair_with_true, swapped_with_every.flatten()])
    changing = (word != true[row]) & (category != reference[row]) & possible[row, category]
    return row[changing], category[changing], word[changing]


# ---- gradients with respect to the logits ------------------------------------------------------------------


def centre(gradient: Tensor, possible: Tensor) -> Tensor:
    """Subtracts the mean over the possible words, and is 0 at the others: the baseline of ARS and ARSM.

    Since each row then sums to 0, the gradient of `logit_gradient_loss` with respect to the logits behind
    normalised log-probs is this one exactly.

    Args:
        gradient: [..., V], 0 at impossible words.
        possible: bool [..., V].
    """
    mean = gradient.sum(-1, keepdim=True) / possible.sum(-1, keepdim=True).clamp(min=1)
    return (gradient - mean).masked_fill_(~possible, 0.0)


def logit_gradient_loss(log_probs: Tensor, gradient: Tensor, *, num_inputs: int | Tensor) -> Tensor:
    """The loss whose gradient with respect to the logits is `-gradient / num_inputs`.

    Args:
        log_probs: [B,N,V], normalised; may hold -inf, and anything in padding.
        gradient: [B,N,V], taken without a gradient. Its rows sum to 0 over the possible words.
        num_inputs: over all ranks and micro-batches of the optimizer step.

    Returns:
        scalar.

    Example:

        >>> logits = torch.tensor([[[0.0, 1.0, -torch.inf]]]).requires_grad_()
        >>> gradient = torch.tensor([[[2.0, -2.0, 0.0]]])
        >>> logit_gradient_loss(logits.log_softmax(-1), gradient, num_inputs=1).backward()
        >>> logits.grad.round(decimals=6).tolist()
        [[[-2.0, 2.0, 0.0]]]
    """
    # Masked before the product: 0 * -inf is nan.
    masked = log_probs.masked_fill(~(log_probs.detach() > -torch.inf), 0.0)
    # A dot product makes no third tensor of this size.
    return -torch.dot(masked.flatten(), gradient.detach().to(log_probs.dtype).flatten()) / num_inputs


def ar_gradient(noise: Tensor, possible: Tensor, rewards: Tensor) -> Tensor:
    """AR: g_c = f(z) (1 - C pi_c). Unbiased, and of more variance than REINFORCE.

    Args:
        noise: [Q,V].
        possible: bool [Q,V].
        rewards: [Q], f(z).

    Returns:
        [Q,V].
    """
    count = possible.sum(-1, keepdim=True)
    return torch.where(possible, rewards[:, None] * (1.0 - count * noise), 0.0)


class MergedSwaps:
    """All swaps of Q agents at once, summed over the reference word (ARSM).

    With w_j = 1/C - pi_j and the differences D_v = f(v) - f(true), ARSM is, before it is centred,
    g_c = sum_j D(z^{c<->j}) w_j. Of words that both lost, v wins against all l whose noise is less than
    `first * probs_v`: in the order of the probabilities, l is beaten by the words of a prefix. So l gets the
    sum of D_v w_v over its prefix, and each v in it gets D_v w_l. Swaps with the true action are V, and are
    run again. It costs O(V log V), and O(V) but for the search in the order.

    Args:
        race: of `noise` and `probs`.
        noise: [Q,V].
        probs: [Q,V].
        possible: bool [Q,V].
        order: long [Q,V], the words by decreasing `probs`.
    """

    def __init__(self, race: Race, noise: Tensor, probs: Tensor, possible: Tensor, order: Tensor) -> None:
        self.true = race.true[:, None]
        self.possible, self.order = possible, order
        count = possible.sum(-1, keepdim=True).clamp(min=1).to(noise.dtype)
        self.weights = torch.where(possible, 1.0 / count - noise, 0.0)
        loses = possible.scatter(-1, self.true, False)
        bar = torch.where(loses, noise / race.times[:, :1], torch.inf)
        self.num_beaten_by = torch.searchsorted(-probs.gather(-1, order), -bar)  # the prefix of each l
        self.beaten_weights = self._sum_over_beaten(self.weights)
        every = torch.arange(noise.shape[-1], device=noise.device).expand_as(noise)
        winners = swapped_actions(race, noise, probs, self.true.expand_as(every), every)
        self.winners = torch.where(possible, winners, self.true)  # of the swaps with the true action

    def _sum_over_beaten(self, values: Tensor) -> Tensor:
        """For each v the sum of `values` over all l that it beats."""
        by_length = torch.nn.functional.pad(torch.zeros_like(values), (0, 1))
        by_length = by_length.scatter_add(-1, self.num_beaten_by, values)
        # the k-th of the order is in every prefix longer than k
        longer = by_length[..., 1:].flip(-1).cumsum(-1).flip(-1)
        return torch.zeros_like(values).scatter(-1, self.order, longer)

    def sizes(self) -> Tensor:
        """About how much each word can move the gradient: the norm of what D_v is multiplied by, [Q,V].

        Before centring, and as if no category were met twice. It is 0 where D_v does not count.
        """
        of_true = self.weights.gather(-1, self.true)
        lost = (self.winners != self.true).to(self.weights.dtype)
        zeros = torch.zeros_like(self.weights)
        beaten = self._sum_over_beaten((self.num_beaten_by > 0).to(zeros.dtype))
        at_true = zeros.scatter_add(-1, self.winners, lost * self.weights)
        at_others = zeros.scatter_add(-1, self.winners, lost) * of_true.square()
        at_beaten = beaten * self.weights.square()
        squares = self.beaten_weights.square() + at_beaten + at_true.square() + at_others
        return torch.where(self.possible, squares.sqrt(), 0.0).scatter(-1, self.true, 0.0)

    def gradient(self, differences: Tensor) -> Tensor:
        """ARSM of given differences, which is linear in them.

        Args:
            differences: [Q,V], f(v) - f(true); 0 at the true action, and where `sizes` is 0 of no effect.

        Returns:
            [Q,V].
        """
        prefixes = (differences * self.weights).gather(-1, self.order).cumsum(-1)
        prefixes = torch.nn.functional.pad(prefixes, (1, 0)).gather(-1, self.num_beaten_by)
        of_winners = differences.gather(-1, self.winners)
        at_true = (of_winners * self.weights).sum(-1, keepdim=True)
        gradient = (
            differences * self.beaten_weights + prefixes + of_winners * self.weights.gather(-1, self.true)
        )
        return centre(gradient.scatter_add(-1, self.true, at_true), self.possible)
