"""Glancing: in word-by-word training, a student is shown some of the words that it would get wrong.

Qian et al. 2021, "Glancing Transformer for Non-Autoregressive Neural Machine Translation" (ACL), Sec. 3.2:
the student writes the sentence once; of its target words, a share of as many as were wrong is drawn at random
and shown to the agents, who learn the rest. Hard sentences are so learned in small pieces first, and an agent
learns to heed the words of the others, which keeps neighbours from saying the same word. Not part of CMAL: a
better start for it. Decoding is unchanged, with no word shown.
"""

import torch
from torch import Tensor

from hf_cmal.data.collators import IGNORED


def glancing_ratio(progress: float, *, start: float, end: float) -> float:
    """The share of the wrong words that is shown, on a straight line; `progress` of the training, 0 to 1."""
    return start + (end - start) * min(max(progress, 0.0), 1.0)


def reveal_words(labels: Tensor, predictions: Tensor, *, ratio: float) -> Tensor:
    """Which words are shown: as many as `ratio` times the wrong ones of each row, drawn from all its words.

    Args:
        labels: word ids, [B, N], -100 where there is no word.
        predictions: the likeliest words, [B, N].
        ratio: 0 to 1; the count is rounded down.

    Returns:
        bool, [B, N].

    Source: Qian et al. 2021, Sec. 3.2: the Hamming distance times the ratio, drawn uniformly.
    """
    is_word = labels != IGNORED
    wrong = (is_word & (labels != predictions)).sum(-1, keepdim=True)
    count = (wrong * ratio).long()
    lots = torch.rand(labels.shape, device=labels.device).masked_fill(~is_word, 2.0)
    return is_word & (lots.argsort(-1).argsort(-1) < count)
