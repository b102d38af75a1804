"""A weighted sum of rewards, e.g. "gleu + 0.5 * repetition".

Each part scores sentences and edits in its own way, so a sum of n-gram rewards is as fast as its parts.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hf_cmal.rewards.base import BoundReward, Reward
from hf_cmal.sampling.proposals import OTHER, Edits

_PART = re.compile(r"(?:(?P<weight>[^*]+)\*)?(?P<name>[^*]+)")


def parse_mixture(text: str) -> list[tuple[float, str]]:
    """The weights and names of "name + weight * name + ..."; a name without weight counts once.

    Raises:
        ValueError: a weight that is no finite number, or a part without a name.

    Example:
        >>> parse_mixture("gleu + 0.5 * repetition")
        [(1.0, 'gleu'), (0.5, 'repetition')]
    """
    parts = []
    for part in text.split("+"):
        found = _PART.fullmatch(part.strip())
        try:
            weight = float(found["weight"] or 1.0) if found else float("nan")
        except ValueError:
            weight = float("nan")
        if found is None or not abs(weight) < float("inf"):
            raise ValueError(
                f"the reward {text!r} has the part {part.strip()!r}; write names with weights, e.g. "
                "'gleu + 0.5 * repetition'"
            )
        parts.append((weight, found["name"].strip()))
    return parts


@dataclass(frozen=True)
class BoundMixture:
    """See `BoundReward`: the weighted sum of `parts`, (weight, bound reward) each."""

    parts: Sequence[tuple[float, BoundReward]]

    @property
    def candidates(self) -> Tensor | None:
        """Those of all parts, each once; None where a part has none."""
        each = [bound.candidates for _, bound in self.parts]
        if any(candidates is None for candidates in each):
            return None
        words = torch.cat([words for words in each if words is not None], dim=1).sort(descending=True).values
        again = torch.nn.functional.pad(words[:, 1:] == words[:, :-1], (1, 0))
        return words.masked_fill(again, OTHER)

    @property
    def other_is_exact(self) -> bool:
        return all(bound.other_is_exact for _, bound in self.parts)

    def score(self, actions: Tensor) -> Tensor:
        """long [B, R, N] -> float64 [B, R]."""
        return _sum([weight * bound.score(actions) for weight, bound in self.parts])

    def score_edits(self, actions: Tensor, edits: Edits) -> Tensor:
        """long [B, R >= S, N], edits [B, S, M] -> float64 [B, S, M], 0 where edits.mask is False."""
        return _sum([weight * bound.score_edits(actions, edits) for weight, bound in self.parts])


@dataclass(frozen=True)
class MixtureReward:
    """The weighted sum of rewards.

    Args:
        parts: (weight, reward) each; at least one. A weight may be negative.

    Example:
        >>> MixtureReward([(1.0, GleuReward()), (0.5, RepetitionReward())]).name
        'gleu+0.5*repetition'
    """

    parts: Sequence[tuple[float, Reward]]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a mixture needs at least one (weight, reward)")

    @property
    def name(self) -> str:
        return "+".join(_weighted(weight, reward.name) for weight, reward in self.parts)

    @property
    def signature(self) -> str:
        return " + ".join(_weighted(weight, reward.signature) for weight, reward in self.parts)

    def bind(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> BoundMixture:
        """See `Reward.bind`."""
        return BoundMixture(
            [
                (weight, reward.bind(references, agent_mask, eos_token_id=eos_token_id, columns=columns))
                for weight, reward in self.parts
            ]
        )


def _weighted(weight: float, text: str) -> str:
    return text if weight == 1.0 else f"{weight:g}*{text}"


def _sum(rewards: Sequence[Tensor]) -> Tensor:
    return torch.stack(list(rewards)).sum(0)
