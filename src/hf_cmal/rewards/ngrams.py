"""The n-gram kernels: GLEU, sentence BLEU and CIDEr-D of sentences and of edits of them.

An n-gram is a node of a trie, kept in one open-addressing table whose key is (parent node, next word), both
in full: keys are exact for word ids up to 2**31, nothing is hashed away. Every input of a batch has its own
root, so one table holds all references. A score is a function of a few totals, which each n-gram of the
sentence adds to. An edit takes away the n-grams that cover it, once for all edits of the same agents that
follow each other, and adds those that its words make; where it writes or removes an eos, so do the words
behind it.

Rows and planned edits come from `rows.py`, options and tensors are handled in `bound.py`; which paper defines
a score is told in `gleu.py`, `bleu.py` and `cider.py`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_cmal.rewards.kernel import kernel, kernel_without_allocation, part
from hf_cmal.rewards.tables import (
    BLEU,
    BLEU_COCO,
    CIDER_D,
    EMPTY,
    GLEU,
    Binding,
    DocumentTable,
    Floats,
    Ints,
    PlannedEdits,
    ReferenceTable,
    Rows,
    Scratch,
)

# Fibonacci hashing: 2**64 / golden ratio as a signed number; products wrap around.
MULTIPLIER = -7046029254386353131

# ---- tries and tables --------------------------------------------------------------------------------------


@part
def _slot(keys: Ints, key: int) -> int:
    """Where `key` stands, or the empty slot where it would."""
    last = keys.size - 1
    mixed = key * MULTIPLIER
    slot = (mixed ^ (mixed >> 32)) & last
    while keys[slot] != EMPTY and keys[slot] != key:
        slot = (slot + 1) & last
    return slot


@part
def _key(parent: int, word: int) -> int:
    return (parent << 32) | (word + 1)


@part
def _child(keys: Ints, children: NDArray[np.int32], parent: int, word: int) -> int:
    """The node of parent's n-gram followed by word, -1 where there is none."""
    if parent < 0:
        return -1
    child: int = children[_slot(keys, _key(parent, word))]
    return child


@kernel
def build_trie(words: Ints, offsets: Ints, roots: Ints, owners: Ints, num_roots: int, max_order: int) -> Any:
    """A trie over sentences, and per node the number of distinct owners that contain it.

    Sentence r is words[offsets[r]:offsets[r + 1]], starts at node roots[r] and belongs to owners[r]; the
    sentences of one owner stand together. Returns keys, children, owner counts [nodes].
    """
    capacity = 1024
    while capacity < 4 * num_roots:
        capacity *= 2
    keys = np.full(capacity, EMPTY, np.int64)
    children = np.full(capacity, -1, np.int32)
    owner_count = np.zeros(capacity, np.int64)
    last_owner = np.full(capacity, -1, np.int64)
    num_nodes = num_roots
    for r in range(offsets.size - 1):
        while 2 * (num_nodes + max_order * (offsets[r + 1] - offsets[r])) > capacity:
            capacity *= 2
            old_keys, old_children = keys, children
            keys = np.full(capacity, EMPTY, np.int64)
            children = np.full(capacity, -1, np.int32)
            for old in range(old_keys.size):
                if old_keys[old] != EMPTY:
                    slot = _slot(keys, old_keys[old])
                    keys[slot] = old_keys[old]
                    children[slot] = old_children[old]
            owner_count = np.append(owner_count, np.zeros(capacity - owner_count.size, np.int64))
            last_owner = np.append(last_owner, np.full(capacity - last_owner.size, -1, np.int64))
        for i in range(offsets[r], offsets[r + 1]):
            node = roots[r]
            for n in range(min(max_order, offsets[r + 1] - i)):
                key = _key(node, words[i + n])
                slot = _slot(keys, key)
                if keys[slot] == EMPTY:
                    keys[slot] = key
                    children[slot] = num_nodes
                    num_nodes += 1
                node = int(children[slot])
                if last_owner[node] != owners[r]:
                    last_owner[node] = owners[r]
                    owner_count[node] += 1
    return keys, children, owner_count[:num_nodes].copy()


