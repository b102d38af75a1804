"""Joint actions and edits as the kernels read them: agents first, and where each sentence ends.

The first eos of an agent ends a sentence; it is its last word, or none where it does not count. An edit may
write an eos, which silences the words behind it, or overwrite one, which brings the words behind it to life.
Nothing is scored here.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hf_cmal.rewards.base import check_actions, check_edits
from hf_cmal.rewards.kernel import kernel
from hf_cmal.rewards.references import MAX_WORD_ID
from hf_cmal.rewards.tables import Ints, PlannedEdits, Rows
from hf_cmal.sampling.proposals import OTHER, Edits


@kernel
def _end_of_sentence(row: Ints, start: int, num_agents: int, eos: int) -> Any:
    """Where reading from `start` stops: behind the first eos or the last agent, and whether it is an eos."""
    for i in range(start, num_agents):
        if row[i] == eos:
            return i + 1, True
    return num_agents, False


@kernel
def _read_rows(words: Ints, num_agents: Ints, eos: int, count_eos: bool) -> Any:
    num_inputs, num_rows, _ = words.shape
    read, length = np.zeros((num_inputs, num_rows), np.int64), np.zeros((num_inputs, num_rows), np.int64)
    for b in range(num_inputs):
        for r in range(num_rows):
            read[b, r], ends = _end_of_sentence(words[b, r], 0, num_agents[b], eos)
            length[b, r] = read[b, r] - 1 if ends and not count_eos else read[b, r]
    return read, length


@kernel
def _plan(
    words: Ints, num_agents: Ints, row_read: Ints, row_length: Ints, eos: int, count_eos: bool,
    position: Ints, replacements: Ints, width: Ints, mask: NDArray[np.bool_], read: Ints, length: Ints,
) -> None:  # fmt: skip
    """Fills `read` and `length`, and cuts widths to the agents."""
    num_inputs, num_samples, num_edits = position.shape
    for b in range(num_inputs):
        for s in range(num_samples):
            row, old_read = words[b, s], row_read[b, s]
            ends_before = row_length[b, s] < old_read
            for m in range(num_edits):
                read[b, s, m] = -1
                lo = position[b, s, m]
                if not mask[b, s, m] or lo >= old_read:
                    continue
                hi = min(lo + width[b, s, m], num_agents[b])
                width[b, s, m] = hi - lo
                changes = False
                for p in range(lo, min(hi, old_read)):
                    changes = changes or replacements[b, s, m, p - lo] != row[p]
                if not changes:
                    continue
                new_read, ends = -1, ends_before
                for p in range(lo, hi):
                    if replacements[b, s, m, p - lo] == eos:
                        new_read, ends = p + 1, True
                        break
                if new_read < 0:
                    new_read = old_read
                    if old_read <= hi and row[old_read - 1] == eos:  # it is overwritten
                        new_read, ends = _end_of_sentence(row, hi, num_agents[b], eos)
                read[b, s, m] = new_read
                length[b, s, m] = new_read - 1 if ends and not count_eos else new_read


def _to_numpy(tensor: Tensor) -> NDArray[np.int64]:
    return np.ascontiguousarray(tensor.detach().to("cpu", torch.int64).numpy())


@dataclass(frozen=True)
class Reading:
    """How the joint actions of B inputs are read.

    Attributes:
        mask: bool [B, N], where the agents stand.
        order: int64 [B, N], the agents' positions and behind them the others; None where all stand first.
        num_agents: int64 [B].
        eos: the word that ends a sentence; NO_EOS where none does.
        count_eos: whether it is a word of the sentence.
    """

    mask: NDArray[np.bool_]
    order: NDArray[np.int64] | None
    num_agents: NDArray[np.int64]
    eos: int
    count_eos: bool

    @classmethod
    def of(cls, agent_mask: Tensor, *, eos: int, count_eos: bool) -> "Reading":
        """Of a mask [B, N].

        Raises:
            ValueError: it is not bool [B, N].
        """
        if agent_mask.dim() != 2 or agent_mask.dtype != torch.bool:
            raise ValueError(
                f"agent_mask must be bool [B, N], got {agent_mask.dtype} {tuple(agent_mask.shape)}"
            )
        mask = agent_mask.detach().cpu().numpy()
        order = np.argsort(~mask, axis=1, kind="stable")
        agents_first = bool((order == np.arange(mask.shape[1])).all())
        return cls(mask, None if agents_first else order, mask.sum(1, dtype=np.int64), eos, count_eos)

    def rows(self, actions: Tensor) -> Rows:
        """Of joint actions long [B, R, N].

        Raises:
            ValueError: they do not fit the mask, or hold a word id above the largest.
        """
        num_inputs, num_positions = self.mask.shape
        check_actions(actions, (num_inputs, num_positions))
        words = np.maximum(_to_numpy(actions), OTHER)
        if words.size and words.max() > MAX_WORD_ID:
            raise ValueError(f"the word id {words.max()} in the actions is larger than {MAX_WORD_ID}")
        if self.order is not None:
            words = np.take_along_axis(words, self.order[:, None], axis=2)
        return Rows(words, self.num_agents, *_read_rows(words, self.num_agents, self.eos, self.count_eos))

    def plan(self, actions: Tensor, rows: Rows, edits: Edits) -> PlannedEdits:
        """Of edits [B, S, M] of those rows.

        Raises:
            ValueError: they do not fit the actions, or write outside the N positions.
        """
        check_edits(edits, actions)
        mask = np.ascontiguousarray(edits.mask.detach().cpu().numpy())
        position, words, width = map(_to_numpy, (edits.position, edits.words, edits.width))
        words = np.maximum(words, OTHER)
        if self.order is None:
            width = width.copy()
        else:
            position, words, width = self._among_agents(position, words, width, mask)
        read, length = np.full(mask.shape, -1), np.zeros(mask.shape, np.int64)
        _plan(
            rows.words, self.num_agents, rows.read, rows.length, self.eos, self.count_eos,
            position, words, width, mask, read, length,
        )  # fmt: skip
        return PlannedEdits(position, words, width, read, length)

    def _among_agents(
        self, position: Ints, words: Ints, width: Ints, mask: NDArray[np.bool_]
    ) -> tuple[Ints, Ints, Ints]:
        """Positions counted in agents; of two words the one that is an agent's, of none neither."""
        # agents before each position
        before: Ints = np.pad(np.cumsum(self.mask, axis=1, dtype=np.int64), ((0, 0), (1, 0)))
        inputs = np.arange(len(mask))[:, None, None]
        start = before[inputs, np.where(mask, position, 0)]
        stop = before[inputs, np.where(mask, position + width, 0)]
        first_speaks = before[inputs, np.where(mask, position + 1, 0)] > start
        spoken: Ints = np.ascontiguousarray(np.where(first_speaks[..., None], words, words[..., ::-1]))
        return start, spoken, stop - start


def no_edits(rows: Rows) -> PlannedEdits:
    """Of no row: what the kernels are given where only rows are scored."""
    nothing = np.zeros((len(rows.words), 0, 0), np.int64)
    return PlannedEdits(nothing, np.zeros((len(rows.words), 0, 0, 2), np.int64), nothing, nothing, nothing)
