"""ROUGE-L of Lin (2004) as pycocoevalcap computes it: one of the metrics of captions (Sec. 5.1.1).

An F-score of the longest common subsequence with the references, recall weighing beta times as much. With
several references precision and recall are each the best of any. Subsequences are found in `lcs.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from hf_cmal.rewards.base import package_version
from hf_cmal.rewards.bound import BoundKernelReward, candidate_words, pack_batch, yes_or_no
from hf_cmal.rewards.lcs import LcsBinding, make_lcs_scratch, score_subsequences
from hf_cmal.rewards.rows import Reading
from hf_cmal.rewards.tables import NO_EOS


@dataclass(frozen=True, kw_only=True)
class RougeLReward:
    """ROUGE-L in [0, 1].

    Args:
        beta: the weight of recall against precision, pycocoevalcap's 1.2.
        count_eos: eos counts as a word where `bind` is given its id.

    Example:
        >>> bound = RougeLReward().bind([[[5, 6, 7]]], torch.ones(1, 3, dtype=torch.bool), eos_token_id=None)
        >>> bound.score(torch.tensor([[[5, 9, 7]]]))  # 2 words in common, of 3 and 3
        tensor([[0.6667]], dtype=torch.float64)
    """

    name: ClassVar[str] = "rouge-l"

    beta: float = 1.2
    count_eos: bool = True

    def __post_init__(self) -> None:
        if not self.beta > 0:
            raise ValueError(f"beta weighs recall against precision and must be positive, got {self.beta}")

    @property
    def signature(self) -> str:
        return f"rouge-l|beta:{self.beta}|eos:{yes_or_no(self.count_eos)}|v:{package_version()}"

    def bind(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> BoundKernelReward:
        """See `Reward.bind`. Words that no reference contains are all worth the same: `other_is_exact`."""
        eos = NO_EOS if eos_token_id is None else eos_token_id
        reading = Reading.of(agent_mask, eos=eos, count_eos=self.count_eos)
        packed = pack_batch(references, agent_mask, eos_token_id=eos_token_id, count_eos=self.count_eos)
        return BoundKernelReward(
            kernel=score_subsequences,
            binding=LcsBinding(packed.words, packed.offsets, packed.first_reference, float(self.beta)),
            make_scratch=make_lcs_scratch,
            reading=reading,
            candidates=candidate_words(packed, reading).to(agent_mask.device),
            other_is_exact=True,
        )