@kernel
def build_reference_table(
    words: Ints,
    offsets: Ints,
    input_of: Ints,
    first_reference: Ints,
    max_order: int,
    documents: DocumentTable,
    any_reference: bool,
) -> ReferenceTable:
    """Counts the n-grams of all references of a batch; see `PackedReferences` for the arguments.

    With `any_reference` an n-gram matches as often as the reference that has most of it, else each reference
    counts for itself.
    """
    num_references = offsets.size - 1
    each = np.arange(num_references)
    keys, children, owner_count = build_trie(
        words, offsets, input_of, each, first_reference.size - 1, max_order
    )
    num_nodes = owner_count.size
    posting_offsets = np.zeros(num_nodes + 1, np.int64)
    posting_offsets[1:] = np.cumsum(owner_count)
    num_postings = posting_offsets[num_nodes]
    posting_reference = np.full(num_postings, -1, np.int64)
    posting_total = np.zeros(num_postings, np.int64)
    posting_count = np.zeros(num_postings, np.int64)
    filled = np.zeros(num_nodes, np.int64)
    order = np.zeros(num_nodes, np.int64)
    idf = np.zeros(num_nodes, np.float64)
    for r in range(num_references):
        for i in range(offsets[r], offsets[r + 1]):
            node, document_node = input_of[r], 0
            for n in range(min(max_order, offsets[r + 1] - i)):
                node = int(_child(keys, children, node, words[i + n]))
                document_node = int(_child(documents.keys, documents.children, document_node, words[i + n]))
                order[node] = n
                idf[node] = documents.idf[document_node] if document_node >= 0 else documents.unseen_idf
                posting = posting_offsets[node] + filled[node] - 1
                if filled[node] == 0 or posting_reference[posting] != r:
                    posting += 1
                    filled[node] += 1
                    posting_reference[posting] = r
                    posting_total[posting] = r - first_reference[input_of[r]]
                posting_count[posting] += 1
    posting_weight = np.zeros(num_postings, np.float64)
    max_count = np.zeros(num_nodes, np.int64)
    norms = np.zeros((num_references, max_order), np.float64)
    for node in range(num_nodes):
        for posting in range(posting_offsets[node], posting_offsets[node + 1]):
            weight = posting_count[posting] * idf[node]
            posting_weight[posting] = weight
            norms[posting_reference[posting], order[node]] += weight * weight
            max_count[node] = max(max_count[node], posting_count[posting])
    inverse_norms = np.zeros((num_references, max_order), np.float64)
    for r in range(num_references):
        for n in range(max_order):
            if norms[r, n] > 0.0:
                inverse_norms[r, n] = 1.0 / np.sqrt(norms[r, n])
    if any_reference:
        posting_offsets = np.arange(num_nodes + 1)
        posting_total = np.zeros(num_nodes, np.int64)
        posting_count = max_count
        posting_weight = np.zeros(num_nodes, np.float64)
    return ReferenceTable(
        keys, children, posting_offsets, posting_total, posting_count, posting_weight,
        first_reference, offsets[1:] - offsets[:-1], inverse_norms,
    )  # fmt: skip


# ---- one n-gram --------------------------------------------------------------------------------------------


