"""Sentence BLEU as a reward (Papineni et al. 2002; CMAL Table V uses BLEU among the rewards).

Geometric mean of clipped n-gram precisions times the brevity penalty against the closest reference length.
Effective order: a sentence of 1 to 3 words is judged by the n-grams it has. An order without match is
smoothed as in NIST's mteval-v13a: the i-th of them counts 1 / (2^i x n-grams), sacrebleu's `exp`. Equal to
sacrebleu's sentence BLEU / 100. With `coco`, equal to pycocoevalcap's, which knows no effective order and
only keeps a precision of 0 from dividing by it. This is not the reported corpus BLEU, see
`hf_cmal.metrics.bleu`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from hf_cmal.rewards.base import package_version
from hf_cmal.rewards.bound import BoundKernelReward, bind_ngrams, check_max_order, yes_or_no
from hf_cmal.rewards.tables import BLEU, BLEU_COCO

SMOOTHINGS = {"exp": BLEU, "coco": BLEU_COCO}


@dataclass(frozen=True, kw_only=True)
class BleuReward:
    """Sentence BLEU in [0, 1].

    Args:
        max_order: the longest n-gram.
        smoothing: "exp" (sacrebleu) or "coco" (pycocoevalcap).
        count_eos: eos counts as a word where `bind` is given its id.

    Example:
        >>> bound = BleuReward().bind([[[5, 6, 7]]], torch.ones(1, 3, dtype=torch.bool), eos_token_id=None)
        >>> bound.score(torch.tensor([[[5, 6, 7]]]))
        tensor([[1.]], dtype=torch.float64)
    """

    name: ClassVar[str] = "bleu"

    max_order: int = 4
    smoothing: str = "exp"
    count_eos: bool = True

    def __post_init__(self) -> None:
        check_max_order(self.max_order)
        if self.smoothing not in SMOOTHINGS:
            raise ValueError(f"smoothing is {self.smoothing!r}; legal values: {', '.join(SMOOTHINGS)}")

    @property
    def signature(self) -> str:
        eos = yes_or_no(self.count_eos)
        effective = yes_or_no(self.smoothing == "exp")
        return (
            f"bleu|n:{self.max_order}|smooth:{self.smoothing}|eff:{effective}|eos:{eos}|v:{package_version()}"
        )

    def bind(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> BoundKernelReward:
        """See `Reward.bind`. Words that no reference contains are all worth the same: `other_is_exact`."""
        return bind_ngrams(
            SMOOTHINGS[self.smoothing],
            references,
            agent_mask,
            eos_token_id=eos_token_id,
            count_eos=self.count_eos,
            max_order=self.max_order,
            other_is_exact=True,
        )
