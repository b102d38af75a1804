"""Length statistics as in CMAL Table VIII."""

import math

import pytest
from datasets import Array2D, Dataset, Features, List, Value

from hf_cmal.data.statistics import length_statistics, list_lengths, reference_lengths, table_row

NESTED = Features({"reference_ids": List(List(Value("int32")))})


def test_statistics_of_four_lengths_by_hand():
    # Mean (2+4+4+10)/4 = 5; squared distances 9+1+1+25 = 36, over 4 examples 9, root 3; median (4+4)/2.
    assert length_statistics([4, 2, 10, 4]) == {
        "examples": 4,
        "mean": 5.0,
        "stddev": 3.0,
        "median": 4.0,
        "max": 10,
    }


def test_no_lengths_are_an_error_not_nan():
    with pytest.raises(ValueError, match="no references"):
        length_statistics([])


def test_every_reference_is_an_example():
    rows = {"reference_ids": [[[1, 2], [3]], [], [[4, 5, 6]]]}
    assert reference_lengths(Dataset.from_dict(rows, features=NESTED)).tolist() == [2, 1, 3]


def test_lengths_follow_a_selection_of_rows():
    dataset = Dataset.from_dict({"reference_ids": [[[1, 2], [3]], [[7, 8, 9, 10]], []]}, features=NESTED)
    assert reference_lengths(dataset.select([1, 2, 0])).tolist() == [4, 2, 1]
    assert list_lengths(dataset.select([1, 2, 0]), "reference_ids").tolist() == [1, 0, 2]


def test_list_lengths_of_plain_and_fixed_size_columns():
    features = Features({"ids": List(Value("int32")), "grid": Array2D((2, 3), "float32")})
    rows = {"ids": [[1], [], [2, 3]], "grid": [[[0.0] * 3] * 2] * 3}
    dataset = Dataset.from_dict(rows, features=features)
    assert list_lengths(dataset, "ids").tolist() == [1, 0, 2]
    assert list_lengths(dataset, "grid").tolist() == [2, 2, 2]


def test_table_rows_are_those_of_the_paper():
    coco = {"examples": 616_767, "mean": 10.5, "stddev": 2.4, "median": 10.0}
    assert table_row("MSCOCO", coco) == "| MSCOCO | 0.6M | 10.5 | 2.4 | 10.0 |"
    wmt = {"examples": 4_508_785, "mean": 29.4, "stddev": 17.0, "median": 26.0}
    assert table_row("WMT14 EN-DE", wmt) == "| WMT14 EN-DE | 4.5M | 29.4 | 17.0 | 26.0 |"
    assert table_row("Small", {**wmt, "examples": 29_000}).startswith("| Small | 29,000 |")


def test_the_standard_deviation_is_of_the_population():
    assert math.isclose(length_statistics([1, 3])["stddev"], 1.0)