@part
def _follow(parent: int, word: int, bound: Binding, scratch: Scratch) -> int:
    """The node of parent's n-gram followed by word, in the trie of the references; -1 where there is none.

    CIDEr-D's norm counts the n-grams of no reference too: its nodes are those of a trie of the sentences of
    one input, where each is inserted when it is first seen.
    """
    references, documents = bound.references, bound.documents
    if bound.kind != CIDER_D:
        return int(_child(references.keys, references.children, parent, word))
    key = _key(parent, word)
    slot = _slot(scratch.keys, key)
    if scratch.keys[slot] == key:
        known: int = scratch.children[slot]
        return known
    node = scratch.num_nodes[0]
    scratch.num_nodes[0] = node + 1
    scratch.keys[slot] = key
    scratch.children[slot] = node
    in_references, in_documents = scratch.own_nodes[parent, 0], scratch.own_nodes[parent, 1]
    scratch.own_nodes[node, 0] = _child(references.keys, references.children, in_references, word)
    document = _child(documents.keys, documents.children, in_documents, word)
    scratch.own_nodes[node, 1] = document
    scratch.own_weights[node] = documents.idf[document] if document >= 0 else documents.unseen_idf
    return int(node)


@part
def _change(node: int, n: int, sign: int, bound: Binding, scratch: Scratch) -> None:
    """Adds (sign 1) or takes away (-1) one n-gram of order n + 1."""
    references, counts, totals = bound.references, scratch.counts, scratch.totals
    fewer = counts[node] if sign > 0 else counts[node] - 1  # how often it stands without this one
    counts[node] += sign
    if bound.kind != CIDER_D:
        for posting in range(references.posting_offsets[node], references.posting_offsets[node + 1]):
            if fewer < references.posting_count[posting]:
                totals[references.posting_total[posting], n] += sign
        return
    weight = scratch.own_weights[node]
    if weight > 0.0:
        norms = totals.shape[0] - 2
        totals[norms, n] += sign * weight * weight * (2 * fewer + 1)  # (c + 1)^2 - c^2
        totals[norms + 1, n] += sign
        in_references = scratch.own_nodes[node, 0]
        if in_references >= 0:
            begin = references.posting_offsets[in_references]
            for posting in range(begin, references.posting_offsets[in_references + 1]):
                other = references.posting_weight[posting]
                more = min(weight * (fewer + 1), other) - min(weight * fewer, other)  # clipped
                totals[references.posting_total[posting], n] += sign * more * other


# ---- totals to scores --------------------------------------------------------------------------------------


@part
def _num_ngrams(length: int, max_order: int) -> int:
    total = 0
    for n in range(max_order):
        total += max(0, length - n)
    return total


@part
def _gleu(length: int, matches: Floats, lengths: Ints, max_order: int) -> float:
    best = 0.0
    total = _num_ngrams(length, max_order)
    for r in range(lengths.size):
        matched = 0.0
        for n in range(max_order):
            matched += matches[r, n]
        # min(precision, recall): the same matches over the larger of the two totals
        best = max(best, matched / max(total, _num_ngrams(lengths[r], max_order)))
    return best


@part
def _closest_length(length: int, lengths: Ints) -> int:
    """Of two equally close references the shorter one."""
    closest = lengths[0]
    for r in range(lengths.size):
        candidate = lengths[r]
        nearer = abs(candidate - length) - abs(closest - length)
        if nearer < 0 or (nearer == 0 and candidate < closest):
            closest = candidate
    return int(closest)


@part
def _bleu(length: int, correct: Floats, lengths: Ints, max_order: int) -> float:
    if correct[0, 0] == 0.0:
        return 0.0
    log_precision, smoothing = 0.0, 1.0
    effective_order = min(max_order, length)
    for n in range(effective_order):
        if correct[0, n] > 0.0:
            log_precision += np.log(correct[0, n] / (length - n))
        else:  # NIST's exponential smoothing, sacrebleu's `exp`
            smoothing *= 2.0
            log_precision -= np.log(smoothing * (length - n))
    brevity = min(0.0, 1.0 - _closest_length(length, lengths) / length)
    score: float = np.exp(brevity + log_precision / effective_order)
    return score


