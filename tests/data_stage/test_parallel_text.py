"""Sentence pairs from files and from `datasets`: what is read, what is skipped and said, what is an error."""

import gzip
import warnings

import pytest
from datasets import Dataset, DatasetDict, Features, Translation, concatenate_datasets

from hf_cmal.data.parallel_text import (
    load_parallel_text,
    load_translation_dataset,
    load_unlabeled_text,
    read_lines,
    select_pairs,
)


def write(path, text: str):
    path.write_bytes(text.encode())
    return path


def test_two_text_files_become_sources_with_one_reference(tmp_path):
    source = write(tmp_path / "a.en", "one\ntwo\n")
    target = write(tmp_path / "a.de", "eins\nzwei")
    pairs = load_parallel_text(str(source), target)
    assert pairs.to_dict() == {"source": ["one", "two"], "references": [["eins"], ["zwei"]]}


def test_gzipped_files_are_read(tmp_path):
    for name, text in (("a.en.gz", "über\n"), ("a.de.gz", "above\n")):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    pairs = load_parallel_text(tmp_path / "a.en.gz", tmp_path / "a.de.gz")
    assert pairs[0] == {"source": "über", "references": ["above"]}


def test_several_target_files_give_several_references(tmp_path):
    source = write(tmp_path / "a.en", "one\ntwo\n")
    targets = [write(tmp_path / "a.1.de", "eins\nzwei\n"), write(tmp_path / "a.2.de", "eine\nzwo\n")]
    assert load_parallel_text(source, targets)["references"] == [["eins", "eine"], ["zwei", "zwo"]]


def test_an_empty_line_in_one_of_several_references_leaves_the_others_and_is_counted(tmp_path):
    source = write(tmp_path / "a.en", "one\ntwo\n")
    targets = [write(tmp_path / "a.1.de", "eins\nzwei\n"), write(tmp_path / "a.2.de", "\nzwo\n")]
    with pytest.warns(UserWarning, match="Skipped 1 empty reference"):
        pairs = load_parallel_text(source, targets)
    assert pairs["references"] == [["eins"], ["zwei", "zwo"]]


def test_unequal_line_counts_are_an_error_naming_both_counts(tmp_path):
    source, target = write(tmp_path / "a.en", "one\ntwo\nthree\n"), write(tmp_path / "a.de", "eins\nzwei\n")
    with pytest.raises(ValueError, match=r"a\.en has 3 lines but .*a\.de has 2"):
        load_parallel_text(source, target)
    with pytest.raises(ValueError, match=r"a\.de has 2 lines but .*a\.en has 3"):
        load_parallel_text(target, [target, source])


def test_empty_lines_are_skipped_with_one_counted_warning_naming_the_first(tmp_path):
    # Line 2 has no source, line 3 no target, line 5 a blank source.
    source = write(tmp_path / "a.en", "one\n\nthree\nfour\n \t\n")
    target = write(tmp_path / "a.de", "eins\nzwei\n\nvier\nfünf\n")
    with pytest.warns(UserWarning) as caught:
        pairs = load_parallel_text(source, target)
    assert pairs.to_dict() == {"source": ["one", "four"], "references": [["eins"], ["vier"]]}
    assert [str(entry.message).split(" in ")[0] for entry in caught] == [
        "Skipped 3 of 5 pairs with an empty line"
    ]
    assert "the first at line 2, 3, 5" in str(caught[0].message)


