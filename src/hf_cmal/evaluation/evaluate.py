"""Decodes a split with several systems, scores and times them, and gives one result for a JSON file.

A system is a folder (teacher or student) and how it decodes. The numbers go into the result; sentences go
into a list of their own, because those of a data set may not be published with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_cmal.data.columns import FEATURES, INPUT_IDS, LABELS, REFERENCES, SOURCE
from hf_cmal.data.statistics import list_lengths
from hf_cmal.evaluation.environment import describe_environment
from hf_cmal.evaluation.latency import assert_float32, describe_latency, measure_latency
from hf_cmal.evaluation.loading import check_positions, is_student, load_model, load_tokenizer
from hf_cmal.evaluation.scoring import decode_tokens, real_tokens, score_tokens
from hf_cmal.metrics.tokens import repetition_rate
from hf_cmal.tasks import Task


@dataclass(frozen=True)
class System:
    """One row of a table: a folder, and how it decodes."""

    model: str
    num_beams: int = 1
    remove_consecutive_duplicates: bool = False


@dataclass(frozen=True)
class EvaluationOptions:
    """What is measured.

    Attributes:
        split: of the recipe's data.
        systems: name -> system, in the order of the table.
        rival: the system that latencies are compared with; None measures no latency.
        batch_size: rows decoded together for the scores.
        latency_rows: the first so many rows are decoded one by one.
        examples: sentences of every system shown for the first so many rows.
    """

    split: str = "test"
    systems: dict[str, System] = field(default_factory=dict)
    rival: str | None = None
    batch_size: int = 64
    latency_rows: int = 100
    examples: int = 5


@dataclass(frozen=True)
class _Loaded:
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    rows: Dataset
    collate: Any
    settings: dict[str, Any]

    def decode(self, inputs: Mapping[str, Tensor]) -> Tensor:
        tokens: Tensor = self.model.generate(**inputs, **self.settings)
        return tokens


def evaluate_systems(
    options: EvaluationOptions, *, task: Task, data: Any, rows: Dataset, device: torch.device
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Scores every system on `rows`, and times it.

    Args:
        task, data: of the recipe; `data` is the task's data options.
        rows: the split, not encoded.

    Returns:
        The result (numbers, signatures, environment) and the examples (sentences).

    Raises:
        ValueError: no systems, an unknown rival, a number below 1, or a system that cannot decode as asked.
    """
    _check(options)
    loaded = {
        name: _load(system, task=task, data=data, rows=rows, device=device)
        for name, system in options.systems.items()
    }
    examples = [
        {"source": row.get(SOURCE), "references": row[REFERENCES], "systems": {}}
        for row in rows.select(range(min(options.examples, len(rows))))
    ]
    systems: dict[str, dict[str, Any]] = {}
    for name, system in options.systems.items():
        tokens, labels = _decode_rows(loaded[name], batch_size=options.batch_size, name=name)
        scores = score_tokens(task, loaded[name].tokenizer, tokens, rows[REFERENCES], labels=labels)
        if system.remove_consecutive_duplicates:
            # what the rate tells is how often the model repeats itself, before the postprocessing
            scores["repetition_rate"] = _repetition_before(loaded[name], options.batch_size, name)
        systems[name] = {
            "kind": "student" if is_student(loaded[name].model) else "teacher",
            "parameters": loaded[name].model.num_parameters(),
            "num_beams": system.num_beams,
            "remove_consecutive_duplicates": system.remove_consecutive_duplicates,
            **scores,
        }
        for example, text in zip(examples, decode_tokens(loaded[name].tokenizer, tokens), strict=False):
            example["systems"][name] = text
    result = {"task": task.name, "split": options.split, "rows": len(rows), "main_score": task.main_score}
    if options.rival is not None:
        result["latency"] = _time_systems(loaded, systems, options, device=device)
    return {**result, "systems": systems, **describe_environment()}, examples


def _check(options: EvaluationOptions) -> None:
    """Finds before anything is decoded what would otherwise fail after it."""
    if not options.systems:
        raise ValueError("evaluation.systems is empty; name at least one, e.g. {teacher: {model: FOLDER}}")
    if options.rival is not None and options.rival not in options.systems:
        raise ValueError(
            f"evaluation.rival is {options.rival!r}; legal values: {', '.join(options.systems)}, or null to "
            "measure no latency"
        )
    for name, value in (("batch_size", options.batch_size), ("latency_rows", options.latency_rows)):
        if value < 1:
            raise ValueError(f"evaluation.{name} is {value}; give 1 or more")
    for name, system in options.systems.items():
        if system.num_beams < 1:
            raise ValueError(f"evaluation.systems.{name}.num_beams is {system.num_beams}; give 1 or more")


