"""Where sentence pairs come from: splits that are given, held out, or bereft of their translations."""

import pytest

from hf_cmal.data.skipped import SkippedDataWarning
from hf_cmal.tasks.translation import TranslationData, load


@pytest.fixture
def files(tmp_path):
    """name, number of pairs -> the two files of a split, line i being "s i" and "t i"."""

    def write(name: str, pairs: int) -> tuple[str, str]:
        paths = tmp_path / f"{name}.en", tmp_path / f"{name}.de"
        for path, word in zip(paths, "st", strict=True):
            path.write_text("".join(f"{word} {name}{i}\n" for i in range(pairs)))
        return str(paths[0]), str(paths[1])

    return write


def numbers(split) -> list[str]:
    return [source.removeprefix("s ") for source in split["source"]]


def test_a_split_that_is_not_given_is_held_out_of_training(files):
    with pytest.warns(SkippedDataWarning) as warned:
        splits = load(TranslationData(train=files("a", 100)))
    assert [str(w.message) for w in warned] == [
        "data.validation is empty: 5 of 100 training pairs are held out for it",
        "data.test is empty: 4 of 95 training pairs are held out for it",
    ]
    assert {name: len(split) for name, split in splits.items()} == {"train": 91, "validation": 5, "test": 4}
    together = [number for split in splits.values() for number in numbers(split)]
    assert sorted(together) == sorted(f"a{i}" for i in range(100))
    for split in splits.values():
        assert list(split["references"]) == [[f"t {n}"] for n in numbers(split)]


def test_every_stage_holds_out_the_same_pairs(files):
    data = TranslationData(train=files("a", 100))
    with pytest.warns(SkippedDataWarning):
        first, second = load(data), load(data)
    assert {name: numbers(split) for name, split in first.items()} == {
        name: numbers(split) for name, split in second.items()
    }


def test_a_large_corpus_loses_no_more_than_five_hundred_pairs_to_a_split(files):
    data = TranslationData(train=files("a", 30_000), test=files("b", 3))
    with pytest.warns(SkippedDataWarning, match="500 of 30000"):
        assert len(load(data)["validation"]) == 500


def test_what_is_given_is_taken_as_it_is(files):
    splits = load(TranslationData(train=files("a", 3), validation=files("b", 2), test=files("c", 2)))
    assert [numbers(splits[name]) for name in ("train", "validation", "test")] == [
        ["a0", "a1", "a2"], ["b0", "b1"], ["c0", "c1"]
    ]  # fmt: skip


def test_too_few_pairs_to_hold_some_out_are_an_error(files):
    with pytest.raises(ValueError, match=r"data\.validation is empty and 19 training pairs are too few"):
        load(TranslationData(train=files("a", 19)))


def test_no_training_files_are_an_error(files):
    with pytest.raises(ValueError, match=r"data\.train is \[\]; give \[source file, target file\]"):
        load(TranslationData(validation=files("b", 2), test=files("c", 2)))
