"""Sentence pairs from two text files (line i of one translates line i of the other) or from `datasets`.

Returns `datasets.Dataset` with the columns `source` and `references`. Lines end at "\\n" only (as `wc -l`
counts them), a trailing "\\r" is taken off, nothing else is changed. Pairs with an empty side are skipped
with one counted warning. Does no tokenization: see `encoding`.
"""

import gzip
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Translation, Value, load_dataset, load_from_disk

from hf_cmal.data.columns import REFERENCES, SOURCE
from hf_cmal.data.skipped import SkippedDataWarning

PARALLEL_FEATURES = Features({SOURCE: Value("string"), REFERENCES: List(Value("string"))})

_NAMED_AT_MOST = 5
_FILE_FORMATS = {".json": "json", ".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}


def read_lines(path: str | Path) -> list[str]:
    """All lines of a UTF-8 text file (`.gz` too), split at newline characters only.

    Raises:
        FileNotFoundError: naming the path.
        ValueError: if the file is not UTF-8.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"No text file at {path}. Give the path of a UTF-8 file, one sentence per line."
        )
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="\n") as file:
            return [line.removesuffix("\n").removesuffix("\r") for line in file]
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text ({error}). Convert it, for example with iconv."
        ) from error


def load_parallel_text(source_path: str | Path, target_path: str | Path | Sequence[str | Path]) -> Dataset:
    """Read two parallel text files.

    Args:
        source_path: one source sentence per line, plain or `.gz`.
        target_path: one target sentence per line; or a list of such files, each one more reference per line.

    Returns:
        Dataset with `source` (str) and `references` (list of str, one per target file). Lines whose source
        is blank or that have no reference left are skipped; a warning counts them and names the first line
        numbers (from 1).

    Raises:
        FileNotFoundError: naming the missing path.
        ValueError: if the files differ in their number of lines, or if no pair is left.

    Example:
        >>> pairs = load_parallel_text("train.en", "train.de")  # doctest: +SKIP
        >>> several = load_parallel_text("val.en", ["val.1.de", "val.2.de"])  # doctest: +SKIP
    """
    target_paths = [target_path] if isinstance(target_path, str | Path) else list(target_path)
    if not target_paths:
        raise ValueError("target_path is an empty list. Give a target file, or use load_unlabeled_text.")
    sources = read_lines(source_path)
    targets = [read_lines(path) for path in target_paths]
    for path, lines in zip(target_paths, targets, strict=True):
        if len(lines) != len(sources):
            raise ValueError(
                f"{source_path} has {len(sources)} lines but {path} has {len(lines)}: line i of one must "
                "translate line i of the other. Compare the files, for example with `wc -l` and `paste`."
            )
    references = [[text for text in texts if text.strip()] for texts in zip(*targets, strict=True)]
    kept = [row for row, source in enumerate(sources) if source.strip() and references[row]]
    _warn_skipped(kept, len(sources), "pairs with an empty line", source_path)
    blank_references = sum(len(target_paths) - len(references[row]) for row in kept)
    if blank_references:
        warnings.warn(
            f"Skipped {blank_references} empty references beside {source_path}.",
            SkippedDataWarning,
            stacklevel=2,
        )
    columns = {SOURCE: [sources[row] for row in kept], REFERENCES: [references[row] for row in kept]}
    return Dataset.from_dict(columns, features=PARALLEL_FEATURES)


def load_unlabeled_text(path: str | Path) -> Dataset:
    """Read source sentences that have no translation (CMAL Sec. 4.6); their `references` are empty lists.

    Raises:
        FileNotFoundError: naming the missing path.
        ValueError: if every line is empty.
    """
    sources = read_lines(path)
    kept = [row for row, source in enumerate(sources) if source.strip()]
    _warn_skipped(kept, len(sources), "empty lines", path)
    columns: dict[str, list[Any]] = {SOURCE: [sources[row] for row in kept], REFERENCES: [[] for _ in kept]}
    return Dataset.from_dict(columns, features=PARALLEL_FEATURES)


def load_translation_dataset(
    path: str, *, split: str, source_column: str = "en", target_column: str = "de", name: str | None = None
) -> Dataset:
    """Load sentence pairs by the `datasets` library.

    Args:
        path: an id on the Hub, a folder of `Dataset.save_to_disk`, a dataset folder, or a json, jsonl, csv
            or parquet file.
        split: the split to load.
        source_column, target_column: languages inside a column `translation` (the layout of the WMT
            datasets), or names of columns of their own.
        name: the configuration of the dataset, such as "de-en".

    Returns:
        Dataset with `source` and `references`, as `load_parallel_text`.
    """
    local = Path(path)
    if local.suffix in _FILE_FORMATS:
        if not local.is_file():
            raise FileNotFoundError(f"No dataset file at {path}.")
        dataset = load_dataset(_FILE_FORMATS[local.suffix], data_files={split: path}, split=split)
    elif (local / "dataset_dict.json").is_file():
        dataset = load_from_disk(path)[split]
    elif (local / "dataset_info.json").is_file():
        dataset = load_from_disk(path)
    else:
        dataset = load_dataset(path, name, split=split)
    return select_pairs(dataset, source_column=source_column, target_column=target_column)


def select_pairs(dataset: Dataset, *, source_column: str = "en", target_column: str = "de") -> Dataset:
    """Turn a dataset with a `translation` column, or with two text columns, into `source` and `references`.

    Other columns are dropped, they are not sentence pairs. Rows with an empty side are skipped with a counted
    warning.

    Raises:
        ValueError: naming the columns that exist, if the asked ones do not.
    """
    nested = "translation" in dataset.column_names
    known = dataset.column_names
    if nested:
        feature = dataset.features["translation"]
        known = list(feature.languages if isinstance(feature, Translation) else feature)
    for column in (source_column, target_column):
        if column not in known:
            raise ValueError(
                f"The dataset has no column {column!r}; it has {sorted(known)}. Name two of them."
            )

    def to_pairs(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        if nested:
            sources = [pair[source_column] for pair in batch["translation"]]
            targets = [pair[target_column] for pair in batch["translation"]]
        else:
            sources, targets = batch[source_column], batch[target_column]
        targets = [texts if isinstance(texts, list) else [texts] for texts in targets]
        references = [[text for text in texts if text and text.strip()] for texts in targets]
        return {SOURCE: [source or "" for source in sources], REFERENCES: references}

    pairs = dataset.map(
        to_pairs, batched=True, remove_columns=dataset.column_names, features=PARALLEL_FEATURES
    )
    kept: list[int] = []
    seen = 0
    for batch in pairs.iter(batch_size=10_000):
        rows = zip(batch[SOURCE], batch[REFERENCES], strict=True)
        kept += [seen + row for row, (source, references) in enumerate(rows) if source.strip() and references]
        seen += len(batch[SOURCE])
    _warn_skipped(kept, len(pairs), "rows with an empty side", "the dataset")
    return pairs if len(kept) == len(pairs) else pairs.select(kept)


def _warn_skipped(kept: list[int], total: int, what: str, where: str | Path) -> None:
    if not kept:
        raise ValueError(
            f"{where} holds no usable sentence: {total} lines, all empty or without a translation."
        )
    if len(kept) == total:
        return
    is_kept = set(kept)
    first = [str(row + 1) for row in range(total) if row not in is_kept][:_NAMED_AT_MOST]
    warnings.warn(
        f"Skipped {total - len(kept)} of {total} {what} in {where}; the first at line {', '.join(first)}.",
        SkippedDataWarning,
        stacklevel=3,
    )
