"""Shares of a gap worked out by hand."""

import pytest

from hf_cmal.evaluation.gap import gap_closed, gap_ends, gap_table
from tests.evaluation.written_results import cells, ladder, without

# (26.5 - 20) / (30 - 20) = 65 %, (28.8 - 22) / (32 - 22) = 68 %, (27.1 - 21) / (31 - 21) = 61 %
THREE = [
    ladder(1, xe=20.0, cmal=26.5, teacher=30.0),
    ladder(2, xe=22.0, cmal=28.8, teacher=32.0),
    ladder(3, xe=21.0, cmal=27.1, teacher=31.0),
]


def closed(system, *, worse="nat_xe", better="teacher_beam4", score="bleu", **scores):
    return gap_closed(ladder(**scores), worse=worse, better=better, system=system, score=score)


def test_a_share_is_what_a_system_gains_over_what_the_better_one_is_ahead():
    assert closed("nat_cmal", xe=20.0, cmal=26.0, teacher=28.0) == 6 / 8


def test_the_ends_of_the_gap_close_nothing_and_all_of_it():
    assert (closed("nat_xe"), closed("teacher_beam4")) == (0.0, 1.0)


def test_a_system_below_the_gap_has_a_negative_share_and_one_above_it_more_than_one():
    assert closed("nat_cmal", xe=20.0, cmal=15.0, teacher=30.0) == -0.5
    assert closed("nat_cmal", xe=20.0, cmal=35.0, teacher=30.0) == 1.5


def test_an_unknown_system_is_an_error_that_names_the_ones_there_are():
    with pytest.raises(ValueError, match="no system 'nat'; the result has teacher_greedy, teacher_beam4, "):
        closed("nat")


def test_a_missing_score_is_an_error_that_names_the_system_and_its_scores():
    with pytest.raises(ValueError, match="nat_xe has no score 'gleu'; it has kind, num_beams"):
        closed("nat_cmal", score="gleu")


@pytest.mark.parametrize("teacher", [20.0, 19.5])
def test_a_teacher_that_is_no_better_leaves_no_gap(teacher):
    with pytest.raises(ValueError, match=rf"no gap to close: teacher_beam4 has bleu {teacher}, nat_xe has"):
        closed("nat_cmal", xe=20.0, teacher=teacher)


def test_the_gap_lies_between_the_xe_student_and_the_teacher_with_most_beams():
    assert gap_ends(ladder()) == ("nat_xe", "teacher_beam4")


def test_a_ladder_without_one_xe_student_and_a_teacher_has_no_gap():
    assert gap_ends(without(ladder(), "nat_xe")) is None
    assert gap_ends(without(ladder(), "teacher_greedy", "teacher_beam4")) is None
    two = ladder()
    two["systems"]["nat_random_xe"] = two["systems"]["nat_xe"]
    assert gap_ends(two) is None


def test_the_table_has_every_other_student_with_mean_and_range_over_the_seeds():
    table = gap_table(THREE)
    assert table.splitlines()[0] == (
        "| student | closes of the BLEU gap from nat_xe to teacher_beam4 | BLEU against teacher_beam4 |"
    )
    assert table.count("\n") == 2  # head, line, one student
    # 194 / 3 and -10.6 / 3
    assert cells(table, "nat_cmal") == ["65 % (61 to 68)", "-3.5"]


def test_one_seed_has_no_range_and_a_student_above_the_teacher_a_plus():
    assert cells(gap_table([ladder(cmal=32.0)]), "nat_cmal") == ["120 %", "+2.0"]


def test_captioning_scores_have_three_digits():
    result = ladder(main_score="cider")
    for row in result["systems"].values():
        row["cider"] = row["bleu"] / 10
    table = gap_table([result])
    assert "closes of the CIDEr gap" in table
    assert cells(table, "nat_cmal") == ["65 %", "-0.350"]


def test_a_student_that_a_seed_lacks_is_shown_with_the_seeds_that_have_it():
    table = gap_table([THREE[0], without(THREE[1], "nat_cmal"), THREE[2]])
    assert cells(table, "nat_cmal (seeds 1, 3)") == ["63 % (61 to 65)", "-3.7"]


def test_a_seed_that_lacks_an_end_of_the_gap_is_left_out():
    table = gap_table([THREE[0], without(THREE[1], "teacher_beam4")])
    assert cells(table, "nat_cmal (seed 1)") == ["65 %", "-3.5"]


def test_there_is_no_table_where_there_is_no_gap():
    assert gap_table([without(ladder(), "nat_xe")]) is None
    assert gap_table([without(ladder(), "nat_cmal")]) is None
    assert gap_table([THREE[0], ladder(2, xe=31.0, teacher=30.0)]) is None
