"""Tables of results written by hand."""

from hf_cmal.evaluation.tables import result_table, seeds, system_names
from tests.evaluation.written_results import cells, ladder, without


def test_a_table_has_a_row_per_system_and_a_column_per_score_that_any_system_has():
    result = ladder(cmal=20.25)
    result["systems"]["nat_cmal"]["speedup"] = 8.0
    table = result_table(result)
    assert "| system | BLEU | repeated | ms | speed-up |" in table
    assert cells(table, "teacher_beam4") == ["30.0", "0.0 %", "80.0", "-"]
    assert cells(table, "nat_cmal") == ["20.2", "12.5 %", "10.0", "8.0 x"]  # 20.25 is rounded to even
    assert table.startswith("translation, test split, 100 inputs, seed 1\n")


def test_what_a_system_does_not_have_is_a_dash():
    one = ladder()
    del one["systems"]["nat_cmal"]["latency_ms"]
    assert cells(result_table(one), "nat_cmal")[2] == "-"


def test_several_seeds_become_mean_and_range():
    table = result_table(ladder(1, cmal=20.0), ladder(2, cmal=23.0), ladder(3, cmal=21.5))
    assert "seeds 1, 2, 3" in table
    assert cells(table, "nat_cmal") == ["21.5 (20.0-23.0)", "12.5 %", "10.0"]


def test_times_and_speedups_of_several_seeds_are_means():
    first, second = ladder(1), ladder(2)
    first["systems"]["nat_cmal"].update(latency_ms=10.0, speedup=8.0)
    second["systems"]["nat_cmal"].update(latency_ms=13.0, speedup=7.0)
    assert cells(result_table(first, second), "nat_cmal")[2:] == ["11.5", "7.5 x"]


def test_a_system_that_a_seed_lacks_is_shown_with_the_seeds_that_have_it():
    results = [ladder(1, cmal=20.0), without(ladder(2), "nat_cmal"), ladder(3, cmal=22.0)]
    table = result_table(*results)
    assert cells(table, "nat_cmal (seeds 1, 3)")[0] == "21.0 (20.0-22.0)"
    assert cells(table, "nat_xe")[0] == "20.0 (20.0-20.0)"


def test_a_system_that_the_first_seed_lacks_comes_with_its_columns_behind_the_others():
    second = ladder(2, cmal=22.0)
    second["systems"]["nat_cmal"]["chrf"] = 50.0
    table = result_table(without(ladder(1), "nat_cmal"), second)
    assert "| system | BLEU | chrF | repeated | ms |" in table
    assert cells(table, "nat_cmal (seed 2)") == ["22.0", "50.0", "12.5 %", "10.0"]
    assert cells(table, "nat_xe")[1] == "-"
    assert system_names([without(ladder(1), "teacher_beam4"), ladder(2)])[-1] == "teacher_beam4"


def test_captioning_scores_have_three_digits():
    one = ladder()
    one["systems"] = {"student": {"cider": 1.23456, "bleu_4": 0.25, "rouge_l": 0.5}}
    assert cells(result_table(one), "student") == ["1.235", "0.250", "0.500"]


def test_seeds_are_named():
    assert (seeds([ladder(4)]), seeds([ladder(1), ladder(3)])) == ("seed 4", "seeds 1, 3")
