"""The kernel of ROUGE-L: longest common subsequences of sentences, and of edits of them, with references.

Of every sentence two tables are kept, of its beginnings and of its ends with the references'. An edit
continues the first with its own words and meets the second behind them, which costs one row for each of these
instead of one for each word of the sentence. Rows and planned edits come from `rows.py`; the score is defined
in `rouge.py`.
"""

from typing import NamedTuple

import numpy as np

from hf_cmal.rewards.kernel import kernel_without_allocation, part
from hf_cmal.rewards.tables import Floats, Ints, PlannedEdits, Rows


class LcsBinding(NamedTuple):
    """The references of a batch, as `PackedReferences` holds them, and the weight of recall."""

    words: Ints
    offsets: Ints
    first_reference: Ints
    beta: float


class LcsScratch(NamedTuple):
    """Memory of one thread. The tables are [references of one input, words + 1, words of a reference + 1]."""

    beginnings: Ints
    ends: Ints
    revived_ends: Ints
    edited: Ints  # [3, words of a reference + 1]


def make_lcs_scratch(rows: Rows, bound: LcsBinding) -> LcsScratch:
    """Memory of one thread."""
    longest, most = int(np.diff(bound.offsets).max()) + 1, int(np.diff(bound.first_reference).max())
    beginnings, ends, revived_ends = np.zeros((3, most, rows.words.shape[2] + 1, longest), np.int64)
    return LcsScratch(beginnings, ends, revived_ends, np.zeros((3, longest), np.int64))


@part
def _extend(word: int, reference: Ints, before: Ints, after: Ints) -> None:
    """From LCS(sentence, reference[:j]) for every j to that of the sentence followed by `word`."""
    after[0] = 0
    for j in range(reference.size):
        if reference[j] == word:
            after[j + 1] = before[j] + 1
        else:
            after[j + 1] = max(before[j + 1], after[j])


@part
def _fill_ends(row: Ints, length: int, reference: Ints, ends: Ints) -> None:
    """ends[i, j] = LCS(row[i:length], reference[j:])."""
    size = reference.size
    ends[length, : size + 1] = 0
    for i in range(length - 1, -1, -1):
        ends[i, size] = 0
        for j in range(size - 1, -1, -1):
            if reference[j] == row[i]:
                ends[i, j] = ends[i + 1, j + 1] + 1
            else:
                ends[i, j] = max(ends[i + 1, j], ends[i, j + 1])


@part
def _rouge_l(precision: float, recall: float, beta: float) -> float:
    if precision == 0.0 or recall == 0.0:
        return 0.0
    return (1.0 + beta * beta) * precision * recall / (recall + beta * beta * precision)


@kernel_without_allocation
def score_subsequences(
    rows: Rows, edits: PlannedEdits, bound: LcsBinding, begin: int, end: int, rewards: Floats,
    edit_rewards: Floats, scratch: LcsScratch,
) -> None:  # fmt: skip
    """Scores the rows of inputs begin to end, into float64 [B, R], and edits of their first S, into float64
    [B, S, M].
    """
    words, reads, lengths, num_agents = rows.words, rows.read, rows.length, rows.num_agents
    position, replacements, width = edits.position, edits.words, edits.width
    new_reads, new_lengths = edits.read, edits.length
    num_samples, num_edits = position.shape[1], position.shape[2]
    references, offsets, first_reference = bound.words, bound.offsets, bound.first_reference
    beginnings, ends, revived_ends, edited = scratch
    for b in range(begin, end):
        first, last = first_reference[b], first_reference[b + 1]
        for s in range(words.shape[1]):
            row, read, length = words[b, s], reads[b, s], lengths[b, s]
            has_edits = s < num_samples and num_edits > 0
            precision, recall = 0.0, 0.0
            for r in range(first, last):
                reference = references[offsets[r] : offsets[r + 1]]
                table = beginnings[r - first]
                for i in range(num_agents[b] if has_edits else length):
                    _extend(row[i], reference, table[i], table[i + 1])
                if has_edits:
                    _fill_ends(row, length, reference, ends[r - first])
                common = table[length, reference.size]
                precision = max(precision, common / max(length, 1))
                recall = max(recall, common / reference.size)
            reward = _rouge_l(precision, recall, bound.beta)
            rewards[b, s] = reward
            revived_length = -1
            for m in range(num_edits if has_edits else 0):
                new_read, new_length = new_reads[b, s, m], new_lengths[b, s, m]
                if new_read < 0:
                    edit_rewards[b, s, m] = reward
                    continue
                lo = position[b, s, m]
                hi = lo + width[b, s, m]
                if new_read > read and new_length != revived_length:
                    revived_length = new_length
                    for r in range(first, last):
                        reference = references[offsets[r] : offsets[r + 1]]
                        _fill_ends(row, new_length, reference, revived_ends[r - first])
                precision, recall = 0.0, 0.0
                for r in range(first, last):
                    reference = references[offsets[r] : offsets[r + 1]]
                    size = reference.size
                    for j in range(size + 1):
                        edited[0, j] = beginnings[r - first, lo, j]
                    last_row = 0
                    for p in range(lo, min(hi, new_length)):
                        _extend(
                            replacements[b, s, m, p - lo], reference, edited[last_row], edited[last_row + 1]
                        )
                        last_row += 1
                    common = edited[last_row, size]
                    if new_length > hi:
                        behind = revived_ends[r - first, hi] if new_read > read else ends[r - first, hi]
                        for j in range(size + 1):
                            common = max(common, edited[last_row, j] + behind[j])
                    precision = max(precision, common / max(new_length, 1))
                    recall = max(recall, common / size)
                edit_rewards[b, s, m] = _rouge_l(precision, recall, bound.beta)
