"""A system: the folder of a teacher or a student, how it decodes, and the rows as its tokenizer writes them.

Opening one checks what would otherwise fail in the middle of decoding. It scores nothing and measures no
time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_cmal.data.columns import FEATURES, INPUT_IDS
from hf_cmal.data.statistics import list_lengths
from hf_cmal.evaluation.loading import check_positions, is_student, load_model, load_tokenizer
from hf_cmal.tasks import Task


@dataclass(frozen=True)
class System:
    """One row of a table: a folder, and how it decodes."""

    model: str
    num_beams: int = 1
    remove_consecutive_duplicates: bool = False


@dataclass(frozen=True)
class LoadedSystem:
    """A system, opened.

    Attributes:
        folder: as it was given, for messages.
        rows: encoded by its own tokenizer.
        collate: encoded rows -> a batch of inputs, without labels.
        settings: of `generate`.
    """

    folder: str
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    rows: Dataset
    collate: Callable[[list[dict[str, Any]]], dict[str, Any]]
    settings: dict[str, Any]

    def decode(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Token ids [B, N] of the model's inputs."""
        tokens: Tensor = self.model.generate(**inputs, **self.settings)
        return tokens


def load_system(
    system: System, *, task: Task, data: Any, rows: Dataset, device: torch.device
) -> LoadedSystem:
    """Opens the folder and encodes `rows` for it.

    Args:
        task, data: of the recipe; `data` is the task's data options.
        rows: a split, not encoded.

    Raises:
        ValueError: a student with beams, a teacher that postprocesses, a model of another task, or sequences
            longer than the model has positions.
        OSError: the folder holds no model or no tokenizer that can be opened.
    """
    model = load_model(system.model, task=task.name).to(device).eval()
    tokenizer = load_tokenizer(system.model)
    student = is_student(model)
    if student and system.num_beams != 1:
        raise ValueError(f"{system.model} is a student: it has no beams; set num_beams to 1")
    if not student and system.remove_consecutive_duplicates:
        raise ValueError(f"{system.model} is a teacher: only a student removes consecutive duplicates")
    encoded = encode_rows(rows, folder=system.model, model=model, tokenizer=tokenizer, task=task, data=data)
    if not student:  # it may write as many tokens as the data allow
        check_positions(system.model, model, data.max_target_length)
    settings: dict[str, Any] = (
        {"remove_consecutive_duplicates": system.remove_consecutive_duplicates}
        if student
        else {"num_beams": system.num_beams, "do_sample": False, "max_length": data.max_target_length + 1}
    )
    collate = task.collator(model, role="student" if student else "teacher")
    collate.with_labels = False
    return LoadedSystem(system.model, model, tokenizer, encoded, collate, settings)


def encode_rows(
    rows: Dataset,
    *,
    folder: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    data: Any,
    allow_unlabeled: bool = False,
) -> Dataset:
    """Rows as `model` reads them.

    Raises:
        ValueError: a source is longer than the model of `folder` has positions, or a row has no reference
            and `allow_unlabeled` is False.
    """
    student = is_student(model)
    encoded = task.encode(
        rows,
        tokenizer,
        data,
        role="student" if student else "teacher",
        num_agents=model.config.num_agents if student and task.length_mode == "fixed" else None,
        allow_unlabeled=allow_unlabeled,
    )
    if INPUT_IDS in encoded.column_names:
        check_positions(folder, model, max(list_lengths(encoded, INPUT_IDS), default=0))
    return encoded


def model_inputs(system: LoadedSystem, indexes: Sequence[int]) -> dict[str, Tensor]:
    """A batch of the rows at `indexes`, on the model's device: nothing of the target is in it."""
    batch = system.collate([system.rows[index] for index in indexes])
    names = (INPUT_IDS, "attention_mask", FEATURES, "feature_mask")
    return {name: batch[name].to(system.model.device) for name in names if name in batch}


def decode_rows(system: LoadedSystem, *, batch_size: int, name: str) -> Tensor:
    """Token ids [B, N] of all rows, in their order, padded with -100; rows of like length go together.

    Args:
        name: of the system, beside the progress bar.
    """
    column = INPUT_IDS if INPUT_IDS in system.rows.column_names else FEATURES
    lengths = list_lengths(system.rows, column)
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    tokens: dict[int, Tensor] = {}
    with torch.inference_mode():
        for start in tqdm(range(0, len(order), batch_size), desc=name, leave=False):
            indexes = order[start : start + batch_size]
            tokens.update(zip(indexes, system.decode(model_inputs(system, indexes)).cpu(), strict=True))
    return torch.nn.utils.rnn.pad_sequence(
        [tokens[index] for index in range(len(tokens))], batch_first=True, padding_value=-100
    )
