"""Encoded rows to padded batches, for teachers (decoder inputs shifted right) and students (target lengths).

Padding itself is three pure functions; the two collators only hold options. Labels are padded with -100,
masks are bool, True = real. Texts and reference ids pass through as Python lists, because rewards and metrics
need them beside the tensors: train with `remove_unused_columns=False`. Does not tokenize and does not cut:
see `encoding`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from hf_cmal.data.columns import FEATURES, INPUT_IDS, LABELS, PASSTHROUGH_COLUMNS, REFERENCE_IDS
from hf_cmal.models.nag.sequences_nag import length_mask

IGNORED = -100
Row = dict[str, Any]


def pad_ids(
    sequences: Sequence[Sequence[int]], *, pad_value: int, length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Pad id lists on the right.

    Args:
        sequences: B lists of ids.
        pad_value: what stands on padding.
        length: pad to this length instead of the longest list.

    Returns:
        ids (long [B, length]) and mask (bool [B, length], True = real).

    Raises:
        ValueError: if a list is longer than `length`.
    """
    lengths = torch.tensor([len(ids) for ids in sequences])
    longest = int(lengths.max())
    if length is None:
        length = longest
    elif longest > length:
        raise ValueError(
            f"A sequence of {longest} ids does not fit into {length} positions. Encode with a lower limit."
        )
    padded = torch.full((len(sequences), length), pad_value, dtype=torch.long)
    for row, ids in enumerate(sequences):
        padded[row, : len(ids)] = torch.as_tensor(ids, dtype=torch.long)
    return padded, length_mask(lengths, length)


def pad_features(features: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Pad B arrays of [L, D] to float32 [B, max L, D] with zeros, and give the mask (bool [B, max L])."""
    arrays = [np.asarray(array, dtype=np.float32) for array in features]
    for row, array in enumerate(arrays):
        if array.ndim != 2 or array.shape[0] == 0 or array.shape[1] != arrays[0].shape[-1]:
            raise ValueError(
                f"Features of row {row} have shape {array.shape}; all must be [L, D] with L >= 1, one D."
            )
    lengths = torch.tensor([len(array) for array in arrays])
    longest = int(lengths.max())
    padded = torch.zeros(len(arrays), longest, arrays[0].shape[1])
    for row, array in enumerate(arrays):
        padded[row, : len(array)] = torch.from_numpy(array)
    return padded, length_mask(lengths, longest)


def shift_right(labels: Tensor, *, decoder_start_token_id: int, pad_token_id: int) -> Tensor:
    """A teacher's decoder inputs [B, N]: the start token, then all labels but the last; -100 is pad."""
    start = torch.full_like(labels[:, :1], decoder_start_token_id)
    shifted = torch.cat([start, labels[:, :-1]], dim=1)
    return shifted.masked_fill(shifted == IGNORED, pad_token_id)


@dataclass(kw_only=True)
class TeacherCollator:
    """Batches for a left-to-right seq2seq model.

    Args:
        pad_token_id: padding of `input_ids` and `decoder_input_ids`.
        decoder_start_token_id: first decoder input (Marian: the pad token).
        with_labels: False collates the inputs only, for generation from rows that have no labels.
        keep_columns: columns handed on as Python lists where the rows have them.

    Returns a dict of `input_ids` and `attention_mask`, or `features` and `feature_mask`; `labels` and
    `decoder_input_ids` [B, N]; and the kept columns.
    """

    pad_token_id: int
    decoder_start_token_id: int
    with_labels: bool = True
    keep_columns: tuple[str, ...] = PASSTHROUGH_COLUMNS

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        batch = _collate_inputs(rows, pad_token_id=self.pad_token_id)
        if self.with_labels:
            labels, _ = pad_ids(_labels(rows), pad_value=IGNORED)
            batch[LABELS] = labels
            batch["decoder_input_ids"] = shift_right(
                labels, decoder_start_token_id=self.decoder_start_token_id, pad_token_id=self.pad_token_id
            )
        return batch | _kept(rows, self.keep_columns)


@dataclass(kw_only=True)
class StudentCollator:
    """Batches for a non-autoregressive student.

    Args:
        pad_token_id: padding of `input_ids`.
        num_agents: N of the fixed mode: labels are [B, N], there are no target lengths. None: labels are as
            long as the longest target, and `target_lengths` (long [B]) counts each one's tokens.
        length_from: "labels" takes target and length from the encoded labels (word-by-word training);
            "first_reference" takes both from the first real reference, whatever the labels are (CMAL).
        with_labels: False collates the inputs only, for generation from rows that have no labels.
        keep_columns: columns handed on as Python lists where the rows have them.

    Returns a dict of `input_ids` and `attention_mask`, or `features` and `feature_mask`; `labels` [B, N];
    `target_lengths` [B] unless N is fixed; and the kept columns.
    """

    pad_token_id: int
    num_agents: int | None = None
    length_from: Literal["labels", "first_reference"] = "labels"
    with_labels: bool = True
    keep_columns: tuple[str, ...] = PASSTHROUGH_COLUMNS

    def __post_init__(self) -> None:
        if self.length_from not in ("labels", "first_reference"):
            raise ValueError(
                f"length_from={self.length_from!r} is unknown. Use 'labels' or 'first_reference'."
            )
        if self.num_agents is not None and self.length_from != "labels":
            raise ValueError(f"num_agents={self.num_agents} fixes the length. Leave length_from at 'labels'.")

    def __call__(self, rows: Sequence[Row]) -> dict[str, Any]:
        batch = _collate_inputs(rows, pad_token_id=self.pad_token_id)
        if self.with_labels:
            targets = _labels(rows) if self.length_from == "labels" else _first_references(rows)
            batch[LABELS], mask = pad_ids(targets, pad_value=IGNORED, length=self.num_agents)
            if self.num_agents is None:
                batch["target_lengths"] = mask.sum(dim=1)
        return batch | _kept(rows, self.keep_columns)


def _collate_inputs(rows: Sequence[Row], *, pad_token_id: int) -> dict[str, Any]:
    if FEATURES in rows[0]:
        features, feature_mask = pad_features([row[FEATURES] for row in rows])
        return {FEATURES: features, "feature_mask": feature_mask}
    input_ids, attention_mask = pad_ids([row[INPUT_IDS] for row in rows], pad_value=pad_token_id)
    return {INPUT_IDS: input_ids, "attention_mask": attention_mask}


def _labels(rows: Sequence[Row]) -> list[Sequence[int]]:
    for row in rows:
        if not row[LABELS]:
            raise ValueError(
                f"A row has no labels: {_shown(row)}. Distil a target for it, or use with_labels=False."
            )
    return [row[LABELS] for row in rows]


def _first_references(rows: Sequence[Row]) -> list[Sequence[int]]:
    for row in rows:
        if not row[REFERENCE_IDS] or not row[REFERENCE_IDS][0]:
            raise ValueError(
                f"A row has no reference: {_shown(row)}. CMAL learns from real references; remove the row."
            )
    return [row[REFERENCE_IDS][0] for row in rows]


def _kept(rows: Sequence[Row], columns: tuple[str, ...]) -> dict[str, list[Any]]:
    return {name: [row[name] for row in rows] for name in columns if name in rows[0]}


def _shown(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != FEATURES}
