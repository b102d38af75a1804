"""Batches with a budget of tokens, as sequence models are trained (Sec. 6.1.2: about 25k source and target
tokens).

Rows of similar length share a batch, so that little is spent on padding; the order of the batches is
shuffled anew each epoch from (seed, epoch) alone, so that a resumed run sees the same batches. Every rank
takes the same number of batches. Not for evaluation, which keeps the order of its rows.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Sampler


class TokenBudgetBatchSampler(Sampler[list[int]]):
    """Yields lists of row numbers whose padded source and padded target each stay within `max_tokens`.

    Args:
        source_lengths, target_lengths: tokens (or feature vectors) of every row.
        max_tokens: budget of one batch on one rank, counted with padding, for either side.
        seed: decides, with the epoch, which rows meet and in which order the batches come.
        num_replicas, rank: the ranks share the batches; the last round is filled up with repeated batches.

    Raises:
        ValueError: if one row alone exceeds the budget; the message names the row.
    """

    def __init__(
        self,
        source_lengths: Sequence[int],
        target_lengths: Sequence[int],
        *,
        max_tokens: int,
        seed: int = 0,
        num_replicas: int = 1,
        rank: int = 0,
    ) -> None:
        self.source_lengths = np.asarray(source_lengths)
        self.target_lengths = np.asarray(target_lengths)
        longest = np.maximum(self.source_lengths, self.target_lengths)
        if longest.size == 0:
            raise ValueError("the training dataset is empty: there is no row to make a batch of")
        if longest.max() > max_tokens:
            raise ValueError(
                f"row {int(longest.argmax())} has {int(longest.max())} tokens, more than "
                f"max_tokens_per_batch={max_tokens}; raise it, or lower the maximum lengths"
            )
        self.max_tokens, self.seed, self.num_replicas, self.rank = max_tokens, seed, num_replicas, rank
        self.epoch = 0
        self._num_batches = -(-len(self._batches()) // num_replicas)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def _batches(self) -> list[list[int]]:
        """All batches of the epoch, over all ranks.

        Their number is the same in every epoch: rows of equal lengths change places, lengths do not.
        """
        generator = np.random.default_rng([self.seed, self.epoch])
        shuffled = generator.permutation(len(self.target_lengths))
        by_length = shuffled[np.lexsort((self.source_lengths[shuffled], self.target_lengths[shuffled]))]
        batches: list[list[int]] = []
        batch: list[int] = []
        longest = 0
        for row in by_length.tolist():
            longest = max(longest, int(self.source_lengths[row]), int(self.target_lengths[row]))
            if batch and longest * (len(batch) + 1) > self.max_tokens:
                batches.append(batch)
                batch = []
                longest = max(int(self.source_lengths[row]), int(self.target_lengths[row]))
            batch.append(row)
        batches.append(batch)
        return [batches[i] for i in generator.permutation(len(batches))]

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[list[int]]:
        batches = self._batches()
        for round_start in range(0, len(batches), self.num_replicas):
            yield batches[(round_start + self.rank) % len(batches)]


class EpochDataLoader(DataLoader[Any]):
    """A DataLoader that hands the Trainer's `set_epoch` on to its batch sampler."""

    def set_epoch(self, epoch: int) -> None:
        assert isinstance(self.batch_sampler, TokenBudgetBatchSampler)
        self.batch_sampler.set_epoch(epoch)