def _load(system: System, *, task: Task, data: Any, rows: Dataset, device: torch.device) -> _Loaded:
    model = load_model(system.model, task=task.name).to(device).eval()
    tokenizer = load_tokenizer(system.model)
    student = is_student(model)
    if student and system.num_beams != 1:
        raise ValueError(f"{system.model} is a student: it has no beams; set num_beams to 1")
    if not student and system.remove_consecutive_duplicates:
        raise ValueError(f"{system.model} is a teacher: only a student removes consecutive duplicates")
    role = "student" if student else "teacher"
    num_agents = model.config.num_agents if student and task.length_mode == "fixed" else None
    encoded = task.encode(rows, tokenizer, data, role=role, num_agents=num_agents)
    if INPUT_IDS in encoded.column_names:
        check_positions(system.model, model, max(list_lengths(encoded, INPUT_IDS), default=0))
    if not student:  # it may write as many tokens as the data allow
        check_positions(system.model, model, data.max_target_length)
    settings: dict[str, Any] = (
        {"remove_consecutive_duplicates": system.remove_consecutive_duplicates}
        if student
        else {"num_beams": system.num_beams, "do_sample": False, "max_length": data.max_target_length + 1}
    )
    return _Loaded(model, tokenizer, encoded, task.collator(model, role=role), settings)


def _inputs(system: _Loaded, indexes: list[int]) -> tuple[dict[str, Tensor], Tensor]:
    """Model inputs without anything of the target, and the labels."""
    batch = system.collate([system.rows[index] for index in indexes])
    names = (INPUT_IDS, "attention_mask", FEATURES, "feature_mask")
    return {name: batch[name].to(system.model.device) for name in names if name in batch}, batch[LABELS]


def _decode_rows(system: _Loaded, *, batch_size: int, name: str) -> tuple[Tensor, Tensor]:
    """Tokens and labels of all rows, in order, padded with -100; rows of like length go together."""
    column = INPUT_IDS if INPUT_IDS in system.rows.column_names else FEATURES
    lengths = [len(row) for row in system.rows[column]]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    tokens: dict[int, Tensor] = {}
    labels: dict[int, Tensor] = {}
    with torch.inference_mode():
        for start in tqdm(range(0, len(order), batch_size), desc=name, leave=False):
            indexes = order[start : start + batch_size]
            inputs, batch_labels = _inputs(system, indexes)
            decoded = system.decode(inputs).cpu()
            tokens.update(zip(indexes, decoded, strict=True))
            labels.update(zip(indexes, batch_labels, strict=True))
    return _stack(tokens), _stack(labels)


def _stack(rows: Mapping[int, Tensor]) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence(
        [rows[index] for index in range(len(rows))], batch_first=True, padding_value=-100
    )


def _repetition_before(system: _Loaded, batch_size: int, name: str) -> float:
    raw = replace(system, settings={"remove_consecutive_duplicates": False})
    tokens, _ = _decode_rows(raw, batch_size=batch_size, name=name)
    return repetition_rate(tokens, real_tokens(tokens, system.tokenizer))


def _time_systems(
    loaded: Mapping[str, _Loaded],
    systems: dict[str, dict[str, Any]],
    options: EvaluationOptions,
    *,
    device: torch.device,
) -> dict[str, Any]:
    assert options.rival is not None
    for name, system in loaded.items():
        assert_float32(name, system.model)
    indexes = range(min(options.latency_rows, len(next(iter(loaded.values())).rows)))
    # each system reads the row as its own tokenizer writes it
    inputs = {name: [_inputs(system, [index])[0] for index in indexes] for name, system in loaded.items()}
    decoders = {name: partial(_decode_one, system, inputs[name]) for name, system in loaded.items()}
    with torch.inference_mode():
        times = measure_latency(decoders, indexes, rival=options.rival)
    for name, figures in times.items():
        systems[name].update(figures)
    return describe_latency(indexes, rival=options.rival, device=device)


def _decode_one(system: _Loaded, inputs: list[dict[str, Tensor]], index: int) -> Tensor:
    return system.decode(inputs[index])
