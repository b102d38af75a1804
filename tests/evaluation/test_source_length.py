"""Buckets of source lengths, on numbers counted by hand."""

import pytest

from hf_cmal.evaluation.source_length import (
    bucket_labels,
    bucket_rows,
    check_bounds,
    score_buckets,
    source_lengths,
)
from tests.models.tiny_text import tiny_tokenizer


def test_a_bound_is_the_greatest_length_of_its_bucket():
    #        rows 0   1  2   3   4   5
    assert bucket_rows([10, 11, 1, 15, 16, 99], bounds=(10, 15)) == [[0, 2], [1, 3], [4, 5]]


def test_a_bucket_without_rows_is_empty_and_without_bounds_there_is_one_bucket():
    assert bucket_rows([3, 20], bounds=(5, 10)) == [[0], [], [1]]
    assert bucket_rows([3, 20], bounds=()) == [[0, 1]]


def test_labels_give_the_least_and_the_greatest_length_of_each_bucket():
    assert bucket_labels((10, 15)) == ["1-10", "11-15", "16+"]


@pytest.mark.parametrize("bounds", [(0, 5), (5, 5), (6, 5), (-1,), (1.5, 3)])
def test_bounds_that_do_not_rise_from_one_are_an_error_that_shows_them(bounds):
    with pytest.raises(ValueError) as error:
        check_bounds(bounds)
    assert f"length_bounds is {list(bounds)}; give whole numbers of 1 or more" in str(error.value)


@pytest.mark.parametrize("bounds", [(), (1,), (10, 15, 20, 25)])
def test_rising_bounds_are_legal(bounds):
    check_bounds(bounds)


def test_lengths_count_subwords_without_eos_and_are_not_cut_to_the_models_limit():
    tokenizer = tiny_tokenizer(model_max_length=4)
    assert tokenizer("a man")["input_ids"] == [2, 3, 0]  # with the eos
    assert source_lengths(tokenizer, ["a man", "a man on a ladder on a man"]) == [2, 8]


def test_a_buckets_score_is_that_of_its_rows_as_one_corpus():
    def right_letters(hypotheses, references):  # in percent of all letters of the corpus
        pairs = [(h, r[0]) for h, r in zip(hypotheses, references, strict=True)]
        right = sum(a == b for h, r in pairs for a, b in zip(h, r, strict=True))
        return 100 * right / sum(len(r) for _, r in pairs)

    hypotheses, references = ["ab", "x", "abcd"], [["ab"], ["y"], ["abcx"]]
    scores = score_buckets([[0, 2], [], [1]], hypotheses, references, right_letters)
    # (2 + 3) of (2 + 4) letters, where the mean over sentences would be (100 + 75) / 2; nothing; 0 of 1
    assert scores == [pytest.approx(100 * 5 / 6), None, 0.0]
