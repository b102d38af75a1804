"""Minus the share of repeated words: what an n-gram reward alone does not forbid.

An agent that knows no right word loses nothing under GLEU or CIDEr-D if it says its neighbour's again, which
readers mind most (Secs. 1 and 5.3). Mixed with such a reward (`mixture.py`) this one makes it costly. Alone
it teaches nothing: it looks at no reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from hf_cmal.rewards.base import package_version
from hf_cmal.rewards.bound import BoundNgramReward, bind_ngrams
from hf_cmal.rewards.tables import REPETITION


@dataclass(frozen=True, kw_only=True)
class RepetitionReward:
    """Minus the words that equal the one just before, divided by all words of the sentence; in (-1, 0].

    The eos is no word here. It is minus `hf_cmal.metrics.tokens.repetition_rate` of one sentence.

    Example:
        >>> bound = RepetitionReward().bind([[[5]]], torch.ones(1, 4, dtype=torch.bool), eos_token_id=None)
        >>> bound.score(torch.tensor([[[5, 5, 6, 6], [5, 6, 5, 6]]]))
        tensor([[-0.5000, -0.0000]], dtype=torch.float64)
    """

    name: ClassVar[str] = "repetition"

    @property
    def signature(self) -> str:
        return f"repetition|unit:words|v:{package_version()}"

    def bind(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> BoundNgramReward:
        """See `Reward.bind`. Any word can change it, so there are no `candidates`."""
        bound = bind_ngrams(
            REPETITION,
            references,
            agent_mask,
            eos_token_id=eos_token_id,
            count_eos=False,
            max_order=1,
            other_is_exact=False,
        )
        return replace(bound, candidates=None)
