"""What the n-gram kernels read: flat arrays in named tuples, which numba passes around as they are.

A trie is an open-addressing table of `keys`, (parent node, next word) in one number, and `children`, the node
that each key leads to. No computation here.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

GLEU, BLEU, BLEU_COCO, CIDER_D = 0, 1, 2, 3
NO_EOS = -2  # no word is -2: everything negative is read as OTHER, -1
EMPTY = -1


class DocumentTable(NamedTuple):
    """A trie with one root (0) over a corpus; idf [nodes] = log(documents) - log(df), unseen_idf =
    log(documents).
    """

    keys: Ints
    children: NDArray[np.int32]
    idf: Floats
    unseen_idf: float


class ReferenceTable(NamedTuple):
    """A trie with root b for input b; postings of a node: what its n-gram can match, as often as `count`."""

    keys: Ints
    children: NDArray[np.int32]
    posting_offsets: Ints  # [nodes + 1]
    posting_total: Ints  # [postings], which of the input's references, or 0 where any will do
    posting_count: Ints  # [postings]
    posting_weight: Floats  # [postings], count x idf
    first_reference: Ints  # [B + 1]
    lengths: Ints  # [references], in words
    inverse_norms: Floats  # [references, max_order], of the tf-idf vectors; 0 where there is none


class Binding(NamedTuple):
    """All that the n-gram rewards score a sentence of input b by."""

    kind: int  # GLEU, BLEU, BLEU_COCO or CIDER_D
    references: ReferenceTable
    documents: DocumentTable
    max_order: int
    sigma: float


class Rows(NamedTuple):
    """Joint actions as sentences; the agents of an input stand first."""

    words: Ints  # [B, R, N], -1 for every word below 0
    num_agents: Ints  # [B]
    read: Ints  # [B, R], positions up to and with the first eos
    length: Ints  # [B, R], words of the sentence: less than those read where the eos is no word


class PlannedEdits(NamedTuple):
    """Edits [B, S, M] of the first S rows, and what they do to the sentence."""

    position: Ints
    words: Ints  # [B, S, M, 2]
    width: Ints
    read: Ints  # as of the edited row; -1 where it is masked or changes no word of the sentence
    length: Ints


class Scratch(NamedTuple):
    """Memory of one thread, for one sentence at a time.

    `totals` is all that a score is made of: the matches [references, order] of GLEU, [1, order] of BLEU; of
    CIDEr-D the similarities [references, order], in the last row but one the squared norm of each order, and
    in the last the number of its n-grams that have a weight. Counts are exact in float64.
    """

    row: Ints  # [N], the words, edited in place
    nodes: Ints  # [N, order], of the n-grams that start at each word of the unedited row; -1 where none is
    counts: Ints  # how often the sentence has a node's n-gram, all 0 between sentences
    totals: Floats
    unedited: Floats  # the totals of the sentence
    emptied: Floats  # and without the n-grams that cover the edited words
    covered: Ints  # the nodes of these
    changed: Ints  # the nodes that one edit takes away or adds
    penalties: Floats  # of CIDEr-D, by the difference of lengths
    keys: Ints  # of CIDEr-D: the n-grams of one input's sentences seen so far, a trie with root 0
    children: NDArray[np.int32]
    num_nodes: Ints  # [1]
    own_nodes: Ints  # [nodes, 2], where the n-gram stands among the references' and the documents'
    own_weights: Floats  # [nodes], inverse document frequency
