"""The n-gram kernels: tries of references on token ids; GLEU, sentence BLEU and CIDEr-D of whole
sentences, and the share of repeated words.

An n-gram is a node of a trie, kept in one open-addressing table whose key is (parent node, next word), both
in full: keys are exact for word ids up to 2**31, nothing is hashed away. Every input of a batch has its own
root, so one table holds all references. An edit is written into a buffer and its sentence scored again.
Options, checks and tensors are handled in `bound.py`; which paper defines a score is told in `gleu.py`,
`bleu.py` and `cider.py`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_cmal.rewards.kernel import kernel
from hf_cmal.rewards.tables import (
    BLEU,
    EMPTY,
    GLEU,
    REPETITION,
    Binding,
    DocumentTable,
    Floats,
    Ints,
    ReferenceTable,
    Scratch,
)

# Fibonacci hashing: 2**64 / golden ratio as a signed number; products wrap around.
MULTIPLIER = -7046029254386353131


@kernel
def _slot(keys: Ints, key: int) -> int:
    """Where `key` stands, or the empty slot where it would."""
    last = keys.size - 1
    mixed = key * MULTIPLIER
    slot = (mixed ^ (mixed >> 32)) & last
    while keys[slot] != EMPTY and keys[slot] != key:
        slot = (slot + 1) & last
    return slot


@kernel
def _key(parent: int, word: int) -> int:
    return (parent << 32) | (word + 1)


@kernel
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
) -> ReferenceTable:
    """Counts the n-grams of all references of a batch; see `PackedReferences` for the arguments."""
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
    return ReferenceTable(
        keys, children, posting_offsets, posting_reference, posting_count, posting_weight, max_count,
        first_reference, offsets[1:] - offsets[:-1], np.sqrt(norms),
    )  # fmt: skip


@kernel
def _num_ngrams(length: int, max_order: int) -> int:
    total = 0
    for n in range(max_order):
        total += max(0, length - n)
    return total


@kernel
def _gleu(length: int, b: int, references: ReferenceTable, max_order: int, scratch: Scratch) -> float:
    first, end = references.first_reference[b], references.first_reference[b + 1]
    counts, matches = scratch.counts, scratch.matches
    matches[: end - first] = 0
    num_touched = 0
    for i in range(length):
        node = b
        for n in range(min(max_order, length - i)):
            node = int(_child(references.keys, references.children, node, scratch.sentence[i + n]))
            if node < 0:
                break
            for posting in range(references.posting_offsets[node], references.posting_offsets[node + 1]):
                if counts[node] < references.posting_count[posting]:
                    matches[references.posting_reference[posting] - first] += 1
            counts[node] += 1
            scratch.touched[num_touched] = node
            num_touched += 1
    for t in range(num_touched):
        counts[scratch.touched[t]] = 0
    best = 0.0
    total = _num_ngrams(length, max_order)
    for r in range(first, end):
        # min(precision, recall): the same matches over the larger of the two totals
        best = max(best, matches[r - first] / max(total, _num_ngrams(references.lengths[r], max_order)))
    return best


@kernel
def _bleu(length: int, b: int, references: ReferenceTable, max_order: int, scratch: Scratch) -> float:
    counts = scratch.counts
    correct = np.zeros(max_order, np.int64)
    num_touched = 0
    for i in range(length):
        node = b
        for n in range(min(max_order, length - i)):
            node = int(_child(references.keys, references.children, node, scratch.sentence[i + n]))
            if node < 0:
                break
            if counts[node] < references.max_count[node]:
                correct[n] += 1
            counts[node] += 1
            scratch.touched[num_touched] = node
            num_touched += 1
    for t in range(num_touched):
        counts[scratch.touched[t]] = 0
    if correct.sum() == 0:
        return 0.0
    closest = -1
    for r in range(references.first_reference[b], references.first_reference[b + 1]):
        candidate = references.lengths[r]
        nearer = abs(candidate - length) < abs(closest - length)
        if (
            closest < 0
            or nearer
            or (abs(candidate - length) == abs(closest - length) and candidate < closest)
        ):
            closest = candidate
    log_precision, smoothing = 0.0, 1.0
    effective_order = min(max_order, length)
    for n in range(effective_order):
        if correct[n] > 0:
            log_precision += np.log(correct[n] / (length - n))
        else:  # NIST's exponential smoothing, sacrebleu's `exp`
            smoothing *= 2.0
            log_precision -= np.log(smoothing * (length - n))
    brevity = min(0.0, 1.0 - closest / length)
    score: float = np.exp(brevity + log_precision / effective_order)
    return score


@kernel
def _cider_d(length: int, b: int, bound: Binding, scratch: Scratch) -> float:
    references, documents, max_order = bound.references, bound.documents, bound.max_order
    keys, children, nodes, similarity = scratch.keys, scratch.children, scratch.nodes, scratch.similarity
    first, end = references.first_reference[b], references.first_reference[b + 1]
    keys[:] = EMPTY
    nodes[0] = 0, 0, b, -1
    num_nodes = 1
    for i in range(length):
        parent = 0
        for n in range(min(max_order, length - i)):
            word = scratch.sentence[i + n]
            key = _key(parent, word)
            slot = _slot(keys, key)
            if keys[slot] == EMPTY:
                keys[slot] = key
                children[slot] = num_nodes
                nodes[num_nodes, 0] = 0
                nodes[num_nodes, 1] = _child(documents.keys, documents.children, nodes[parent, 1], word)
                nodes[num_nodes, 2] = _child(references.keys, references.children, nodes[parent, 2], word)
                nodes[num_nodes, 3] = n
                num_nodes += 1
            parent = int(children[slot])
            nodes[parent, 0] += 1
    norm = np.zeros(max_order, np.float64)
    similarity[: end - first] = 0.0
    for node in range(1, num_nodes):
        frequency, document_node, reference_node, order = nodes[node]
        weight = frequency * (documents.idf[document_node] if document_node >= 0 else documents.unseen_idf)
        norm[order] += weight * weight
        if reference_node >= 0:
            begin, stop = (
                references.posting_offsets[reference_node],
                references.posting_offsets[reference_node + 1],
            )
            for posting in range(begin, stop):
                other = references.posting_weight[posting]
                similarity[references.posting_reference[posting] - first, order] += min(weight, other) * other
    total = 0.0
    for r in range(first, end):
        # pycocoevalcap measures length in bigrams: a one-word and an empty sentence have equal length
        delta = max(0, length - 1) - max(0, references.lengths[r] - 1)
        penalty = np.exp(-(delta * delta) / (2.0 * bound.sigma * bound.sigma))
        for n in range(max_order):
            scale = np.sqrt(norm[n]) * references.norms[r, n]
            if scale > 0.0:
                total += penalty * similarity[r - first, n] / scale
    score: float = 10.0 * total / (max_order * (end - first))
    return score


@kernel
def _repetition(length: int, scratch: Scratch) -> float:
    repeated = 0
    for i in range(1, length):
        # OTHER is any word: not the same one twice
        repeated += scratch.sentence[i] >= 0 and scratch.sentence[i] == scratch.sentence[i - 1]
    return -repeated / max(length, 1)


@kernel
def _score_row(row: Ints, b: int, bound: Binding, scratch: Scratch) -> float:
    """Reads the sentence of one joint action, up to the first eos of an agent, and scores it."""
    length = 0
    for i in range(row.size):
        if not bound.agent_mask[b, i]:
            continue
        is_eos = row[i] == bound.eos
        if not is_eos or bound.count_eos:
            scratch.sentence[length] = max(row[i], -1)
            length += 1
        if is_eos:
            break
    if bound.kind == GLEU:
        return _gleu(length, b, bound.references, bound.max_order, scratch)
    if bound.kind == BLEU:
        return _bleu(length, b, bound.references, bound.max_order, scratch)
    if bound.kind == REPETITION:
        return _repetition(length, scratch)
    return _cider_d(length, b, bound, scratch)


@kernel
def _make_scratch(bound: Binding) -> Scratch:
    first_reference, num_agents = bound.references.first_reference, bound.agent_mask.shape[1]
    most_references = (first_reference[1:] - first_reference[:-1]).max()
    most_ngrams = num_agents * bound.max_order
    capacity = 16
    while capacity < 2 * most_ngrams:
        capacity *= 2
    return Scratch(
        np.zeros(num_agents, np.int64),
        np.zeros(bound.references.max_count.size, np.int64),
        np.zeros(most_ngrams, np.int64),
        np.zeros(most_references, np.int64),
        np.zeros((most_references, bound.max_order), np.float64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int32),
        np.zeros((most_ngrams + 1, 4), np.int64),
    )


@kernel
def score_rows(actions: Ints, bound: Binding) -> Floats:
    """Scores int64 [B, R, N] joint actions of at least one input -> float64 [B, R]."""
    num_inputs, num_rows, _ = actions.shape
    scratch = _make_scratch(bound)
    rewards = np.zeros((num_inputs, num_rows), np.float64)
    for b in range(num_inputs):
        for r in range(num_rows):
            rewards[b, r] = _score_row(actions[b, r], b, bound, scratch)
    return rewards


@kernel
def score_edited_rows(
    actions: Ints, position: Ints, words: Ints, width: Ints, mask: NDArray[np.bool_], bound: Binding
) -> Floats:
    """Scores edits [B, S, M] of joint actions int64 [B, R >= S, N] -> float64 [B, S, M], 0 where not mask."""
    num_inputs, num_samples, num_edits = position.shape
    num_agents = actions.shape[2]
    scratch = _make_scratch(bound)
    rewards = np.zeros((num_inputs, num_samples, num_edits), np.float64)
    for b in range(num_inputs):
        for s in range(num_samples):
            row = actions[b, s].copy()
            unedited = _score_row(row, b, bound, scratch)
            alive = 0  # the positions before this one are read, up to and with the first eos
            while alive < num_agents:
                alive += 1
                if bound.agent_mask[b, alive - 1] and row[alive - 1] == bound.eos:
                    break
            for m in range(num_edits):
                if not mask[b, s, m]:
                    continue
                start, end = position[b, s, m], position[b, s, m] + width[b, s, m]
                changes = False
                for p in range(start, end):
                    word = words[b, s, m, p - start]
                    changes = changes or (p < alive and bound.agent_mask[b, p] and word != row[p])
                    row[p] = word
                rewards[b, s, m] = _score_row(row, b, bound, scratch) if changes else unedited
                row[start:end] = actions[b, s, start:end]
    return rewards
