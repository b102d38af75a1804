"""Sequence-level knowledge distillation: a teacher's beam search writes the targets of XE training.

Sec. 4.6. Any Hugging Face sequence-to-sequence model can teach. Inputs without a reference take part like all
others, which is how unlabeled data are mixed in. The rows are shared out over processes, and a run that was
killed goes on where it stopped, with any number of processes. Nothing here trains, and nothing here knows
accelerate: the caller passes its process index.
"""

import copy
import hashlib
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from tqdm.auto import tqdm
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_cmal.data.columns import LABELS, REFERENCE_IDS, SOURCE
from hf_cmal.data.skipped import SkippedDataWarning
from hf_cmal.evaluation.loading import is_student
from hf_cmal.training.pseudo_targets import (
    ShardWriter,
    fingerprint_inputs,
    load_pseudo_targets,
    read_targets,
    write_or_check_manifest,
)

__all__ = ["DistillationReport", "distill", "load_pseudo_targets"]

# What a collator makes for training. The decoder inputs would become the beginning of every sentence.
_TRAINING_INPUTS = (LABELS, "decoder_input_ids", "decoder_attention_mask", "target_lengths", REFERENCE_IDS)
# What changes in a config without changing what the model computes.
_INCIDENTAL_CONFIG = ("_name_or_path", "architectures", "dtype", "transformers_version", "use_cache")


@dataclass(frozen=True, kw_only=True)
class DistillationReport:
    """What one process did in one call of [`distill`].

    Attributes:
        rows: rows of this process's share.
        done_before: of these, already in the folder when the call began.
        done_now: written by this call; `done_before + done_now == rows`.
        empty_outputs: of `done_now`, how many the teacher answered with an empty string.
        cut_outputs: of `done_now`, how many are as long as the decoding limit allows, hence probably cut.
        seconds: wall time of the call.
    """

    rows: int
    done_before: int
    done_now: int
    empty_outputs: int
    cut_outputs: int
    seconds: float


def distill(
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    dataset: Dataset,
    *,
    collate: Callable[[list[dict[str, Any]]], Mapping[str, Any]],
    output_dir: str | os.PathLike[str],
    batch_size: int = 32,
    num_beams: int = 4,
    max_length: int | None = None,
    max_new_tokens: int | None = None,
    length_penalty: float = 1.0,
    generation_options: Mapping[str, Any] | None = None,
    source_column: str = SOURCE,
    dtype: torch.dtype | None = None,
    process_index: int = 0,
    num_processes: int = 1,
    progress: bool = True,
) -> DistillationReport:
    """Writes the teacher's beam-search sentence for every row of the dataset into `output_dir` (Sec. 4.6).

    Every process calls this with the same arguments but `process_index`, on a file system they share.
    Calling it again does what is missing. A change of the teacher's weights, the inputs or the decoding
    settings is an error; the number of processes and the batch size may change. Rows are taken longest
    first, so that little is spent on padding and a batch too big for the memory fails at once.

    Args:
        teacher: any encoder-decoder model with `generate`, already on its device.
        tokenizer: decodes what the teacher generates.
        dataset: the rows to distil, labeled or not. Row `i` gets the pseudo-target `i`.
        collate: a list of rows -> what the teacher's encoder reads (tensors). Labels, decoder inputs and
            whatever is not a tensor are set aside, so the collator of the teacher's training serves.
        output_dir: see `hf_cmal.training.pseudo_targets`.
        batch_size: rows in one call of `generate`.
        num_beams: Sec. 6.1.2: 4 for translation; Sec. 5.1.2: 3 for captioning.
        max_length, max_new_tokens: the decoding limit in tokens, exactly one of the two, as in `generate`.
        length_penalty: as in `generate`.
        generation_options: further fields of `GenerationConfig`; the rest comes from
            `teacher.generation_config`.
        source_column: the column that identifies an input, hashed to recognise the dataset (`image_id` for
            pictures).
        dtype: autocast to this type while decoding, for example `torch.bfloat16`.
        process_index, num_processes: of `accelerate.PartialState`, or any other way of sharing.
        progress: shows a bar on process 0.

    Raises:
        ValueError: an argument is out of range, or the folder was begun with another teacher, dataset or
            decoding; the message names the field, both values and the fix.
        BlockingIOError: another run is still writing into the folder.

    Example:

        >>> report = distill(teacher, tokenizer, rows, collate=collate, output_dir="pseudo", max_length=64)
        >>> train = load_pseudo_targets("pseudo", rows)
    """
    start = time.perf_counter()
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; give 1 or more")
    if not 0 <= process_index < num_processes:
        raise ValueError(
            f"process_index is {process_index}; legal values: 0 to num_processes - 1 = {num_processes - 1}"
        )
    if is_student(teacher):
        raise ValueError(
            "the teacher is a NAG student (model_type 'cmal_nag'); give the autoregressive teacher"
        )
    settings = {
        "num_beams": num_beams,
        "max_length": max_length,
        "max_new_tokens": max_new_tokens,
        "length_penalty": length_penalty,
    }
    decoding = _generation_config(teacher, {**(generation_options or {}), **settings})
    fingerprint, lengths = fingerprint_inputs(dataset, source_column)
    inputs = {"rows": len(dataset), "source_column": source_column, "fingerprint": fingerprint}
    folder = Path(output_dir)
    write_or_check_manifest(folder, _manifest(teacher, tokenizer, inputs, decoding, dtype))
    # The share depends on the inputs and the number of processes alone, never on what is done: processes that
    # look at the folder at different moments still share out the rows without overlap.
    longest_first = sorted(range(len(dataset)), key=lambda index: (-lengths[index], index))
    share = longest_first[process_index::num_processes]
    with ShardWriter(folder, process_index=process_index, num_processes=num_processes) as shard:
        done = read_targets(folder, num_rows=len(dataset))
        remaining = [index for index in share if index not in done]
        empty = cut = 0
        bar = tqdm(
            total=len(share),
            initial=len(share) - len(remaining),
            desc="distil",
            unit="row",
            disable=not (progress and process_index == 0),
        )
        with bar, _decoding_mode(teacher, dtype):
            for first in range(0, len(remaining), batch_size):
                indices = remaining[first : first + batch_size]
                sequences = _generate(teacher, collate([dataset[index] for index in indices]), decoding)
                texts = tokenizer.batch_decode(sequences, skip_special_tokens=True)
                shard.append(zip(indices, texts, strict=True))
                empty += sum(not text.strip() for text in texts)
                cut += _count_cut(sequences, decoding)
                bar.update(len(indices))
    _warn_of(empty, cut, len(remaining), folder)
    return DistillationReport(
        rows=len(share),
        done_before=len(share) - len(remaining),
        done_now=len(remaining),
        empty_outputs=empty,
        cut_outputs=cut,
        seconds=time.perf_counter() - start,
    )


