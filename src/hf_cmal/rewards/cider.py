"""CIDEr-D of Vedantam et al. (2015), the reward of CMAL's captioning experiments (Sec. 5.1.2).

n = 1..4, sigma = 6, clipped tf-idf similarity, mean over references, times 10: pycocoevalcap's `Cider`, with
document frequencies that are given instead of counted on the evaluated images. In the reward they come from
the training references, eos included (else captions learn to end in "with a"): `document_frequencies.py`. The
reported metric is `hf_cmal.metrics.captions`.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from hf_cmal.rewards.base import package_version
from hf_cmal.rewards.bound import BoundKernelReward, bind_ngrams, yes_or_no
from hf_cmal.rewards.document_frequencies import MAX_ORDER, DocumentFrequencies
from hf_cmal.rewards.tables import CIDER_D, DocumentTable


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
    ) -> BoundKernelReward:
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
