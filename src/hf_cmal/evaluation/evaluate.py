"""Decodes a split with several systems, scores and times them, and gives one result for a JSON file.

A system is a folder (teacher or student) and how it decodes. The numbers go into the result, with the
sentences that one wrote oneself; those of a data set go into a list of their own, because they may not be
published with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor

from hf_cmal.data.collators import IGNORED, pad_ids
from hf_cmal.data.columns import LABELS, REFERENCES, SOURCE
from hf_cmal.evaluation.curves import read_curve
from hf_cmal.evaluation.environment import describe_environment
from hf_cmal.evaluation.latency import assert_float32, describe_latency, measure_latency
from hf_cmal.evaluation.loading import is_student
from hf_cmal.evaluation.own_sentences import check_own_sources, translate_own_sources, with_own_sources
from hf_cmal.evaluation.paired_bootstrap import baselines_of, compare_with_baselines
from hf_cmal.evaluation.scoring import decode_tokens, real_tokens, score_tokens
from hf_cmal.evaluation.source_length import bucket_rows, check_bounds, score_buckets, source_lengths
from hf_cmal.evaluation.systems import LoadedSystem, System, decode_rows, load_system, model_inputs
from hf_cmal.metrics.tokens import repetition_rate
from hf_cmal.tasks import Task

BLEU = "bleu"


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
        length_bounds: the greatest source length, in subwords, of every bucket but the last; the main score
            of each bucket is measured where the sources are texts. Empty: no buckets.
        own_sources: sentences that one wrote oneself; their translations are published with the result.
        curves: name -> folder of a trained stage, whose training curve goes into the result.
        baseline: the system with whose model every other system's BLEU is compared, each with the same
            postprocessing; None compares nothing.
        only: names of the systems that are measured and of their curves, e.g. those that a seed was trained
            with; empty: all.
    """

    split: str = "test"
    systems: dict[str, System] = field(default_factory=dict)
    rival: str | None = None
    batch_size: int = 64
    latency_rows: int = 100
    examples: int = 5
    length_bounds: tuple[int, ...] = (10, 15, 20, 25)
    own_sources: tuple[str, ...] = ()
    curves: dict[str, str] = field(default_factory=dict)
    baseline: str | None = None
    only: tuple[str, ...] = ()


