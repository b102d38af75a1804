"""An n-gram reward bound to the references of a batch: tensors in, kernels inside, tensors out.

Shared by GLEU, BLEU, CIDEr-D and the repetition reward, which differ only in the kernel that is named by
`kind`. Actions and edits are moved to the CPU once per call and are never changed; rewards come back as
float64 on the device of the actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hf_cmal.rewards.base import check_actions, check_edits
from hf_cmal.rewards.ngrams import build_reference_table, score_edited_rows, score_rows
from hf_cmal.rewards.references import MAX_WORD_ID, pack_references
from hf_cmal.rewards.tables import EMPTY, NO_EOS, Binding, DocumentTable
from hf_cmal.sampling.proposals import Edits

# GLEU and BLEU weigh no n-gram: an empty table, so that one kernel serves all.
NO_DOCUMENTS = DocumentTable(np.full(1, EMPTY), np.full(1, -1, np.int32), np.zeros(1), 0.0)


def _to_numpy(tensor: Tensor) -> NDArray[np.int64]:
    return np.ascontiguousarray(tensor.detach().to("cpu", torch.int64).numpy())


def _to_bool(mask: Tensor) -> NDArray[np.bool_]:
    return np.ascontiguousarray(mask.detach().cpu().numpy())


@dataclass(frozen=True)
class BoundNgramReward:
    """See `BoundReward`. `candidates` are the words of the references, and eos where there is one; None
    where any word can change the reward."""

    binding: Binding
    candidates: Tensor | None
    other_is_exact: bool

    def _to_words(self, actions: Tensor) -> NDArray[np.int64]:
        num_inputs, num_agents = self.binding.agent_mask.shape
        check_actions(actions, (num_inputs, num_agents))
        array = _to_numpy(actions)
        if array.size and array.max() > MAX_WORD_ID:
            raise ValueError(f"the word id {array.max()} in the actions is larger than {MAX_WORD_ID}")
        return array

    def score(self, actions: Tensor) -> Tensor:
        """long [B, R, N] -> float64 [B, R]. Words below 0 match nothing.

        Raises:
            ValueError: `actions` does not fit the agent mask that the reward is bound to.
        """
        array = self._to_words(actions)
        if array.shape[0] == 0:
            return torch.zeros(actions.shape[:2], dtype=torch.float64, device=actions.device)
        return torch.from_numpy(score_rows(array, self.binding)).to(actions.device)

    def score_edits(self, actions: Tensor, edits: Edits) -> Tensor:
        """long [B, R >= S, N], edits [B, S, M] -> float64 [B, S, M], 0 where edits.mask is False.

        An edit that changes nothing, or a word after the first eos, has its sample's reward.

        Raises:
            ValueError: actions or edits do not fit, or an edit writes outside the N positions.
        """
        array = self._to_words(actions)
        check_edits(edits, actions)
        if edits.position.numel() == 0:
            return torch.zeros(edits.position.shape, dtype=torch.float64, device=actions.device)
        position, words, width = map(_to_numpy, (edits.position, edits.words, edits.width))
        rewards = score_edited_rows(array, position, words, width, _to_bool(edits.mask), self.binding)
        return torch.from_numpy(rewards).to(actions.device)


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
    sigma: float = 0.0,
) -> BoundNgramReward:
    """Binds the kernel `kind`, one of those that `tables.py` numbers, to references; see `Reward.bind`."""
    if agent_mask.dim() != 2 or agent_mask.dtype != torch.bool:
        raise ValueError(f"agent_mask must be bool [B, N], got {agent_mask.dtype} {tuple(agent_mask.shape)}")
    if len(references) != agent_mask.shape[0]:
        raise ValueError(
            f"{len(references)} lists of references for {agent_mask.shape[0]} inputs: give one list of "
            "references per input"
        )
    packed = pack_references(references, eos_token_id=eos_token_id, count_eos=count_eos)
    table = build_reference_table(
        packed.words, packed.offsets, packed.input_of, packed.first_reference, max_order, documents
    )
    candidates = packed.unique_words()
    if eos_token_id is not None and not count_eos:  # no word of the references, but it ends the sentence
        candidates = np.pad(candidates, ((0, 0), (0, 1)), constant_values=eos_token_id)
    eos = NO_EOS if eos_token_id is None else eos_token_id
    return BoundNgramReward(
        binding=Binding(kind, table, documents, _to_bool(agent_mask), eos, count_eos, max_order, sigma),
        candidates=torch.from_numpy(candidates).to(agent_mask.device),
        other_is_exact=other_is_exact,
    )


def check_max_order(max_order: int) -> None:
    """Raises ValueError unless there is an n-gram of this order."""
    if max_order < 1:
        raise ValueError(
            f"max_order is the longest n-gram that is counted and must be at least 1, got {max_order}"
        )


def yes_or_no(value: bool) -> str:
    """How signatures write a switch."""
    return "yes" if value else "no"