def _manifest(
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    inputs: Mapping[str, Any],
    decoding: GenerationConfig,
    dtype: torch.dtype | None,
) -> dict[str, Any]:
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()), ensure_ascii=False)
    config = json.loads(json.dumps(teacher.config.to_dict(), default=str))
    return {
        "format": 1,
        "teacher": {
            "class": type(teacher).__name__,
            "config": _without(config, _INCIDENTAL_CONFIG),
            "weights": weight_checksum(teacher),
        },
        "tokenizer": {"vocabulary": hashlib.sha256(vocabulary.encode("utf-8")).hexdigest()},
        "dataset": dict(inputs),
        "decoding": {"autocast": str(dtype), **_without(decoding.to_dict(), ("transformers_version",))},
        "versions": {name: version(name) for name in ("torch", "transformers", "tokenizers")},
    }


def _generation_config(teacher: PreTrainedModel, settings: Mapping[str, Any]) -> GenerationConfig:
    if (settings["max_length"] is None) == (settings["max_new_tokens"] is None):
        raise ValueError(
            f"max_length is {settings['max_length']} and max_new_tokens is {settings['max_new_tokens']}; "
            f"give exactly one (without a limit `generate` may stop after 20 tokens)"
        )
    if teacher.generation_config.pad_token_id is None:
        raise ValueError(
            "teacher.generation_config.pad_token_id is None; set it, else padding looks like output"
        )
    config = copy.deepcopy(teacher.generation_config)
    one_best = {"do_sample": False, "num_return_sequences": 1, "return_dict_in_generate": False}
    unknown = config.update(**one_best, **settings)
    if unknown:
        raise ValueError(
            f"generation_options has {', '.join(map(repr, unknown))}, not a field of GenerationConfig"
        )
    return config


def _generate(teacher: PreTrainedModel, batch: Mapping[str, Any], decoding: GenerationConfig) -> Tensor:
    """The best beam of every row without the decoder start token, [rows, length]."""
    inputs = {
        name: value.to(teacher.device)
        for name, value in batch.items()
        if isinstance(value, Tensor) and name not in _TRAINING_INPUTS
    }
    return teacher.generate(**inputs, generation_config=decoding)[:, 1:].cpu()


def _count_cut(sequences: Tensor, decoding: GenerationConfig) -> int:
    limit = decoding.max_new_tokens if decoding.max_length is None else decoding.max_length - 1
    return int(((sequences != decoding.pad_token_id).sum(dim=1) >= limit).sum())


def _warn_of(empty: int, cut: int, written: int, folder: Path) -> None:
    if empty:
        warnings.warn(
            f"the teacher wrote nothing for {empty} of {written} rows (kept as empty strings in {folder})",
            SkippedDataWarning,
            stacklevel=3,
        )
    if cut:
        warnings.warn(
            f"{cut} of {written} pseudo-targets in {folder} reach the decoding limit: probably cut",
            SkippedDataWarning,
            stacklevel=3,
        )


@contextmanager
def _decoding_mode(teacher: PreTrainedModel, dtype: torch.dtype | None) -> Iterator[None]:
    was_training = teacher.training
    teacher.eval()
    try:
        with (
            torch.inference_mode(),
            torch.autocast(teacher.device.type, dtype=dtype, enabled=dtype is not None),
        ):
            yield
    finally:
        teacher.train(was_training)


def weight_checksum(model: PreTrainedModel, *, values_per_tensor: int = 1024) -> str:
    """A hash of evenly spaced values of every tensor of the state dict, with names and shapes.

    Cheap at any size, equal on every device; any training step changes it. A hand edit of single values may
    not.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        stride = max(1, tensor.numel() // values_per_tensor)
        values = tensor.detach().reshape(-1)[::stride].double().cpu()
        digest.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        digest.update(values.numpy().tobytes())
    return digest.hexdigest()


def _without(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}
