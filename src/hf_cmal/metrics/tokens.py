"""What can be counted on token ids: how often a token repeats its neighbour, how often the length is right.

The repetition rate measures the fault of word-by-word trained parallel decoders that CMAL repairs (Secs. 1
and 5.3); it is taken before postprocessing. No text and no reference sentence here.
"""

from torch import Tensor

from hf_cmal.models.nag.sequences_nag import repeats_mask


def repetition_rate(tokens: Tensor, mask: Tensor) -> float:
    """Tokens that equal the token just before them, divided by all tokens of the batch.

    Args:
        tokens: token ids [B, N].
        mask: bool [B, N], True at the tokens of a sentence (without eos, if it shall not count).

    Returns:
        A fraction of [0, 1); 0 for a batch without tokens.

    Example:
        >>> repetition_rate(torch.tensor([[5, 5, 6, 6]]), torch.ones(1, 4, dtype=torch.bool))
        0.5
    """
    if tokens.shape != mask.shape:
        raise ValueError(
            f"tokens {tuple(tokens.shape)} and mask {tuple(mask.shape)} must have the same shape [B, N]"
        )
    num_tokens = int(mask.sum())
    return int(repeats_mask(tokens, mask).sum()) / num_tokens if num_tokens else 0.0


def length_accuracy(predicted_lengths: Tensor, target_lengths: Tensor) -> float:
    """Fraction of sentences whose predicted length equals the target's.

    Args:
        predicted_lengths, target_lengths: numbers of tokens [B].

    Returns:
        A fraction of [0, 1]; 0 for an empty batch.
    """
    if predicted_lengths.shape != target_lengths.shape:
        raise ValueError(
            f"{tuple(predicted_lengths.shape)} predicted and {tuple(target_lengths.shape)} target lengths: "
            "give one of each per sentence"
        )
    equal = predicted_lengths == target_lengths.to(predicted_lengths.device)
    return float(equal.double().mean()) if equal.numel() else 0.0
