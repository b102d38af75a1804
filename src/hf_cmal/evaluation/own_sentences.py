"""Translations of sentences that one wrote oneself (CMAL Table VII): they may be published with a result.

The sentences of a data set may not. These have no reference, so nothing is scored here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from datasets import Dataset

from hf_cmal.data.columns import INPUT_IDS, REFERENCES, SOURCE
from hf_cmal.data.parallel_text import PARALLEL_FEATURES
from hf_cmal.evaluation.scoring import decode_tokens
from hf_cmal.evaluation.source_length import source_lengths
from hf_cmal.evaluation.systems import LoadedSystem, decode_rows, encode_rows
from hf_cmal.tasks import Task


def check_own_sources(sources: Sequence[str], *, task: Task, reads_text: bool) -> None:
    """Raises ValueError for sentences of a task that reads none, and for an empty sentence, by its number."""
    if sources and not reads_text:
        raise ValueError(
            f"evaluation.own_sources has {len(sources)} sentences, but the task {task.name} reads no text; "
            "leave own_sources empty"
        )
    for number, source in enumerate(sources, start=1):
        if not source.strip():
            raise ValueError(f"sentence {number} of evaluation.own_sources is empty; remove it")


def with_own_sources(system: LoadedSystem, sources: Sequence[str], *, task: Task, data: Any) -> LoadedSystem:
    """The system with one's own sentences as its rows.

    Raises:
        ValueError: a sentence is longer than the data's limit: a cut one's translation would mislead.
    """
    columns = {SOURCE: list(sources), REFERENCES: [[] for _ in sources]}
    rows = encode_rows(
        Dataset.from_dict(columns, features=PARALLEL_FEATURES),
        folder=system.folder,
        model=system.model,
        tokenizer=system.tokenizer,
        task=task,
        data=data,
        allow_unlabeled=True,
    )
    lengths = source_lengths(system.tokenizer, sources)
    for number, (ids, length) in enumerate(zip(rows[INPUT_IDS], lengths, strict=True), start=1):
        if len(ids) <= length:  # there is no room for the eos after all of it
            raise ValueError(
                f"sentence {number} of evaluation.own_sources has {length} subwords for {system.folder}, but "
                f"data.max_source_length leaves room for {len(ids) - 1}; shorten the sentence"
            )
    return replace(system, rows=rows)


def translate_own_sources(
    systems: Mapping[str, LoadedSystem], sources: Sequence[str], *, batch_size: int
) -> list[dict[str, Any]]:
    """What every system makes of every sentence.

    Args:
        systems: name -> system, as `with_own_sources` gives it.

    Returns:
        For each sentence `{"source": sentence, "systems": {name: its translation}}`.
    """
    texts = {
        name: decode_tokens(system.tokenizer, decode_rows(system, batch_size=batch_size, name=name))
        for name, system in systems.items()
    }
    return [
        {"source": source, "systems": {name: texts[name][row] for name in systems}}
        for row, source in enumerate(sources)
    ]