@part
def _bleu_coco(length: int, correct: Floats, lengths: Ints, max_order: int) -> float:
    tiny, small = 1e-15, 1e-9  # pycocoevalcap's, against divisions of and by zero
    product = 1.0
    for n in range(max_order):
        product *= (correct[0, n] + tiny) / (max(0, length - n) + small)
    ratio = (length + tiny) / (_closest_length(length, lengths) + small)
    score: float = product ** (1.0 / max_order) * np.exp(min(0.0, 1.0 - 1.0 / ratio))
    return score


@part
def _cider_d(length: int, totals: Floats, lengths: Ints, inverse_norms: Floats, penalties: Floats) -> float:
    norms, max_order = totals.shape[0] - 2, totals.shape[1]
    total = 0.0
    for n in range(max_order):
        # What is left of a norm after additions and subtractions is noise where no n-gram has a weight.
        if totals[norms + 1, n] > 0.0 and totals[norms, n] > 0.0:
            of_order = 0.0
            for r in range(lengths.size):
                # pycocoevalcap measures length in bigrams: a one-word and an empty sentence have equal length
                delta = max(0, length - 1) - max(0, lengths[r] - 1)
                of_order += penalties[abs(delta)] * totals[r, n] * inverse_norms[r, n]
            total += of_order / np.sqrt(totals[norms, n])
    score: float = 10.0 * total / (max_order * lengths.size)
    return score


@part
def _score(length: int, b: int, bound: Binding, scratch: Scratch) -> float:
    """The score of a sentence of `length` words whose n-grams the totals hold."""
    references, totals = bound.references, scratch.totals
    first, end = references.first_reference[b], references.first_reference[b + 1]
    lengths = references.lengths[first:end]
    if bound.kind == GLEU:
        return _gleu(length, totals, lengths, bound.max_order)
    if bound.kind == BLEU:
        return _bleu(length, totals, lengths, bound.max_order)
    if bound.kind == BLEU_COCO:
        return _bleu_coco(length, totals, lengths, bound.max_order)
    return _cider_d(length, totals, lengths, references.inverse_norms[first:end], scratch.penalties)


# ---- sentences and edits -----------------------------------------------------------------------------------


