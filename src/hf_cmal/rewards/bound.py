"""A reward with a kernel, bound to the references of a batch: tensors in, kernels inside, tensors out.

Actions and edits are moved to the CPU once per call and are never changed; rewards come back as float64 on
the device of the actions. The inputs of a batch are shared out among as many threads as torch may use.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_cmal.rewards.ngrams import build_reference_table, make_scratch, score_rows
from hf_cmal.rewards.references import PackedReferences, pack_references
from hf_cmal.rewards.rows import Reading, no_edits
from hf_cmal.rewards.tables import (
    BLEU,
    BLEU_COCO,
    EMPTY,
    NO_EOS,
    Binding,
    DocumentTable,
    Floats,
    PlannedEdits,
    Rows,
)
from hf_cmal.sampling.proposals import Edits

# GLEU and BLEU weigh no n-gram: an empty table, so that one kernel serves all.
NO_DOCUMENTS = DocumentTable(np.full(1, EMPTY), np.full(1, -1, np.int32), np.zeros(1), 0.0)


def in_threads(work: Callable[[int, int], None], num_inputs: int) -> None:
    """Calls `work(begin, end)` for parts of the batch at a time, in as many threads as torch may use.

    The threads are made anew: those of a pool would be missing in a forked process.
    """
    num_threads = min(torch.get_num_threads(), num_inputs)
    if num_threads < 2:
        if num_inputs:
            work(0, num_inputs)
        return
    bounds = [num_inputs * part // num_threads for part in range(num_threads + 1)]
    with ThreadPoolExecutor(num_threads) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))  # list: raises what a thread raised


@dataclass(frozen=True)
class BoundKernelReward:
    """See `BoundReward`. `candidates` are the words of the references, and eos where there is one; None
    where any word can change the reward.

    Attributes:
        kernel: (rows, edits, binding, begin, end, rewards [B, R], edit rewards [B, S, M], scratch) fills the
            rewards of the inputs begin to end.
        binding: what it scores by.
        make_scratch: (rows, binding) -> the memory of one thread.
        reading: how joint actions become sentences.
    """

    kernel: Callable[..., None]
    binding: Any
    make_scratch: Callable[[Rows, Any], Any]
    reading: Reading
    candidates: Tensor | None
    other_is_exact: bool

    def score(self, actions: Tensor) -> Tensor:
        """long [B, R, N] -> float64 [B, R]. Words below 0 match nothing.

        Raises:
            ValueError: `actions` does not fit the agent mask that the reward is bound to.
        """
        rows = self.reading.rows(actions)
        return torch.from_numpy(self._run(rows, no_edits(rows))[0]).to(actions.device)

    def score_edits(self, actions: Tensor, edits: Edits) -> Tensor:
        """long [B, R >= S, N], edits [B, S, M] -> float64 [B, S, M], 0 where edits.mask is False.

        An edit that changes nothing, or a word after the first eos, has its sample's reward. Edits are
        cheapest where those of the same agents follow each other.

        Raises:
            ValueError: actions or edits do not fit, or an edit writes outside the N positions.
        """
        rows = self.reading.rows(actions[:, : edits.mask.shape[1]])
        planned = self.reading.plan(actions, rows, edits)
        rewards = torch.from_numpy(self._run(rows, planned)[1]).to(actions.device)
        return rewards.masked_fill_(~edits.mask, 0.0)

    def _run(self, rows: Rows, edits: PlannedEdits) -> tuple[Floats, Floats]:
        rewards, edit_rewards = np.zeros(rows.read.shape), np.zeros(edits.read.shape)

        def score_part(begin: int, end: int) -> None:
            scratch = self.make_scratch(rows, self.binding)
            self.kernel(rows, edits, self.binding, begin, end, rewards, edit_rewards, scratch)

        in_threads(score_part, len(rewards))
        return rewards, edit_rewards


def bind_ngrams(
    kind: int,
    references: Sequence[Sequence[Sequence[int]]],
    agent_mask: Tensor,
    *,
    eos_token_id: int | None,
    count_eos: bool,
    max_order: int,
    other_is_exact: bool,
    documents: DocumentTable = NO_DOCUMENTS,
    sigma: float = 1.0,
) -> BoundKernelReward:
    """Binds the kernel `kind`, one of those that `tables.py` numbers, to references; see `Reward.bind`."""
    eos = NO_EOS if eos_token_id is None else eos_token_id
    reading = Reading.of(agent_mask, eos=eos, count_eos=count_eos)
    packed = pack_batch(references, agent_mask, eos_token_id=eos_token_id, count_eos=count_eos)
    table = build_reference_table(
        packed.words, packed.offsets, packed.input_of, packed.first_reference, max_order, documents,
        kind in (BLEU, BLEU_COCO),
    )  # fmt: skip
    return BoundKernelReward(
        kernel=score_rows,
        binding=Binding(kind, table, documents, max_order, sigma),
        make_scratch=make_scratch,
        reading=reading,
        candidates=candidate_words(packed, reading).to(agent_mask.device),
        other_is_exact=other_is_exact,
    )


def pack_batch(
    references: Sequence[Sequence[Sequence[int]]],
    agent_mask: Tensor,
    *,
    eos_token_id: int | None,
    count_eos: bool,
) -> PackedReferences:
    """`pack_references` of as many inputs as the mask has rows.

    Raises:
        ValueError: the batch has more or fewer inputs than references.
    """
    if len(references) != agent_mask.shape[0]:
        raise ValueError(
            f"{len(references)} lists of references for {agent_mask.shape[0]} inputs: give one list of "
            "references per input"
        )
    return pack_references(references, eos_token_id=eos_token_id, count_eos=count_eos)


def candidate_words(packed: PackedReferences, reading: Reading) -> Tensor:
    """long [B, C]: the words of each input's references, and eos where it ends a sentence."""
    candidates = packed.unique_words()
    if reading.eos != NO_EOS and not reading.count_eos:  # no word of the references, but it ends the sentence
        candidates = np.pad(candidates, ((0, 0), (0, 1)), constant_values=reading.eos)
    return torch.from_numpy(candidates)


def check_max_order(max_order: int) -> None:
    """Raises ValueError unless there is an n-gram of this order."""
    if max_order < 1:
        raise ValueError(
            f"max_order is the longest n-gram that is counted and must be at least 1, got {max_order}"
        )


def yes_or_no(value: bool) -> str:
    """How signatures write a switch."""
    return "yes" if value else "no"
