"""Masks and edits of token sequences: which agents exist, which still speak, which repeat their neighbour.

CMAL Sec. 4.2 (a sentence ends at the first eos when the number of agents is fixed) and the postprocessing of
Sec. 6.2 (consecutive identical tokens are removed). Pure functions on tensors of token ids; no model, no
tokenizer. Masks are bool, True = real, and a mask of agents is a prefix of its row.
"""

import torch
from torch import Tensor


def length_mask(lengths: Tensor, max_length: int) -> Tensor:
    """Turns lengths into a mask whose row b is True at its first `lengths[b]` positions.

    Args:
        lengths: integers, shape [B], each in 0..max_length.
        max_length: number of columns N of the mask.

    Returns:
        bool, shape [B, N].

    Example:
        >>> length_mask(torch.tensor([2, 0]), 3).tolist()
        [[True, True, False], [False, False, False]]
    """
    return torch.arange(max_length, device=lengths.device) < lengths.unsqueeze(-1)


def alive_mask(tokens: Tensor, agent_mask: Tensor, eos_token_id: int | None) -> Tensor:
    """Marks the agents whose words belong to the sentence: all up to and with the first eos.

    The agent that says eos is alive (its word decides where the sentence ends); those after it are not.

    Args:
        tokens: token ids, shape [..., N].
        agent_mask: bool, broadcastable to `tokens`; True where there is an agent.
        eos_token_id: the word that ends a sentence, or None where no word does (the length was predicted).

    Returns:
        bool, the shape of `tokens`.

    Example:
        >>> alive_mask(torch.tensor([[5, 0, 7, 0]]), torch.ones(1, 4, dtype=torch.bool), 0).tolist()
        [[True, True, False, False]]
    """
    agents = agent_mask.expand(tokens.shape)
    if eos_token_id is None:
        return agents.clone()
    is_eos = (tokens == eos_token_id) & agents
    eos_before = is_eos.cumsum(-1) - is_eos.long()
    return agents & (eos_before == 0)


def repeats_mask(tokens: Tensor, mask: Tensor) -> Tensor:
    """Marks each real token that equals the real token just before it; shapes [B, N] -> bool [B, N].

    The first position is never a repeat. "very very very" has two repeats.
    """
    repeats = torch.zeros_like(mask)
    repeats[:, 1:] = (tokens[:, 1:] == tokens[:, :-1]) & mask[:, 1:]
    return repeats


def left_pack(values: Tensor, keep: Tensor, *, fill: float) -> Tensor:
    """Moves the kept values of each row to its left, in order, and fills the rest; shapes [B, N] -> [B, N].

    Example:
        >>> left_pack(torch.tensor([[4, 5, 6]]), torch.tensor([[True, False, True]]), fill=9).tolist()
        [[4, 6, 9]]
    """
    order = torch.argsort(keep.long(), dim=-1, descending=True, stable=True)
    packed_keep = length_mask(keep.sum(-1), keep.shape[-1])
    return values.gather(-1, order).masked_fill(~packed_keep, fill)


def remove_consecutive_duplicates(
    tokens: Tensor, mask: Tensor, *, pad_token_id: int
) -> tuple[Tensor, Tensor]:
    """Keeps one of each run of identical neighbouring tokens: the paper's `postprocess` (CMAL Sec. 6.2).

    A decoding switch: it also shortens a wanted "very very". Padding is never compared with anything.

    Args:
        tokens: token ids, shape [B, N].
        mask: bool, shape [B, N]; True at real tokens.
        pad_token_id: what the freed positions at the right end are filled with.

    Returns:
        tokens [B, N] and mask [B, N], both packed to the left.

    Example:
        >>> mask = torch.tensor([[True, True, True, True]])
        >>> remove_consecutive_duplicates(torch.tensor([[3, 3, 5, 3]]), mask, pad_token_id=9)[0].tolist()
        [[3, 5, 3, 9]]
    """
    keep = mask & ~repeats_mask(tokens, mask)
    return left_pack(tokens, keep, fill=pad_token_id), length_mask(keep.sum(-1), keep.shape[-1])
