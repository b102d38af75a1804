"""Minus the share of repeated words: what an n-gram reward alone does not forbid.

An agent that knows no right word loses nothing under GLEU or CIDEr-D if it says its neighbour's again, which
readers mind most (Secs. 1 and 5.3). Mixed with such a reward (`mixture.py`) this one makes it costly. Alone
it teaches nothing: it looks at no reference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from hf_cmal.rewards.base import package_version
from hf_cmal.rewards.bound import BoundKernelReward, pack_batch
from hf_cmal.rewards.kernel import kernel_without_allocation, part
from hf_cmal.rewards.rows import Reading
from hf_cmal.rewards.tables import NO_EOS, Floats, Ints, PlannedEdits, Rows


@part
def _repetition(row: Ints, length: int) -> float:
    repeated = 0
    for i in range(1, length):
        repeated += row[i] >= 0 and row[i] == row[i - 1]  # OTHER is any word: not the same one twice
    return -repeated / max(length, 1)


@kernel_without_allocation
def score_repetition(
    rows: Rows, edits: PlannedEdits, bound: None, begin: int, end: int, rewards: Floats,
    edit_rewards: Floats, row: Ints,
) -> None:  # fmt: skip
    """Scores the rows of inputs begin to end, into float64 [B, R], and edits of their first S, into float64
    [B, S, M].
    """
    _, num_samples, num_edits = edits.position.shape
    for b in range(begin, end):
        for s in range(rows.words.shape[1]):
            for i in range(row.size):
                row[i] = rows.words[b, s, i]
            rewards[b, s] = _repetition(row, rows.length[b, s])
            for m in range(num_edits if s < num_samples else 0):
                if edits.read[b, s, m] < 0:
                    edit_rewards[b, s, m] = rewards[b, s]
                    continue
                lo, hi = edits.position[b, s, m], edits.position[b, s, m] + edits.width[b, s, m]
                for i in range(lo, hi):
                    row[i] = edits.words[b, s, m, i - lo]
                edit_rewards[b, s, m] = _repetition(row, edits.length[b, s, m])
                for i in range(lo, hi):
                    row[i] = rows.words[b, s, i]


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
    ) -> BoundKernelReward:
        """See `Reward.bind`. Any word can change it, so there are no `candidates`."""
        eos = NO_EOS if eos_token_id is None else eos_token_id
        reading = Reading.of(agent_mask, eos=eos, count_eos=False)
        pack_batch(references, agent_mask, eos_token_id=eos_token_id, count_eos=False)  # checks them
        return BoundKernelReward(
            kernel=score_repetition,
            binding=None,
            make_scratch=lambda rows, _: np.zeros(rows.words.shape[2], np.int64),
            reading=reading,
            candidates=None,
            other_is_exact=False,
        )