def test_complete_files_give_no_warning(tmp_path):
    path = write(tmp_path / "a.en", "one\ntwo\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_parallel_text(path, path)
        load_unlabeled_text(path)


def test_a_missing_file_is_an_error_naming_its_path(tmp_path):
    source = write(tmp_path / "a.en", "one\n")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.de"):
        load_parallel_text(source, tmp_path / "nowhere.de")
    with pytest.raises(FileNotFoundError, match=r"nowhere\.jsonl"):
        load_translation_dataset(str(tmp_path / "nowhere.jsonl"), split="train")


def test_files_without_a_usable_pair_are_an_error(tmp_path):
    empty, full = write(tmp_path / "a.en", "\n\n"), write(tmp_path / "a.de", "eins\nzwei\n")
    with pytest.raises(ValueError, match=r"a\.en holds no usable sentence"):
        load_parallel_text(empty, full)
    with pytest.raises(ValueError, match="no usable sentence"):
        load_unlabeled_text(empty)
    with pytest.raises(ValueError, match="empty list"):
        load_parallel_text(full, [])


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c", "\r", "\u2029"])
def test_lines_end_at_newline_characters_only(tmp_path, separator):
    text = f"one{separator}still one\ntwo\n"
    assert read_lines(write(tmp_path / "a.en", text)) == [f"one{separator}still one", "two"]


def test_windows_line_ends_and_byte_order_mark_are_taken_off_and_spaces_kept(tmp_path):
    assert read_lines(write(tmp_path / "a.en", "\ufeff one \r\ntwo\r\n")) == [" one ", "two"]


def test_text_that_is_not_utf8_is_an_error_naming_the_file(tmp_path):
    (tmp_path / "latin.de").write_bytes("über\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.de is not UTF-8"):
        read_lines(tmp_path / "latin.de")


def test_unlabeled_sentences_have_no_references_and_mix_with_labeled_ones(tmp_path):
    source, target = write(tmp_path / "a.en", "one\n"), write(tmp_path / "a.de", "eins\n")
    more = write(tmp_path / "more.en", "two\n\nthree\n")
    with pytest.warns(UserWarning, match="Skipped 1 of 3 empty lines .*line 2"):
        unlabeled = load_unlabeled_text(more)
    mixed = concatenate_datasets([load_parallel_text(source, target), unlabeled])
    assert mixed.to_dict() == {"source": ["one", "two", "three"], "references": [["eins"], [], []]}


def test_a_translation_column_becomes_pairs_in_the_asked_direction():
    rows = [{"en": "one", "de": "eins"}, {"en": "two", "de": "zwei"}]
    for features in (None, Features({"translation": Translation(languages=["en", "de"])})):
        dataset = Dataset.from_dict({"translation": rows}, features=features)
        assert select_pairs(dataset)[1] == {"source": "two", "references": ["zwei"]}
        backward = select_pairs(dataset, source_column="de", target_column="en")
        assert backward[1] == {"source": "zwei", "references": ["two"]}


def test_named_columns_become_pairs_and_a_list_column_several_references():
    dataset = Dataset.from_dict({"id": [1], "english": ["one"], "german": [["eins", "eine"]]})
    pairs = select_pairs(dataset, source_column="english", target_column="german")
    assert pairs.to_dict() == {"source": ["one"], "references": [["eins", "eine"]]}


def test_rows_with_an_empty_side_are_skipped_with_one_counted_warning():
    dataset = Dataset.from_dict({"en": ["one", "", "three", None], "de": ["eins", "zwei", " ", "vier"]})
    with pytest.warns(UserWarning, match=r"Skipped 3 of 4 rows with an empty side .*line 2, 3, 4") as caught:
        pairs = select_pairs(dataset)
    assert pairs.to_dict() == {"source": ["one"], "references": [["eins"]]}
    assert len(caught) == 1


def test_an_absent_column_is_an_error_naming_those_that_exist():
    with pytest.raises(ValueError, match=r"no column 'fr'; it has \['de', 'en'\]"):
        select_pairs(Dataset.from_dict({"en": ["a"], "de": ["b"]}), target_column="fr")
    nested = Dataset.from_dict({"translation": [{"en": "a", "de": "b"}]})
    with pytest.raises(ValueError, match=r"no column 'fr'; it has \['de', 'en'\]"):
        select_pairs(nested, source_column="fr")


@pytest.mark.parametrize("ending", ["jsonl", "parquet", "csv"])
def test_a_dataset_file_is_loaded_by_its_ending(tmp_path, ending):
    dataset = Dataset.from_dict({"en": ["one", "two"], "de": ["eins", "zwei"]})
    path = str(tmp_path / f"pairs.{ending}")
    {"jsonl": dataset.to_json, "parquet": dataset.to_parquet, "csv": dataset.to_csv}[ending](path)
    assert load_translation_dataset(path, split="train")["references"] == [["eins"], ["zwei"]]


def test_a_saved_dataset_folder_is_loaded(tmp_path):
    dataset = Dataset.from_dict({"en": ["one"], "de": ["eins"]})
    dataset.save_to_disk(tmp_path / "one")
    DatasetDict({"train": dataset, "test": dataset}).save_to_disk(tmp_path / "many")
    for name in ("one", "many"):
        assert load_translation_dataset(str(tmp_path / name), split="test")["source"] == ["one"]


def test_wmt14_is_read_from_its_layout_on_the_hub(tmp_path):
    # The Hub repository has a configuration de-en of parquet files with a `translation` column.
    features = Features({"translation": Translation(languages=["de", "en"])})
    for split, word in (("train", "eins"), ("validation", "zwei"), ("test", "drei")):
        dataset = Dataset.from_dict({"translation": [{"de": word, "en": split}]}, features=features)
        dataset.to_parquet(tmp_path / "de-en" / f"{split}-00000-of-00001.parquet")
    configurations = [f"- config_name: {name}\n  data_files:\n" for name in ("cs-en", "de-en")]
    splits = "".join(f"  - split: {s}\n    path: de-en/{s}-*\n" for s in ("train", "validation", "test"))
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n{splits.join([*configurations, ''])}---\n")
    pairs = load_translation_dataset(str(tmp_path), name="de-en", split="validation")
    assert pairs.to_dict() == {"source": ["validation"], "references": [["zwei"]]}
    swapped = load_translation_dataset(
        str(tmp_path), name="de-en", split="test", source_column="de", target_column="en"
    )
    assert swapped["source"] == ["drei"]
