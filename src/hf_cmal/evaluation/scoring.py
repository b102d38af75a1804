"""Generated token ids to scores: text metrics of the task, repetition rate and length accuracy.

The text metrics see what the tokenizer decodes; the repetition rate (consecutive equal tokens / tokens) and
the lengths are taken from the ids. It generates nothing and measures no time.
"""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from hf_cmal.metrics.tokens import length_accuracy, repetition_rate
from hf_cmal.tasks import Task


def real_tokens(tokens: torch.Tensor, tokenizer: PreTrainedTokenizerBase) -> torch.Tensor:
    """bool [B, N]: which ids are words, not padding (pad or -100), start or eos."""
    special = torch.tensor([-100, tokenizer.pad_token_id, tokenizer.eos_token_id])
    return ~torch.isin(tokens, special)


def decode_tokens(tokenizer: PreTrainedTokenizerBase, tokens: torch.Tensor) -> list[str]:
    """The sentence of every row, [B, N] ids with -100 as padding."""
    words = real_tokens(tokens, tokenizer)
    return tokenizer.batch_decode(
        [row[mask].tolist() for row, mask in zip(tokens, words, strict=True)], skip_special_tokens=True
    )


def score_tokens(
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    tokens: np.ndarray | torch.Tensor,
    references: Sequence[Sequence[str]],
    *,
    labels: np.ndarray | torch.Tensor | None = None,
) -> dict[str, float | str]:
    """Scores of a decoded split.

    Args:
        tokens: [B, N] generated ids, -100 or pad after the end.
        references: the strings of every row.
        labels: [B, N'] ids of the expected target, for `length_accuracy`; None leaves it out.

    Returns:
        The task's scores with their signatures, `repetition_rate`, `mean_length`, and `length_accuracy`.
    """
    tokens = torch.as_tensor(tokens)
    words = real_tokens(tokens, tokenizer)
    scores: dict[str, float | str] = dict(task.scores(decode_tokens(tokenizer, tokens), references))
    scores["repetition_rate"] = float(repetition_rate(tokens, words))
    scores["mean_length"] = float(words.sum(-1).float().mean())
    if labels is not None:
        target_lengths = real_tokens(torch.as_tensor(labels), tokenizer).sum(-1)
        scores["length_accuracy"] = float(length_accuracy(words.sum(-1), target_lengths))
    return scores
