"""What an estimator wants rewarded: joint actions, and edits of them.

A counterfactual (CMAL Secs. 4.4 and 4.5) is an edit of a sampled joint action: one position and a word (an
individual agent) or two neighbouring positions and two words (a compositional agent). The sentence with the
edit in it is not stored, so that a reward may score an edit by what it changes. Nothing is computed here.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

OTHER = -1
"""Stands for any one word that no reference contains; only where a bound reward says `other_is_exact`."""


@dataclass(frozen=True)
class Edits:
    """Replacements in sampled joint actions, M per sample. The tensors may be expanded views: do not write to
    them.

    Attributes:
        position: long [B,S,M], the first agent that is replaced.
        words: long [B,S,M,2], what agents `position` and `position + 1` say instead, or `OTHER`.
        width: long [B,S,M], 1 or 2 agents; where it is 1, `words[..., 1]` means nothing.
        mask: bool [B,S,M], False where the slot holds no edit: it is not scored, its reward is 0.
    """

    position: Tensor
    words: Tensor
    width: Tensor
    mask: Tensor

    def __post_init__(self) -> None:
        shape = self.position.shape
        if not (
            self.words.shape == (*shape, 2)
            and self.width.shape == self.mask.shape == shape
            and len(shape) == 3
        ):
            raise ValueError(
                "edits need position, width and mask [B,S,M] and words [B,S,M,2], got position "
                f"{list(shape)}, words {list(self.words.shape)}, width {list(self.width.shape)}, "
                f"mask {list(self.mask.shape)}"
            )


@dataclass(frozen=True)
class Proposals:
    """What `Estimator.propose` asks rewards for, and `Estimator.surrogate` needs back.

    Attributes:
        actions: long [B,R,N]. Rows `:num_samples` are samples of the policy; the others are auxiliary joint
            actions, rewarded alike and meant for the estimator alone (the greedy one, pseudo-actions).
        num_samples: S.
        alive: bool [B,S,N], the agents of each sample that make its sentence: up to and with the first eos.
        edits: of the samples, or None.
        state: private to the estimator that made the proposals: whatever its surrogate needs that follows
            from the log-probs that were sampled from (weights, noise, candidate sets), without a gradient.
    """

    actions: Tensor
    num_samples: int
    alive: Tensor
    edits: Edits | None = None
    state: Any = None
