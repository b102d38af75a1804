"""The table of systems against a baseline, of results written by hand."""

import pytest

from hf_cmal.evaluation.comparison import comparison_table, pooled_difference
from tests.evaluation.written_results import cells, compared_ladder, ladder, without

RISING = [float(value) for value in range(1001)]  # the middle 95 % of them: 25 to 975


def part(name="sc", **options):
    return compared_ladder(1, {name: RISING}, **options)["comparison"]


# --- several seeds


def test_one_seed_has_its_own_difference_and_interval():
    assert pooled_difference([part(difference=1.5)], "sc") == pytest.approx((1.5, 25.0, 975.0))


def test_seeds_are_pooled_draw_by_draw():
    """What one seed gains on a drawn test set the other loses: on every draw their mean is 500."""
    falling = compared_ladder(2, {"sc": RISING[::-1]}, difference=2.5)["comparison"]
    assert pooled_difference([part(difference=1.5), falling], "sc") == (2.0, 500.0, 500.0)
    assert pooled_difference([part(), part()], "sc")[1:] == pytest.approx((25.0, 975.0))


def test_seeds_that_were_resampled_differently_are_an_error_that_shows_both():
    with pytest.raises(ValueError, match="signature of a comparison is 'bs:9' in one result and 'bs:1001'"):
        pooled_difference([part(), {**part(), "signature": "bs:9"}], "sc")


def test_seeds_against_different_baselines_are_an_error_that_names_the_system():
    other = part()
    other["systems"]["sc"]["baseline"] = "xe"
    with pytest.raises(ValueError, match="baseline of sc of a comparison is 'xe' in one result and 'ca'"):
        pooled_difference([part(), other], "sc")


# --- the table


def curve(*rewards, update_seconds=0.5):
    """Rewards at updates 10, 20 ..."""
    points = [
        {"step": 10 * n, "reward": reward, "seconds": 10 * n * update_seconds}
        for n, reward in enumerate(rewards, start=1)
    ]
    return {"train": points, "validation": []}


def test_a_row_has_both_scores_with_their_differences_and_what_training_cost():
    differences = {"sc": [1.0] * 5, "sc_postprocess": [-2.0] * 5}
    curves = {"sc": curve(*[0.0] * 5, *[0.25] * 5, *[0.5] * 5), "ca": curve(0.125, update_seconds=2.0)}
    table = comparison_table([compared_ladder(1, differences, difference=0.25, curves=curves)])
    head = (
        "| system | BLEU | against ca | BLEU, postprocessed | against ca | s per update | reward at the end |"
    )
    assert table.startswith(head + "\n|---|---:|---:|---:|---:|---:|---:|\n")
    assert cells(table, "sc") == [
        "21.0", "+0.25 (+1.00 to +1.00)", "22.0", "+0.25 (-2.00 to -2.00)", "0.50", "0.375",
    ]  # fmt: skip
    assert cells(table, "ca") == ["20.0", "-", "25.0", "-", "2.00", "0.125"]
    assert "- differences: `bs:5`" in table
    assert "_postprocess |" not in table


def test_several_seeds_become_means_and_a_model_of_fewer_is_shown_with_its_seeds():
    first = compared_ladder(
        1, {"sc": [1.0, 1.0], "aa": [4.0, 4.0]}, difference=1.0, curves={"sc": curve(0.5)}
    )
    second = compared_ladder(
        2, {"sc": [2.0, 2.0]}, bleu=23.0, difference=2.0, curves={"sc": curve(0.25, update_seconds=1.5)}
    )
    table = comparison_table([first, second])
    assert cells(table, "sc")[:2] == ["22.0 (21.0-23.0)", "+1.50 (+1.50 to +1.50)"]
    assert cells(table, "sc")[-2:] == ["0.50", "0.500"]  # of the first: other seeds have other batches
    assert cells(table, "aa (seed 1)")[:2] == ["21.0", "+1.00 (+4.00 to +4.00)"]
    assert "Koehn 2004; seeds 1, 2)" in table


def test_what_was_not_measured_is_a_dash():
    result = without(compared_ladder(1, {"sc": [1.0]}), "sc_postprocess")
    assert cells(comparison_table([result]), "sc")[2:] == ["-", "-", "-", "-"]
    untimed = {"sc": {"train": [{"step": 10, "loss": 0.5}], "validation": []}}
    table = comparison_table([compared_ladder(1, {"sc": [1.0]}, curves=untimed)])
    assert cells(table, "sc")[-2:] == ["-", "-"]


def test_results_without_a_comparison_have_no_table():
    assert comparison_table([ladder()]) is None
    table = comparison_table([ladder(1), compared_ladder(2, {"sc": [1.0]})])
    assert "| sc (seed 2) |" in table
