"""Length statistics of a dataset's target side, as CMAL Table VIII reports them.

Every reference is an example there (COCO: 0.6M captions, not 0.1M images). The standard deviation is over the
whole population. Lengths are in the tokens that were encoded, without the eos; the paper's own tokens are not
defined further.
"""

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from hf_cmal.data.columns import REFERENCE_IDS

TABLE_HEADER = "| Dataset | #Examples | Mean | StdDev | Median |\n|---|---|---|---|---|"


def length_statistics(lengths: Iterable[int]) -> dict[str, float]:
    """Number of examples, and mean, standard deviation, median and maximum of their lengths in tokens."""
    array = np.asarray(list(lengths), dtype=np.float64)
    if not array.size:
        raise ValueError("There are no lengths to describe: the dataset has no references.")
    return {
        "examples": int(array.size),
        "mean": float(array.mean()),
        "stddev": float(array.std()),
        "median": float(np.median(array)),
        "max": int(array.max()),
    }


def list_lengths(dataset: Dataset, column: str) -> np.ndarray:
    """Number of items in each row of a list column, int64 [rows], without making Python lists."""
    return _lengths([_storage(chunk) for chunk in _chunks(dataset, column)])


def reference_lengths(dataset: Dataset) -> np.ndarray:
    """Length in tokens of every reference of an encoded dataset, int64 [all references], row by row."""
    return _lengths([_storage(chunk).flatten() for chunk in _chunks(dataset, REFERENCE_IDS)])


def table_row(name: str, statistics: dict[str, float]) -> str:
    """One row of Table VIII in Markdown, below `TABLE_HEADER`; 100,000 examples and more are in millions."""
    examples = int(statistics["examples"])
    count = f"{examples / 1e6:.1f}M" if examples >= 100_000 else f"{examples:,}"
    numbers = (f"{statistics[key]:.1f}" for key in ("mean", "stddev", "median"))
    return f"| {name} | {count} | {' | '.join(numbers)} |"


def _chunks(dataset: Dataset, column: str) -> list[pa.Array]:
    batches = dataset.select_columns([column]).with_format("arrow").iter(batch_size=10_000)
    return [chunk for batch in batches for chunk in batch[column].chunks]


def _storage(chunk: pa.Array) -> pa.Array:
    return chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk  # Array2D wraps its lists


def _lengths(arrays: list[pa.Array]) -> np.ndarray:
    counted = [pc.list_value_length(array).to_numpy(zero_copy_only=False) for array in arrays]
    return np.concatenate([np.zeros(0), *counted]).astype(np.int64)
