"""The folder of pseudo-targets that distillation writes and XE training reads (Sec. 4.6).

One `shard-00000-of-00002.jsonl` per process with lines {"index", "target"}, and a `manifest.json` that says
which teacher wrote them for which inputs and how. Lines are only ever appended, whole and fsynced, so that a
run killed at any moment loses at most the batch in hand. Nothing here runs a model.
"""

import hashlib
import json
import os
import re
import sys
import uuid
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from datasets import Dataset

from hf_cmal.data.columns import REFERENCES, TARGET
from hf_cmal.data.skipped import SkippedDataWarning

MANIFEST = "manifest.json"
_SHARD_NAME = re.compile(r"shard-(\d{5})-of-(\d{5})\.jsonl")


def load_pseudo_targets(
    output_dir: str | os.PathLike[str],
    dataset: Dataset,
    *,
    on_empty: Literal["reference", "drop"] = "reference",
) -> Dataset:
    """The dataset with its column `target` filled with the teacher's sentences, for XE training (Sec. 4.6).

    A row for which the teacher wrote nothing (an empty string) trains on its first reference where it has
    one; a row without references is left out. Both are counted in one warning.

    Args:
        output_dir: the folder [`~hf_cmal.training.distillation.distill`] filled.
        dataset: the rows that were distilled, in the same order, unlabeled ones (`references == []`) too.
        on_empty: `"reference"` as above; `"drop"` leaves out every row with an empty sentence.

    Returns:
        A dataset with the columns of `dataset` and `target`, all rows in order but those left out.

    Raises:
        FileNotFoundError: the folder holds no manifest.
        ValueError: the folder was made for other inputs; or rows are missing (the message says how many and
            how to finish); or `on_empty` is unknown.
    """
    if on_empty not in ("reference", "drop"):
        raise ValueError(f"on_empty is {on_empty!r}; legal values: 'reference', 'drop'")
    folder = Path(output_dir)
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"{folder} holds no {MANIFEST}: run distillation into this folder first")
    described = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["dataset"]
    fingerprint, _ = fingerprint_inputs(dataset, described["source_column"])
    _check_field("dataset.rows", described["rows"], len(dataset), folder)
    _check_field("dataset.fingerprint", described["fingerprint"], fingerprint, folder)
    targets = read_targets(folder, num_rows=len(dataset))
    missing = len(dataset) - len(targets)
    if missing:
        raise ValueError(
            f"{missing} of {len(dataset)} rows in {folder} have no pseudo-target yet; run the distillation "
            f"again with the same arguments (any number of processes): it does only what is missing"
        )
    return _fill_target_column(dataset, targets, on_empty=on_empty, folder=folder)


def _fill_target_column(
    dataset: Dataset, targets: Mapping[int, str], *, on_empty: str, folder: Path
) -> Dataset:
    empty = [index for index in range(len(dataset)) if not targets[index].strip()]
    filled = dict(targets)
    left_out: set[int] = set()
    for index in empty:
        references = dataset[index][REFERENCES] if on_empty == "reference" else []
        if references:
            filled[index] = references[0]
        else:
            left_out.add(index)
    if empty:
        warnings.warn(
            f"the teacher wrote nothing for {len(empty)} of {len(dataset)} rows in {folder}: "
            f"{len(empty) - len(left_out)} train on their first reference, {len(left_out)} are left out",
            SkippedDataWarning,
            stacklevel=3,
        )
    rows = dataset.remove_columns(TARGET) if TARGET in dataset.column_names else dataset
    rows = rows.add_column(TARGET, [filled[index] for index in range(len(dataset))])
    return (
        rows.select([index for index in range(len(dataset)) if index not in left_out]) if left_out else rows
    )


def fingerprint_inputs(dataset: Dataset, column: str) -> tuple[str, list[int]]:
    """A hash of what one column holds, and the length of each of its values (characters, items, vectors).

    `Dataset._fingerprint` would not do: it changes with every `map`, whatever the content.

    Raises:
        ValueError: the dataset has no such column, or a value is of ragged shape.
    """
    if column not in dataset.column_names:
        raise ValueError(
            f"source_column is {column!r}, but the dataset has the columns "
            f"{', '.join(dataset.column_names)}; name the column that identifies an input"
        )
    digest = hashlib.sha256()
    lengths = []
    for batch in dataset.select_columns([column]).with_format("numpy").iter(batch_size=1000):
        for value in batch[column]:
            if isinstance(value, str):
                content, length = value.encode("utf-8"), len(value)
            else:
                array = np.asarray(value)
                if array.dtype == object:
                    raise ValueError(f"column {column!r} has values of ragged shape; name another column")
                content = f"{array.dtype}{array.shape}".encode() + array.tobytes()
                length = len(array) if array.ndim else 0
            digest.update(len(content).to_bytes(8, "little"))  # else ["ab", "c"] would be ["a", "bc"]
            digest.update(content)
            lengths.append(length)
    return digest.hexdigest(), lengths


