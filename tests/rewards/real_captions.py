"""Public captions of real pictures and their references, from the folder that HF_CMAL_DATA names.

A captioner's captions of COCO val2017 with the five to seven that people wrote, as strings, as words and as
word ids. No sentence of the data stands in a test.
"""

import functools
import gzip
import json
import os
from pathlib import Path

import pytest

from hf_cmal.metrics.captions import tokenize

needs_data = pytest.mark.skipif(
    "HF_CMAL_DATA" not in os.environ, reason="HF_CMAL_DATA does not name the data folder"
)


def read_json(*path: str):
    with gzip.open(Path(os.environ["HF_CMAL_DATA"]).joinpath(*path), "rt", encoding="utf-8") as file:
        return json.load(file)


@functools.cache
def real_captions() -> tuple[list[str], list[list[str]]]:
    """5,000 captions, one per picture, and the references of each: strings as they were written."""
    captions = {
        row["image_id"]: row["caption"] for row in read_json("peers", "satic_results_on_val2017.json.gz")
    }
    references = {image: [] for image in captions}
    for row in read_json("coco", "captions_val2017.json.gz")["annotations"]:
        references[row["image_id"]].append(row["caption"])
    return list(captions.values()), list(references.values())


@functools.cache
def tokenized_captions() -> tuple[list[str], list[list[str]]]:
    """The same, words separated by one space, by the package's own rule."""
    captions, references = real_captions()
    return [tokenize(caption) for caption in captions], [
        [tokenize(text) for text in group] for group in references
    ]


def number(captions: list[str], references: list[list[str]]) -> tuple[list[list[int]], list[list[list[int]]]]:
    """Tokenized strings -> word ids, from 1 on."""
    ids: dict[str, int] = {}

    def of(text: str) -> list[int]:
        return [ids.setdefault(word, len(ids) + 1) for word in text.split()]

    return [of(caption) for caption in captions], [[of(text) for text in group] for group in references]
