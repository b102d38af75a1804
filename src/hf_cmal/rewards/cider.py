"""CIDEr-D of Vedantam et al. (2015), the reward of CMAL's captioning experiments (Sec. 5.1.2).

n = 1..4, sigma = 6, clipped tf-idf similarity, mean over references, times 10: pycocoevalcap's `Cider`, with
document frequencies that are given instead of counted on the evaluated images. In the reward they come from
the training references, eos included (else captions learn to end in "with a"); the reported metric is
`hf_cmal.metrics.captions`.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from hf_cmal.rewards.base import package_version
from hf_cmal.rewards.bound import BoundNgramReward, bind_ngrams, yes_or_no
from hf_cmal.rewards.ngrams import build_trie
from hf_cmal.rewards.references import pack_references
from hf_cmal.rewards.tables import CIDER_D, DocumentTable

MAX_ORDER = 4


@dataclass(frozen=True, kw_only=True)
class DocumentFrequencies:
    """How many documents (the references of one image) contain an n-gram of order 1 to 4. Made by
    `from_references`.

    Attributes:
        keys, children: the trie of all n-grams, see `ngrams.py`.
        counts: int64 [nodes], documents that contain a node's n-gram.
        num_documents: number of images.
        eos_token_id: the word that was counted at the end of every reference; None where none was.
        name: where they come from, for the signature.
    """

    keys: NDArray[np.int64] = field(repr=False)
    children: NDArray[np.int32] = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)
    num_documents: int
    eos_token_id: int | None
    name: str

    @classmethod
    def from_references(
        cls,
        references: Sequence[Sequence[Sequence[int]]],
        *,
        eos_token_id: int | None,
        count_eos: bool = True,
        name: str = "train",
    ) -> "DocumentFrequencies":
        """Counts n-grams.

        Args:
            references: per image a list of references, each a list of token ids without eos.
            eos_token_id: appended to each reference where `count_eos`; ends a reference where it stands in
            one. count_eos: must agree with the reward's option. name: appears in the reward's signature,
            `df:train(29000)`.

        Raises:
            ValueError: no images, an image without reference, or an empty reference.
        """
        if len(references) == 0:
            raise ValueError("document frequencies of no image: give the references of the training images")
        packed = pack_references(references, eos_token_id=eos_token_id, count_eos=count_eos)
        roots = np.zeros_like(packed.input_of)
        keys, children, counts = build_trie(
            packed.words, packed.offsets, roots, packed.input_of, 1, MAX_ORDER
        )
        return cls(
            keys=keys,
            children=children,
            counts=counts,
            num_documents=packed.num_inputs,
            eos_token_id=eos_token_id if count_eos else None,
            name=name,
        )

    def table(self) -> DocumentTable:
        """The same as inverse frequencies, log(images / documents); an n-gram that was never seen counts as
        seen once.
        """
        unseen = float(np.log(self.num_documents))
        return DocumentTable(self.keys, self.children, unseen - np.log(np.maximum(self.counts, 1)), unseen)


@dataclass(frozen=True)
class CiderDReward:
    """CIDEr-D in [0, 10]; an identical caption with a single reference scores 10.

    Args:
        document_frequencies: of the training references. Needed by `bind`.
        sigma: width of the length penalty, in words.
        count_eos: eos counts as a word where `bind` is given its id.

    Example:
        >>> frequencies = DocumentFrequencies.from_references(train_ids, eos_token_id=0)
        >>> bound = CiderDReward(frequencies).bind(batch_ids, agent_mask, eos_token_id=0)
    """

    name: ClassVar[str] = "cider-d"

    document_frequencies: DocumentFrequencies | None = None
    sigma: float = field(default=6.0, kw_only=True)
    count_eos: bool = field(default=True, kw_only=True)
    _table: DocumentTable | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.sigma <= 0:
            raise ValueError(
                f"sigma is the width of the length penalty and must be positive, got {self.sigma}"
            )
        frequencies = self.document_frequencies
        if frequencies is not None and frequencies.num_documents == 1:
            warnings.warn(
                "the document frequencies come from one image only: every n-gram has the inverse frequency "
                "log(1/1) = 0, so all CIDEr-D scores are 0. Count them on the training references.",
                UserWarning,
                stacklevel=3,
            )
        # Computed once: `bind` runs at every step.
        object.__setattr__(self, "_table", None if frequencies is None else frequencies.table())

    @property
    def signature(self) -> str:
        frequencies = self.document_frequencies
        source = "none" if frequencies is None else f"{frequencies.name}({frequencies.num_documents})"
        eos = yes_or_no(self.count_eos)
        return f"cider-d|n:{MAX_ORDER}|sigma:{float(self.sigma)}|eos:{eos}|df:{source}|v:{package_version()}"

    def bind(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> BoundNgramReward:
        """See `Reward.bind`. A word that no reference contains changes the score by its document frequency,
        hence `other_is_exact` is False; OTHER is scored as a word that was never seen.

        Raises:
            ValueError: no document frequencies, or they disagree with this call on whether eos is a word.
        """
        if self.document_frequencies is None or self._table is None:
            raise ValueError(
                "cider-d needs document frequencies: build them from the token ids of the training "
                "references with DocumentFrequencies.from_references(reference_ids, eos_token_id=...) and "
                "make the reward as CiderDReward(document_frequencies)"
            )
        counted_eos = eos_token_id if self.count_eos else None
        if self.document_frequencies.eos_token_id != counted_eos:
            raise ValueError(
                f"the document frequencies were counted with eos {self.document_frequencies.eos_token_id}, "
                f"the reward counts eos {counted_eos}: build them with the same eos_token_id and count_eos"
            )
        return bind_ngrams(
            CIDER_D,
            references,
            agent_mask,
            eos_token_id=eos_token_id,
            count_eos=self.count_eos,
            max_order=MAX_ORDER,
            other_is_exact=False,
            documents=self._table,
            sigma=float(self.sigma),
        )