def make_scratch(rows: Rows, bound: Binding) -> Scratch:
    """Memory of one thread."""
    references, max_order, most_words = bound.references, bound.max_order, rows.words.shape[2]
    is_cider = bound.kind == CIDER_D
    most_ngrams = most_words * max_order
    capacity = 2
    if is_cider:
        capacity = 8192  # stays in the second-level cache
        while capacity < 4 * (most_ngrams + 4 * max_order):
            capacity *= 2
    num_totals = int(np.diff(references.first_reference).max()) + (2 if is_cider else 0)
    distances = np.arange(max(most_words, int(references.lengths.max())) + 1)
    return Scratch(
        row=np.zeros(most_words, np.int64),
        nodes=np.full((most_words, max_order), -1, np.int64),
        counts=np.zeros(max(references.posting_offsets.size, capacity // 2), np.int64),
        totals=np.zeros((num_totals, max_order)),
        unedited=np.zeros((num_totals, max_order)),
        emptied=np.zeros((num_totals, max_order)),
        covered=np.zeros(most_ngrams, np.int64),
        changed=np.zeros(3 * most_ngrams, np.int64),
        penalties=np.exp(-(distances**2) / (2.0 * bound.sigma**2)),
        keys=np.full(capacity, EMPTY, np.int64),
        children=np.zeros(capacity, np.int32),
        num_nodes=np.ones(1, np.int64),
        own_nodes=np.zeros((capacity // 2, 2), np.int64),
        own_weights=np.zeros(capacity // 2),
    )


@part
def _copy(source: Floats, target: Floats) -> None:
    for i in range(source.shape[0]):
        for n in range(source.shape[1]):
            target[i, n] = source[i, n]


@part
def _change_known(
    start: int, stop: int, reaches: int, length: int, sign: int, changed: Ints, num_changed: int,
    bound: Binding, scratch: Scratch,
) -> int:  # fmt: skip
    """Changes the n-grams of the unedited row that start in [start, stop), reach the word `reaches` and lie
    within `length` words. Notes them in `changed`, and returns how many it holds.
    """
    for i in range(start, min(stop, length)):
        for n in range(max(0, reaches - i), min(bound.max_order, length - i)):
            node = scratch.nodes[i, n]
            if node < 0:
                break
            _change(node, n, sign, bound, scratch)
            changed[num_changed] = node
            num_changed += 1
    return num_changed


@part
def _add_written(
    lo: int, hi: int, length: int, root: int, num_changed: int, bound: Binding, scratch: Scratch
) -> int:
    """Adds the n-grams of the edited row that cover [lo, hi) and lie within `length` words; notes them."""
    row, nodes = scratch.row, scratch.nodes
    if hi - lo == 1 and (lo >= length or _follow(root, row[lo], bound, scratch) < 0):
        return num_changed  # no n-gram with this word counts
    for i in range(max(0, lo - bound.max_order + 1), min(hi, length)):
        node = root if i >= lo else nodes[i, lo - 1 - i]
        if node < 0:
            continue
        for n in range(max(0, lo - i), min(bound.max_order, length - i)):
            node = _follow(node, row[i + n], bound, scratch)
            if node < 0:
                break
            _change(node, n, 1, bound, scratch)
            scratch.changed[num_changed] = node
            num_changed += 1
    return num_changed


@part
def _begin_input(b: int, scratch: Scratch) -> None:
    """Empties CIDEr-D's trie of sentences; its root is input b's among the references."""
    scratch.counts[: scratch.num_nodes[0]] = 0
    scratch.keys[:] = EMPTY
    scratch.num_nodes[0] = 1
    scratch.own_nodes[0, 0] = b


@part
def _begin_sentence(num_words: int, length: int, root: int, bound: Binding, scratch: Scratch) -> None:
    """Finds the n-grams of the row's first `num_words` and adds those of its first `length`."""
    for i in range(num_words):
        node = root
        for n in range(bound.max_order):
            if i + n < num_words and node >= 0:
                node = _follow(node, scratch.row[i + n], bound, scratch)
                scratch.nodes[i, n] = node
            else:
                scratch.nodes[i, n] = -1
    scratch.totals[:] = 0.0
    _change_known(0, length, 0, length, 1, scratch.changed, 0, bound, scratch)


@part
def _end_sentence(length: int, scratch: Scratch) -> None:
    """Sets its counts to 0 again."""
    for i in range(length):
        for n in range(min(scratch.nodes.shape[1], length - i)):
            if scratch.nodes[i, n] >= 0:
                scratch.counts[scratch.nodes[i, n]] = 0


@part
def _is_cancelled(bound: Binding, scratch: Scratch) -> bool:
    """Whether an edit left so little of a norm that what was subtracted from it has rounded it away.

    Only CIDEr-D's totals are no whole numbers.
    """
    if bound.kind != CIDER_D:
        return False
    norms = scratch.totals.shape[0] - 2
    for n in range(bound.max_order):
        left, before = scratch.totals[norms, n], scratch.unedited[norms, n]
        if scratch.totals[norms + 1, n] > 0.0 and left < 1e-6 * before:
            return True
    return False


@part
def _score_edit(
    lo: int, hi: int, read: int, length: int, new_read: int, new_length: int, b: int, root: int,
    bound: Binding, scratch: Scratch,
) -> Any:  # fmt: skip
    """Scores the row whose words [lo, hi) are edited and emptied, and takes the edit back.

    Returns the score, and whether it is none because of rounding.
    """
    changed, num_silenced = scratch.changed, 0
    if new_read < read:  # an eos was written: the words behind it fall silent
        num_silenced = _change_known(hi, length, hi, length, -1, changed, 0, bound, scratch)
    num_changed = _add_written(lo, hi, new_length, root, num_silenced, bound, scratch)
    if new_read > read:  # the eos was overwritten: the words behind it come alive
        num_changed = _change_known(hi, new_length, hi, new_length, 1, changed, num_changed, bound, scratch)
    reward, is_cancelled = _score(new_length, b, bound, scratch), _is_cancelled(bound, scratch)
    for at in range(num_changed):
        scratch.counts[changed[at]] += 1 if at < num_silenced else -1
    _copy(scratch.emptied, scratch.totals)
    return reward, is_cancelled


@kernel_without_allocation
def score_rows(
    rows: Rows, edits: PlannedEdits, bound: Binding, begin: int, end: int, rewards: Floats,
    edit_rewards: Floats, scratch: Scratch,
) -> None:  # fmt: skip
    """Scores the rows of inputs begin to end, into float64 [B, R], and edits of their first S, into float64
    [B, S, M].
    """
    row, is_cider, max_order = scratch.row, bound.kind == CIDER_D, bound.max_order
    num_samples, num_edits = edits.position.shape[1], edits.position.shape[2]
    spare = scratch.nodes.size + 4 * max_order  # n-grams of a sentence, and more than two words make
    for b in range(begin, end):
        root = 0 if is_cider else b
        if is_cider:
            _begin_input(b, scratch)
        for s in range(rows.words.shape[1]):
            has_edits = s < num_samples and num_edits > 0
            read, length = rows.read[b, s], rows.length[b, s]
            num_words = rows.num_agents[b] if has_edits else length
            for i in range(num_words):
                row[i] = rows.words[b, s, i]
            if is_cider and scratch.num_nodes[0] + spare > scratch.own_weights.size:
                _begin_input(b, scratch)
            _begin_sentence(num_words, length, root, bound, scratch)
            reward = _score(length, b, bound, scratch)
            rewards[b, s] = reward
            _copy(scratch.totals, scratch.unedited)
            num_covered, last_lo, last_hi = 0, -1, -1
            for m in range(num_edits if has_edits else 0):
                new_read, new_length = edits.read[b, s, m], edits.length[b, s, m]
                if new_read < 0:
                    edit_rewards[b, s, m] = reward
                    continue
                if is_cider and scratch.num_nodes[0] + spare > scratch.own_weights.size:
                    _begin_input(b, scratch)  # full: the sentence is found again
                    _begin_sentence(num_words, length, root, bound, scratch)
                    num_covered, last_lo = 0, -1
                lo = edits.position[b, s, m]
                hi = lo + edits.width[b, s, m]
                if lo != last_lo or hi != last_hi:
                    for at in range(num_covered):
                        scratch.counts[scratch.covered[at]] += 1
                    _copy(scratch.unedited, scratch.totals)
                    first = max(0, lo - max_order + 1)
                    num_covered = _change_known(first, hi, lo, length, -1, scratch.covered, 0, bound, scratch)
                    _copy(scratch.totals, scratch.emptied)
                    last_lo, last_hi = lo, hi
                for p in range(lo, hi):
                    row[p] = edits.words[b, s, m, p - lo]
                edit_rewards[b, s, m], is_cancelled = _score_edit(
                    lo, hi, read, length, new_read, new_length, b, root, bound, scratch
                )
                if is_cancelled:  # rarely: the edited sentence is scored by itself
                    for at in range(num_covered):
                        scratch.counts[scratch.covered[at]] += 1
                    _end_sentence(length, scratch)
                    _begin_sentence(new_length, new_length, root, bound, scratch)
                    edit_rewards[b, s, m] = _score(new_length, b, bound, scratch)
                    _end_sentence(new_length, scratch)
                for p in range(lo, hi):
                    row[p] = rows.words[b, s, p]
                if is_cancelled:
                    _begin_sentence(num_words, length, root, bound, scratch)
                    num_covered, last_lo = 0, -1
            _end_sentence(length, scratch)
