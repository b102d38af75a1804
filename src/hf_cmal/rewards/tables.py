"""What the n-gram kernels read: flat arrays in named tuples, which numba passes around as they are.

A trie is an open-addressing table of `keys`, (parent node, next word) in one number, and `children`, the node
that each key leads to. No computation here.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

GLEU, BLEU, CIDER_D, REPETITION = 0, 1, 2, 3
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
    """A trie with root b for input b; postings of a node: the references that contain its n-gram, how often,
    and tf-idf.
    """

    keys: Ints
    children: NDArray[np.int32]
    posting_offsets: Ints  # [nodes + 1]
    posting_reference: Ints  # [postings], index over all references of the batch
    posting_count: Ints  # [postings]
    posting_weight: Floats  # [postings], count x idf
    max_count: Ints  # [nodes], over the references
    first_reference: Ints  # [B + 1]
    lengths: Ints  # [references], in words
    norms: Floats  # [references, max_order], of the tf-idf vectors


class Binding(NamedTuple):
    """All that a sentence of input b is scored by."""

    kind: int  # GLEU, BLEU, CIDER_D or REPETITION
    references: ReferenceTable
    documents: DocumentTable
    agent_mask: NDArray[np.bool_]  # [B, N]
    eos: int  # NO_EOS where no word ends a sentence
    count_eos: bool
    max_order: int
    sigma: float


class Scratch(NamedTuple):
    """Memory that one thread reuses for each sentence."""

    sentence: Ints  # [N]
    counts: Ints  # [nodes of the reference table], all 0 between sentences
    touched: Ints  # [N * max_order]
    matches: Ints  # [references of one input]
    similarity: Floats  # [references of one input, max_order]
    keys: Ints  # a trie of the sentence itself, for n-grams that no reference contains
    children: NDArray[np.int32]
    nodes: Ints  # [N * max_order + 1, 4]: term frequency, document node, reference node, order
