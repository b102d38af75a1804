"""Draws joint actions from the agents' policies (CMAL Sec. 4.2) and writes edits out as sentences.

All agents choose at once and independently. Temperature and the suppression of words are the caller's: a
suppressed word has log-prob -inf and is never drawn. Rows of padding may hold anything; they get some word.
"""

import torch
from torch import Tensor

from hf_cmal.sampling.proposals import Edits


def sample_actions(
    log_probs: Tensor, num_samples: int, *, generator: torch.Generator | None = None
) -> Tensor:
    """Samples `num_samples` joint actions per input, u_a ~ pi_a, by inverting the cumulative distribution.

    One tensor of the size of `log_probs` is made, whatever `num_samples`. (`torch.multinomial` may return a
    last word of probability zero, because it rounds the cumulative distribution up to 1 there.)

    Args:
        log_probs: [B,N,V], normalised; -inf for suppressed words.
        num_samples: S, at least 1.
        generator: on the device of `log_probs`; None for the global one.

    Returns:
        long [B,S,N].

    Raises:
        ValueError: if `num_samples` is less than 1.
    """
    if num_samples < 1:
        raise ValueError(f"num_samples must be at least 1, got {num_samples}")
    log_probs = log_probs.detach()
    batch_size, num_agents, vocab_size = log_probs.shape
    dtype = torch.promote_types(log_probs.dtype, torch.float32)
    cumulative = torch.exp(log_probs.to(dtype)).cumsum_(-1)
    total = cumulative[..., -1:]
    uniform = torch.rand(
        (batch_size, num_agents, num_samples), generator=generator, dtype=dtype, device=log_probs.device
    )
    # The first word whose cumulative probability exceeds the threshold, so its own probability is positive.
    # There is one: the largest uniform number is 1 - eps / 2, and its product with the total stays below it,
    # rounded. The clamp is for rows of padding that hold nan.
    actions = torch.searchsorted(cumulative, uniform * total, right=True).clamp_(max=vocab_size - 1)
    # Still not so where a parallel device sums each prefix in another order: two prefixes may then differ by
    # a rounding error with only impossible words between them. (And in rows of padding.)
    impossible = ~(log_probs.gather(-1, actions) > -torch.inf)
    if bool(impossible.any()):
        actions = torch.where(impossible, log_probs.argmax(-1, keepdim=True), actions)
    return actions.transpose(1, 2).contiguous()


def greedy_actions(log_probs: Tensor) -> Tensor:
    """The joint action of every agent's most probable word: [B,N,V] -> long [B,1,N]."""
    return log_probs.detach().argmax(-1)[:, None]


def write_out_edits(actions: Tensor, edits: Edits) -> Tensor:
    """The counterfactual joint actions [u_-a, u'_a] of CMAL Eq. (12), and of Eq. (14) for edits of width 2.

    For rewards that cannot score an edit by itself, and for tests. Positions after an eos are kept as they
    are: an edit that removes the eos brings back the words behind it.

    Args:
        actions: long [B,R,N] with R >= S; rows beyond S are auxiliary and have no edits.
        edits: of the first S rows.

    Returns:
        long [B,S,M,N]. Where `edits.mask` is False, the unchanged joint action. `OTHER` stays `OTHER`.

    Example:

        >>> actions = torch.tensor([[[5, 6, 7]]])
        >>> edits = Edits(
        ...     position=torch.tensor([[[1]]]), words=torch.tensor([[[[8, 9]]]]),
        ...     width=torch.tensor([[[2]]]), mask=torch.tensor([[[True]]]),
        ... )
        >>> write_out_edits(actions, edits).tolist()
        [[[[5, 8, 9]]]]
    """
    samples = actions[:, : edits.position.shape[1], None]
    agents = torch.arange(actions.shape[-1], device=actions.device)
    first = edits.position[..., None]
    replaces_first = edits.mask[..., None] & (agents == first)
    replaces_second = (edits.mask & (edits.width == 2))[..., None] & (agents == first + 1)
    written = torch.where(replaces_first, edits.words[..., :1], samples)
    return torch.where(replaces_second, edits.words[..., 1:], written)
