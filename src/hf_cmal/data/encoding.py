"""Texts to ids: `input_ids` (or `features`), `labels` and `reference_ids` beside the strings, which are kept.

Word-by-word training imitates the `target` column where it holds a text (a teacher's sentence), else the
first reference. Rewards read `reference_ids`: every reference, without eos. What is too long is cut and
counted in one warning per kind; a cut target has no eos label, so that no model learns to stop too early.
Rows are numbered from 0. Pads nothing: see `collators`.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset, Features, List, Value, concatenate_datasets
from transformers import PreTrainedTokenizerBase

from hf_cmal.data.columns import FEATURES, INPUT_IDS, LABELS, REFERENCE_IDS, REFERENCES, SOURCE, TARGET
from hf_cmal.data.skipped import SkippedDataWarning
from hf_cmal.data.statistics import list_lengths

_IDS = List(Value("int32"))
_TEXT_COLUMNS = (SOURCE, REFERENCES, TARGET)
# Counted per row in columns of their own, which a cached `map` keeps; removed before the dataset is returned.
_COUNTS = {
    "_cut_sources": "sources are longer than max_source_length={max_source_length} and were cut, keeping eos",
    "_cut_targets": "targets do not fit into {label_limit} positions and were cut; they carry no eos label",
    "_cut_references": "references are longer than max_target_length={max_target_length} and were cut",
    "_unknown_tokens": "unknown tokens: the tokenizer cannot write these texts and puts {unk_token} there",
}


def cut_source(ids: Sequence[int], *, eos_token_id: int, max_length: int) -> tuple[list[int], bool]:
    """Source ids with the eos appended, at most `max_length` in all, and whether they were cut."""
    return [*ids[: max_length - 1], eos_token_id], len(ids) > max_length - 1


def make_labels(
    ids: Sequence[int], *, eos_token_id: int, label_eos: bool, max_length: int
) -> tuple[list[int], bool]:
    """Target ids as labels of at most `max_length` positions, and whether they were cut.

    With `label_eos` the labels end in the eos, unless the ids alone fill `max_length`: then the eos has no
    place and the labels are the first `max_length` ids.
    """
    if label_eos and len(ids) < max_length:
        return [*ids, eos_token_id], False
    return list(ids[:max_length]), label_eos or len(ids) > max_length


def encode_translation(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_source_length: int,
    max_target_length: int,
    label_eos: bool,
    num_agents: int | None = None,
    allow_unlabeled: bool = False,
) -> Dataset:
    """Add `input_ids`, `labels` and `reference_ids` to rows of sentence pairs.

    Args:
        dataset: columns `source` (str), `references` (list of str), optionally `target` (str or None).
        tokenizer: reads targets by `text_target=`, which matters where each language has its own model.
        max_source_length: longest source in ids, eos included.
        max_target_length: longest labels in ids, eos included if `label_eos`; also the longest reference.
        label_eos: True for teachers and for students with a fixed number of agents, False for students that
            know or predict the target length.
        num_agents: N of the fixed mode. A target longer than N - 1 gives its first N ids, no eos label.
        allow_unlabeled: rows without target and reference get empty labels instead of an error.

    Raises:
        ValueError: naming the row, if its source is empty or it has neither target nor reference.
    """
    _require_columns(dataset, (SOURCE, REFERENCES))
    if max_source_length < 2:
        raise ValueError(
            f"max_source_length={max_source_length} leaves no room for a word and the eos. Use 2 or more."
        )
    return _encode(
        dataset,
        {INPUT_IDS: _IDS},
        tokenizer=tokenizer,
        max_source_length=max_source_length,
        max_target_length=max_target_length,
        label_eos=label_eos,
        num_agents=num_agents,
        allow_unlabeled=allow_unlabeled,
    )


def encode_captions(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_target_length: int,
    label_eos: bool = True,
    num_agents: int | None = None,
    allow_unlabeled: bool = False,
) -> Dataset:
    """Add `labels` and `reference_ids` to rows of captioned features.

    Columns: `features` ([L, feature_size] each, they stay as they are), `references` and optionally `target`.
    Options and errors are those of `encode_translation`.
    """
    _require_columns(dataset, (FEATURES, REFERENCES))
    for row, length in enumerate(list_lengths(dataset, FEATURES)):
        if not length:
            raise ValueError(
                f"Row {row} has no feature vectors: {FEATURES} must be [L, feature_size] with L >= 1."
            )
    return _encode(
        dataset,
        {},
        tokenizer=tokenizer,
        max_source_length=None,
        max_target_length=max_target_length,
        label_eos=label_eos,
        num_agents=num_agents,
        allow_unlabeled=allow_unlabeled,
    )


def one_row_per_reference(dataset: Dataset) -> Dataset:
    """Repeat each row once per reference, with that reference as its `target`; `references` stay complete.

    This is how word-by-word training sees all captions of an image. Rows without references are an error.
    """
    _require_columns(dataset, (REFERENCES,))

    def expand(batch: dict[str, list[Any]], rows: list[int]) -> dict[str, list[Any]]:
        for row, references in zip(rows, batch[REFERENCES], strict=True):
            if not references:
                raise ValueError(
                    f"Row {row} has no reference to train on. Remove it, or distil a target for it."
                )
        copies = [index for index, references in enumerate(batch[REFERENCES]) for _ in references]
        expanded = {name: [values[index] for index in copies] for name, values in batch.items()}
        expanded[TARGET] = [text for references in batch[REFERENCES] for text in references]
        return expanded

    features = Features({**dataset.features, TARGET: Value("string")})
    return dataset.map(
        expand, batched=True, with_indices=True, features=features, remove_columns=dataset.column_names
    )


def _encode(dataset: Dataset, input_features: dict[str, Any], **options: Any) -> Dataset:
    tokenizer = options["tokenizer"]
    if tokenizer.eos_token_id is None:
        raise ValueError(f"{type(tokenizer).__name__} has no eos token. Set tokenizer.eos_token.")
    num_agents = options.pop("num_agents")
    if num_agents is not None and not options["label_eos"]:
        raise ValueError(
            f"num_agents={num_agents} needs label_eos=True: a fixed number of agents ends with an eos."
        )
    options["label_limit"] = options["max_target_length"] if num_agents is None else num_agents
    if min(options["label_limit"], options["max_target_length"]) < 1:
        raise ValueError(
            f"max_target_length={options['max_target_length']} and num_agents={num_agents} must be 1 or more."
        )
    encoded_features = Features({**input_features, LABELS: _IDS, REFERENCE_IDS: List(_IDS)})
    texts = dataset.select_columns([name for name in _TEXT_COLUMNS if name in dataset.column_names])
    encoded = texts.map(
        _encode_batch,
        batched=True,
        with_indices=True,
        fn_kwargs=options,
        features=Features(encoded_features | {name: Value("int32") for name in _COUNTS}),
        remove_columns=texts.column_names,
        desc="Encoding",
    )
    for name, message in _COUNTS.items():
        counts = encoded.select_columns([name]).with_format("numpy")[:][name]
        if len(counts) and counts.sum():
            where = ", ".join(str(row) for row in np.flatnonzero(counts)[:5])
            text = message.format(**options, unk_token=tokenizer.unk_token)
            warnings.warn(f"{counts.sum()} {text} (first rows: {where}).", SkippedDataWarning, stacklevel=3)
    # Side by side instead of through `map`: features are large and are not copied.
    kept = dataset.remove_columns([name for name in encoded_features if name in dataset.column_names])
    return concatenate_datasets([kept, encoded.remove_columns(list(_COUNTS))], axis=1)


def _encode_batch(
    batch: dict[str, list[Any]],
    rows: list[int],
    *,
    tokenizer: PreTrainedTokenizerBase,
    max_source_length: int | None,
    max_target_length: int,
    label_limit: int,
    label_eos: bool,
    allow_unlabeled: bool,
) -> dict[str, list[Any]]:
    eos = tokenizer.eos_token_id
    result: dict[str, list[Any]] = {"_cut_sources": [0] * len(rows)}
    unknown = np.zeros(len(rows), dtype=np.int64)
    if max_source_length is not None:
        for row, source in zip(rows, batch[SOURCE], strict=True):
            if not source or not source.strip():
                raise ValueError(
                    f"Row {row} has an empty source. Remove the row: there is nothing to translate."
                )
        sources = _ids(tokenizer, batch[SOURCE], as_target=False)
        unknown += _count_unknown(tokenizer, sources)
        cut = [cut_source(ids, eos_token_id=eos, max_length=max_source_length) for ids in sources]
        result[INPUT_IDS] = [ids for ids, _ in cut]
        result["_cut_sources"] = [int(was_cut) for _, was_cut in cut]

    references = _nested_ids(tokenizer, batch[REFERENCES])
    result[REFERENCE_IDS] = [[ids[:max_target_length] for ids in row] for row in references]
    result["_cut_references"] = [sum(len(ids) > max_target_length for ids in row) for row in references]
    unknown += [sum(_count_unknown(tokenizer, row)) for row in references]

    given = _nested_ids(tokenizer, [_as_list(text) for text in batch.get(TARGET, [None] * len(rows))])
    unknown += [sum(_count_unknown(tokenizer, row)) for row in given]
    labels = [
        _row_labels(row, target or reference[:1], eos, label_eos, label_limit, allow_unlabeled)
        for row, target, reference in zip(rows, given, references, strict=True)
    ]
    result[LABELS] = [ids for ids, _ in labels]
    result["_cut_targets"] = [int(was_cut) for _, was_cut in labels]
    result["_unknown_tokens"] = unknown.tolist()
    return result


def _row_labels(
    row: int, target: list[list[int]], eos: int, label_eos: bool, label_limit: int, allow_unlabeled: bool
) -> tuple[list[int], bool]:
    """Labels of one row from its target ids, a list of one or none."""
    if not target:
        if allow_unlabeled:
            return [], False
        raise ValueError(
            f"Row {row} has neither a target nor a reference. Remove it, distil a target for it, or pass "
            "allow_unlabeled=True if only its input is needed."
        )
    labels, was_cut = make_labels(target[0], eos_token_id=eos, label_eos=label_eos, max_length=label_limit)
    if not labels:
        raise ValueError(f"Row {row} has an empty target. Remove the row or give it a target text.")
    return labels, was_cut


def _as_list(text: str | None) -> list[str]:
    return [] if text is None else [text]


def _ids(tokenizer: PreTrainedTokenizerBase, texts: list[str], *, as_target: bool) -> list[list[int]]:
    if not texts:
        return []
    given = {"text_target": texts} if as_target else {"text": texts}
    encoded = tokenizer(**given, add_special_tokens=False, return_attention_mask=False, verbose=False)
    ids: list[list[int]] = encoded["input_ids"]
    return ids


def _nested_ids(tokenizer: PreTrainedTokenizerBase, texts: list[list[str]]) -> list[list[list[int]]]:
    flat = iter(_ids(tokenizer, [text for row in texts for text in row], as_target=True))
    return [[next(flat) for _ in row] for row in texts]


def _count_unknown(tokenizer: PreTrainedTokenizerBase, sequences: list[list[int]]) -> list[int]:
    return [ids.count(tokenizer.unk_token_id) for ids in sequences]


def _require_columns(dataset: Dataset, names: tuple[str, ...]) -> None:
    missing = [name for name in names if name not in dataset.column_names]
    if missing:
        raise ValueError(f"The dataset has no column {missing}; it has {dataset.column_names}.")
