"""The score by length of the source (CMAL Sec. 6.5, Fig. 6): sentence pairs in buckets, one score per bucket.

Lengths count subwords, without the eos. A score of a bucket is the score of its sentences as a corpus of
their own, not a mean over sentences. It decodes nothing.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise

from transformers import PreTrainedTokenizerBase


def check_bounds(bounds: Sequence[int]) -> None:
    """Raises ValueError unless `bounds` are whole numbers of 1 or more, each greater than the one before."""
    positive = all(isinstance(bound, int) and bound >= 1 for bound in bounds)
    if not positive or any(low >= high for low, high in pairwise(bounds)):
        raise ValueError(
            f"evaluation.length_bounds is {list(bounds)}; give whole numbers of 1 or more, each greater than "
            "the one before, or none"
        )


def source_lengths(tokenizer: PreTrainedTokenizerBase, sources: Sequence[str]) -> list[int]:
    """Subwords of every source, whole (not cut to a model's limit) and without the eos."""
    encoded = tokenizer(list(sources), add_special_tokens=False, return_attention_mask=False, verbose=False)
    return [len(ids) for ids in encoded["input_ids"]]


def bucket_rows(lengths: Sequence[int], bounds: Sequence[int]) -> list[list[int]]:
    """The row numbers of every bucket, in order.

    Args:
        lengths: of the B sources.
        bounds: the greatest length of every bucket but the last, which has none.

    Returns:
        len(bounds) + 1 lists; a bucket without rows is empty.

    Example:
        >>> bucket_rows([3, 10, 11, 4], bounds=[10])
        [[0, 1, 3], [2]]
    """
    buckets: list[list[int]] = [[] for _ in range(len(bounds) + 1)]
    for row, length in enumerate(lengths):
        buckets[bisect_left(bounds, length)].append(row)
    return buckets


def bucket_labels(bounds: Sequence[int]) -> list[str]:
    """What the buckets are called.

    Example:
        >>> bucket_labels([10, 15])
        ['1-10', '11-15', '16+']
    """
    lows = [1, *(bound + 1 for bound in bounds)]
    return [f"{low}-{high}" for low, high in zip(lows, bounds, strict=False)] + [f"{lows[-1]}+"]


def score_buckets(
    buckets: Sequence[Sequence[int]],
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    score: Callable[[list[str], list[Sequence[str]]], float],
) -> list[float | None]:
    """One score per bucket; None for an empty one.

    Args:
        buckets: row numbers, see `bucket_rows`.
        hypotheses, references: of all B rows.
        score: of a corpus: (hypotheses, references) -> its score, in the score's own unit.
    """
    return [
        score([hypotheses[row] for row in rows], [references[row] for row in rows]) if rows else None
        for rows in buckets
    ]