def read_targets(folder: Path, *, num_rows: int) -> dict[int, str]:
    """Every pseudo-target in the folder, whatever the number of processes that wrote it.

    A torn last line is passed over: its row is not done.

    Raises:
        ValueError: a whole line that is not a pseudo-target of these rows; the message names file and line.
    """
    targets: dict[int, str] = {}
    repeated = 0
    for path in _shards(folder):
        *whole, _torn = path.read_bytes().split(b"\n")
        for number, line in enumerate(whole, start=1):
            try:
                row = json.loads(line)
                index, target = row["index"], row["target"]
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{path}, line {number} is damaged; delete the line and distil again"
                ) from error
            if not 0 <= index < num_rows:
                raise ValueError(
                    f"{path}, line {number} has the index {index}, but there are {num_rows} rows; "
                    f"delete the line and distil again"
                )
            repeated += index in targets
            targets.setdefault(index, target)
    if repeated:
        warnings.warn(
            f"{repeated} pseudo-targets stand in {folder} more than once; the first of each counts",
            stacklevel=3,
        )
    return targets


def _shards(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if _SHARD_NAME.fullmatch(path.name))


class ShardWriter:
    """Appends pseudo-targets to the shard of one process; a context manager.

    On entering it takes the shard's lock, so that a resumed run cannot write the same rows as the workers a
    killed launcher left behind, and removes a last line torn by a kill.

    Raises:
        BlockingIOError: another process is still writing the same rows.
    """

    def __init__(self, folder: Path, *, process_index: int, num_processes: int) -> None:
        self.folder, self.num_processes = folder, num_processes
        self.path = folder / f"shard-{process_index:05d}-of-{num_processes:05d}.jsonl"

    def __enter__(self) -> Self:
        self._file = open(self.path, "a+b")
        _lock(self._file.fileno(), self.path, exclusive=True)
        for path in _shards(self.folder):
            # Its neighbours write other rows than this process. A run of another number of processes may
            # write the same ones.
            if not path.name.endswith(f"-of-{self.num_processes:05d}.jsonl"):
                with open(path, "rb") as other:
                    _lock(other.fileno(), path, exclusive=False)
        self._remove_torn_line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()  # releases the lock, as does the death of the process

    def _remove_torn_line(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            warnings.warn(
                f"{self.path} ended in a torn line ({len(content) - whole} bytes): removed, "
                f"its row is done again",
                stacklevel=4,
            )
            self._file.truncate(whole)

    def append(self, rows: Iterable[tuple[int, str]]) -> None:
        """Writes whole lines and returns once they are on the disk."""
        lines = [
            json.dumps({"index": index, "target": target}, ensure_ascii=False) + "\n"
            for index, target in rows
        ]
        self._file.write("".join(lines).encode("utf-8"))
        self._file.flush()
        os.fsync(self._file.fileno())


def _lock(descriptor: int, path: Path, *, exclusive: bool) -> None:
    if sys.platform == "win32":  # no fcntl there
        return
    import fcntl

    try:
        fcntl.flock(descriptor, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BlockingIOError(
            f"another process is still writing {path}; end the earlier run (a killed launcher can leave its "
            f"workers behind), then start again"
        ) from error
    except OSError as error:
        warnings.warn(
            f"{path} cannot be locked on this file system ({error}): take care that no second run writes it",
            stacklevel=4,
        )


def write_or_check_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    """Writes `manifest.json`, or compares with the one that an earlier run (or another process) left.

    Another version of a library is only warned of. A field that one side alone has (a config written by
    another release of transformers) says nothing and is passed over.

    Raises:
        ValueError: a field differs; the message names the field, both values and the fix.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / MANIFEST
    current = json.loads(json.dumps(manifest))
    if not path.exists():
        if _shards(folder):
            raise ValueError(
                f"{folder} holds pseudo-targets but no {MANIFEST}, so it is unknown what they are; choose "
                f"another output_dir, or delete the folder to start over"
            )
        _write_atomically(path, json.dumps(current, indent=2, ensure_ascii=False))
    earlier = json.loads(path.read_text(encoding="utf-8"))
    for name, now in current["versions"].items():
        if name in earlier["versions"] and earlier["versions"][name] != now:
            warnings.warn(
                f"{folder} was begun with {name} {earlier['versions'][name]}, now it is {now}", stacklevel=3
            )
    _compare("", earlier, {key: value for key, value in current.items() if key != "versions"}, folder)


def _write_atomically(path: Path, text: str) -> None:
    unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with open(unfinished, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(unfinished, path)


def _compare(field: str, earlier: Any, current: Any, folder: Path) -> None:
    if isinstance(earlier, dict) and isinstance(current, dict):
        for key in [key for key in earlier if key in current]:
            _compare(f"{field}.{key}" if field else key, earlier[key], current[key], folder)
    else:
        _check_field(field, earlier, current, folder)


def _check_field(field: str, earlier: Any, current: Any, folder: Path) -> None:
    if earlier != current:
        raise ValueError(
            f"{folder} was made with {field} = {earlier!r}, now it is {current!r}; go back to the earlier "
            f"value, choose another output_dir, or delete the folder to start over"
        )
