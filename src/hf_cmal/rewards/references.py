"""References as flat arrays: any number per input, any length, checked once at the boundary.

Kernels read one array of words and offsets instead of nested lists. The sentence-end rule is applied here:
the first eos ends a reference, and one eos is appended where it counts as a word. No n-gram is counted here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from hf_cmal.sampling.proposals import OTHER

MAX_WORD_ID = 2**31 - 1


@dataclass(frozen=True)
class PackedReferences:
    """References of B inputs in one row.

    Attributes:
        words: int64 [total words].
        offsets: int64 [references + 1]; reference r is words[offsets[r]:offsets[r + 1]].
        input_of: int64 [references], the input that a reference belongs to, ascending.
        first_reference: int64 [B + 1]; input b has references first_reference[b]:first_reference[b + 1].
    """

    words: NDArray[np.int64]
    offsets: NDArray[np.int64]
    input_of: NDArray[np.int64]
    first_reference: NDArray[np.int64]

    @property
    def num_inputs(self) -> int:
        return len(self.first_reference) - 1

    def unique_words(self) -> NDArray[np.int64]:
        """int64 [B, C]: the distinct words of each input's references, ascending, padded with OTHER."""
        bounds = self.offsets[self.first_reference]
        rows = [np.unique(self.words[bounds[b] : bounds[b + 1]]) for b in range(self.num_inputs)]
        padded = np.full((len(rows), max(map(len, rows), default=0)), OTHER, dtype=np.int64)
        for row, words in zip(padded, rows, strict=True):
            row[: len(words)] = words
        return padded


def pack_references(
    references: Sequence[Sequence[Sequence[int]]], *, eos_token_id: int | None, count_eos: bool
) -> PackedReferences:
    """Flattens references.

    Args:
        references: per input at least one reference, each at least one token id of [0, 2**31).
        eos_token_id: ends a reference where it stands in one; None: there is no such word.
        count_eos: append one eos to each reference (no effect without eos_token_id).

    Raises:
        ValueError: an input without reference, a reference without tokens, or a word id out of range; the
            message names the input's index.
    """
    rows: list[list[int]] = []
    counts: list[int] = []
    for index, input_references in enumerate(references):
        if len(input_references) == 0:
            raise ValueError(
                f"input {index} of the batch has no reference: a reward needs at least one per input. Leave "
                "inputs without references out of reward training (they can still serve distillation)"
            )
        for reference in input_references:
            row = [int(word) for word in reference]
            if eos_token_id is not None and eos_token_id in row:
                row = row[: row.index(eos_token_id)]
            if not row:
                raise ValueError(
                    f"input {index} of the batch has a reference without tokens: remove the empty reference, "
                    "or the input if it has no other"
                )
            if eos_token_id is not None and count_eos:
                row.append(eos_token_id)
            rows.append(row)
        counts.append(len(input_references))

    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    words = np.fromiter(chain.from_iterable(rows), dtype=np.int64, count=int(lengths.sum()))
    packed = PackedReferences(
        words=words,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        input_of=np.repeat(np.arange(len(counts), dtype=np.int64), counts),
        first_reference=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
    )
    out_of_range = np.flatnonzero((words < 0) | (words > MAX_WORD_ID))
    if out_of_range.size:
        reference_index = int(np.searchsorted(packed.offsets, out_of_range[0], side="right")) - 1
        raise ValueError(
            f"input {packed.input_of[reference_index]} of the batch has the word id {words[out_of_range[0]]} "
            f"in a reference: word ids must lie in [0, {MAX_WORD_ID}] (-100 pads labels)"
        )
    return packed