def evaluate_systems(
    options: EvaluationOptions, *, task: Task, data: Any, rows: Dataset, device: torch.device
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Scores every system on `rows`, and times it.

    Args:
        task, data: of the recipe; `data` is the task's data options.
        rows: the split, not encoded.

    Returns:
        The result (numbers, signatures, one's own sentences, environment) and the examples (sentences of the
        split). The result has `comparison`, `by_source_length`, `own_sources` and `curves` where the options
        ask for them.

    Raises:
        ValueError: no systems, an unknown name, a number below 1, bounds that do not rise, sentences for a
            task that reads none, a baseline for a task without BLEU, or a system that cannot decode as asked.
        FileNotFoundError: a curve's folder holds no trained stage.
    """
    reads_text = SOURCE in rows.column_names
    options = _selected(options)
    _check(options)
    compared = _compared(options, task)
    check_own_sources(options.own_sources, task=task, reads_text=reads_text)
    curves = {name: read_curve(name, folder) for name, folder in options.curves.items()}
    loaded = {
        name: load_system(system, task=task, data=data, rows=rows, device=device)
        for name, system in options.systems.items()
    }
    own = {
        name: with_own_sources(system, options.own_sources, task=task, data=data)
        for name, system in loaded.items()
        if options.own_sources
    }
    examples = [
        {"source": row.get(SOURCE), "references": row[REFERENCES], "systems": {}}
        for row in rows.select(range(min(options.examples, len(rows))))
    ]
    systems: dict[str, dict[str, Any]] = {}
    texts: dict[str, list[str]] = {}
    for name, system in options.systems.items():
        systems[name], texts[name] = _score_system(name, system, loaded[name], rows, task, options.batch_size)
        for example, text in zip(examples, texts[name], strict=False):
            example["systems"][name] = text
    result = {"task": task.name, "split": options.split, "rows": len(rows), "main_score": task.main_score}
    if options.rival is not None:
        result["latency"] = _time_systems(loaded, systems, options, device=device)
    result["systems"] = systems
    if options.baseline is not None:
        signature = systems[options.baseline]["bleu_signature"]
        result["comparison"] = {
            "baseline": options.baseline,
            **compare_with_baselines(compared, texts, rows[REFERENCES], bleu_signature=signature),
        }
    if reads_text and options.length_bounds:
        first = next(iter(loaded.values()))  # one tokenizer's buckets for all systems
        lengths = source_lengths(first.tokenizer, rows[SOURCE])
        result["by_source_length"] = _score_by_length(
            texts, lengths, rows[REFERENCES], options.length_bounds, task=task
        )
    if own:
        result["own_sources"] = translate_own_sources(own, options.own_sources, batch_size=options.batch_size)
    if curves:
        result["curves"] = curves
    return {**result, **describe_environment()}, examples


def _selected(options: EvaluationOptions) -> EvaluationOptions:
    """The options with only the systems and curves that `only` names."""
    if not options.only:
        return options
    if unknown := [name for name in options.only if name not in options.systems]:
        raise ValueError(
            f"evaluation.only names {', '.join(unknown)}; legal values: {', '.join(options.systems)}"
        )
    return replace(
        options,
        systems={name: system for name, system in options.systems.items() if name in options.only},
        curves={name: folder for name, folder in options.curves.items() if name in options.only},
    )


def _compared(options: EvaluationOptions, task: Task) -> dict[str, str]:
    """System -> its baseline."""
    if options.baseline is None:
        return {}
    if task.main_score != BLEU:
        raise ValueError(
            f"evaluation.baseline is {options.baseline!r}, but differences are of BLEU and the task "
            f"{task.name} is measured by {task.main_score}; set it to null"
        )
    systems = {name: (one.model, one.remove_consecutive_duplicates) for name, one in options.systems.items()}
    return baselines_of(systems, options.baseline)


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
    check_bounds(options.length_bounds)


def _score_system(
    name: str, system: System, loaded: LoadedSystem, rows: Dataset, task: Task, batch_size: int
) -> tuple[dict[str, Any], list[str]]:
    """A system's part of the result, and its sentences."""
    tokens = decode_rows(loaded, batch_size=batch_size, name=name)
    labels, _ = pad_ids(loaded.rows[LABELS], pad_value=IGNORED)
    scores = score_tokens(task, loaded.tokenizer, tokens, rows[REFERENCES], labels=labels)
    if system.remove_consecutive_duplicates:
        # what the rate tells is how often the model repeats itself, before the postprocessing
        scores["repetition_rate"] = _repetition_before(loaded, batch_size, name)
    row = {
        "kind": "student" if is_student(loaded.model) else "teacher",
        "parameters": loaded.model.num_parameters(),
        "num_beams": system.num_beams,
        "remove_consecutive_duplicates": system.remove_consecutive_duplicates,
        **scores,
    }
    return row, decode_tokens(loaded.tokenizer, tokens)


def _repetition_before(system: LoadedSystem, batch_size: int, name: str) -> float:
    raw = replace(system, settings={"remove_consecutive_duplicates": False})
    tokens = decode_rows(raw, batch_size=batch_size, name=name)
    return repetition_rate(tokens, real_tokens(tokens, system.tokenizer))


def _score_by_length(
    texts: Mapping[str, list[str]],
    lengths: list[int],
    references: list[list[str]],
    bounds: tuple[int, ...],
    *,
    task: Task,
) -> dict[str, Any]:
    buckets = bucket_rows(lengths, bounds)

    def main_score(hypotheses: list[str], their_references: list[Any]) -> float:
        return float(task.scores(hypotheses, their_references)[task.main_score])

    return {
        "bounds": list(bounds),
        "rows": [len(bucket) for bucket in buckets],
        "systems": {name: score_buckets(buckets, texts[name], references, main_score) for name in texts},
    }


def _time_systems(
    loaded: Mapping[str, LoadedSystem],
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
    inputs = {name: [model_inputs(system, [index]) for index in indexes] for name, system in loaded.items()}
    decoders = {name: partial(_decode_one, system, inputs[name]) for name, system in loaded.items()}
    with torch.inference_mode():
        times = measure_latency(decoders, indexes, rival=options.rival)
    for name, figures in times.items():
        systems[name].update(figures)
    return describe_latency(indexes, rival=options.rival, device=device)


def _decode_one(system: LoadedSystem, inputs: list[dict[str, Tensor]], index: int) -> Tensor:
    return system.decode(inputs[index])
