"""Sentence GLEU of Wu et al. (2016), the reward of CMAL's translation experiments (Sec. 6.1.2).

GLEU = min(precision, recall) over all n-grams of orders 1 to 4 together = matches / max(n-grams of the
hypothesis, n-grams of the reference). Several references: the best one, as nltk's sentence_gleu. It works on
token ids; on whole words it is `text.word_gleu`. The n-grams are counted in `ngrams.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from hf_cmal.rewards.base import package_version
from hf_cmal.rewards.bound import BoundKernelReward, bind_ngrams, check_max_order, yes_or_no
from hf_cmal.rewards.tables import GLEU


@dataclass(frozen=True, kw_only=True)
class GleuReward:
    """Sentence GLEU in [0, 1].

    Args:
        max_order: the longest n-gram, 4 in Wu et al.
        count_eos: eos counts as a word where `bind` is given its id, so that an unfinished sentence scores
        lower.

    Example:
        >>> bound = GleuReward().bind([[[5, 6, 7]]], torch.ones(1, 3, dtype=torch.bool), eos_token_id=None)
        >>> bound.score(torch.tensor([[[5, 6, 7], [5, 6, 9]]]))  # 6 of 6 n-grams, then 5, 6 and "5 6"
        tensor([[1.0000, 0.5000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "gleu"

    max_order: int = 4
    count_eos: bool = True

    def __post_init__(self) -> None:
        check_max_order(self.max_order)

    @property
    def signature(self) -> str:
        return f"gleu|n:1-{self.max_order}|eos:{yes_or_no(self.count_eos)}|v:{package_version()}"

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
            GLEU,
            references,
            agent_mask,
            eos_token_id=eos_token_id,
            count_eos=self.count_eos,
            max_order=self.max_order,
            other_is_exact=True,
        )
