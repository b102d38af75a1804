"""What the figures of results written by hand show, and that the same results give the same file."""

import math
import sys

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image

from hf_cmal.evaluation.plots import (
    curve_points,
    draw_curves,
    draw_length,
    figure_names,
    length_series,
    write_figures,
)
from tests.evaluation.written_results import ladder


def by_length(xe, cmal, *, bounds=(10, 20), rows=(60, 30, 10)):
    """`by_source_length` of two systems in three buckets."""
    return {
        "by_source_length": {
            "bounds": list(bounds), "rows": list(rows), "systems": {"nat_xe": xe, "nat_cmal": cmal},
        }
    }  # fmt: skip


def curve(*rewards, bleu=()):
    """Rewards at updates 10, 20 ... and BLEU at updates 50, 100 ..."""
    train = [{"step": 10 * (n + 1), "reward": reward, "loss": 0.5} for n, reward in enumerate(rewards)]
    return {"train": train, "validation": [{"step": 50 * (n + 1), "bleu": x} for n, x in enumerate(bleu)]}


LENGTHS = [
    ladder(1, **by_length([30.0, 20.0, 10.0], [32.0, 30.0, 28.0])),
    ladder(2, **by_length([26.0, 22.0, None], [34.0, 31.0, 26.0])),
]
CURVES = [
    ladder(1, curves={"cmal": curve(0.25, 0.5, bleu=[20.0]), "xe": curve(bleu=[10.0, 15.0])}),
    ladder(2, curves={"cmal": curve(0.125, 0.375, bleu=[22.0])}),
    ladder(3),
]


def drawn(draw, results):
    figure = Figure()
    draw(figure, results)
    return figure.axes


# --- what is drawn


def test_scores_of_a_bucket_are_gathered_from_the_seeds_that_have_one():
    assert length_series([*LENGTHS, ladder(3)]) == {
        "nat_xe": [[30.0, 26.0], [20.0, 22.0], [10.0]],
        "nat_cmal": [[32.0, 34.0], [30.0, 31.0], [28.0, 26.0]],
    }


def test_seeds_in_different_buckets_are_an_error_that_shows_both():
    other = ladder(2, **by_length([1.0], [1.0], bounds=()))
    with pytest.raises(ValueError, match=r"bounds \[\] in one result and \[10, 20\] in another"):
        length_series([LENGTHS[0], other])


def test_a_line_goes_through_the_means_and_its_bars_from_least_to_most():
    (axes,) = drawn(draw_length, LENGTHS)
    line, _, (bars,) = axes.containers[0]
    assert list(line.get_ydata()) == [28.0, 21.0, 10.0]
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[26, 30], [20, 22], [10, 10]]
    assert [container.get_label() for container in axes.containers] == ["nat_xe", "nat_cmal"]
    assert axes.get_ylabel() == "BLEU"


@pytest.mark.parametrize("score", [26.82, 44.61])  # the mean of three of them is more, and less, by a bit
def test_three_equal_scores_have_no_bar(score):
    equal = [ladder(seed, **by_length([score] * 3, [score] * 3)) for seed in (1, 2, 3)]
    (axes,) = drawn(draw_length, equal)
    ends = [segment[:, 1].tolist() for segment in axes.containers[0].lines[2][0].get_segments()]
    assert [end for low, high in ends for end in (low, high)] == pytest.approx([score] * 6)


def test_a_bucket_without_scores_is_a_hole_in_the_line():
    (axes,) = drawn(draw_length, [ladder(1, **by_length([30.0, None, 10.0], [32.0, None, 28.0]))])
    assert math.isnan(axes.containers[0].lines[0].get_ydata()[1])


def test_buckets_are_named_with_their_rows_if_all_seeds_have_the_same():
    (axes,) = drawn(draw_length, LENGTHS)
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["1-10\nn = 60", "11-20\nn = 30", "21+\nn = 10"]
    other = ladder(2, **by_length([30.0, 20.0, 10.0], [32.0, 30.0, 28.0], rows=(61, 29, 10)))
    (axes,) = drawn(draw_length, [LENGTHS[0], other])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1-10", "11-20", "21+"]


def test_points_of_a_curve_are_gathered_from_the_seeds_that_have_the_value():
    assert curve_points(CURVES, "train", "reward") == {
        "cmal": [([10, 20], [0.25, 0.5]), ([10, 20], [0.125, 0.375])]
    }
    assert curve_points(CURVES, "validation", "bleu") == {
        "cmal": [([50], [20.0]), ([50], [22.0])],
        "xe": [([50, 100], [10.0, 15.0])],
    }


def test_curves_have_a_line_per_seed_and_one_colour_and_name_per_curve_in_both_panels():
    reward, validation = drawn(draw_curves, CURVES)
    assert [list(line.get_ydata()) for line in reward.lines] == [[0.25, 0.5], [0.125, 0.375]]
    assert len({line.get_color() for line in reward.lines}) == 1
    assert [line.get_color() for line in validation.lines[:2]] == [line.get_color() for line in reward.lines]
    assert validation.lines[2].get_color() != validation.lines[0].get_color()
    assert [text.get_text() for text in validation.get_legend().get_texts()] == ["cmal", "xe"]
    assert (reward.get_ylabel(), validation.get_ylabel()) == ("reward of the samples", "validation BLEU")


def test_a_panel_without_curves_is_left_out():
    (axes,) = drawn(draw_curves, [ladder(curves={"xe": curve(bleu=[10.0, 15.0])})])
    assert axes.get_ylabel() == "validation BLEU"


# --- curves against seconds, and many of them


def timed(name, *rewards, update_seconds):
    """A result with one curve, whose updates take so long."""
    one = curve(*rewards, bleu=[20.0])
    for point in (*one["train"], *one["validation"]):
        point["seconds"] = update_seconds * point["step"]
    return {name: one}


TIMED = [
    ladder(1, curves={**timed("slow", 0.25, 0.5, update_seconds=3.0), "xe": curve(bleu=[10.0, 15.0])}),
    ladder(2, curves=timed("fast", 0.125, 0.375, update_seconds=0.5)),
]


def test_timed_curves_are_drawn_against_updates_and_against_seconds():
    panels = {(axes.get_ylabel(), axes.get_xlabel()): axes for axes in drawn(draw_curves, TIMED)}
    updates, seconds = "updates", "seconds of training"
    reward, validation = "reward of the samples", "validation BLEU"
    assert panels.keys() == {(y, x) for y in (reward, validation) for x in (updates, seconds)}
    lines = {
        where: [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
        for where, axes in panels.items()
    }
    assert lines[reward, updates] == [([10, 20], [0.25, 0.5]), ([10, 20], [0.125, 0.375])]
    assert lines[reward, seconds] == [([30, 60], [0.25, 0.5]), ([5, 10], [0.125, 0.375])]
    assert lines[validation, updates] == [([50], [20.0]), ([50, 100], [10.0, 15.0]), ([50], [20.0])]
    assert lines[validation, seconds] == [([150], [20.0]), ([25], [20.0])]  # XE was not timed
    colours = [[line.get_color() for line in axes.lines] for axes in panels.values()]
    assert colours.count(["C0", "C2"]) == 3 and colours.count(["C0", "C1", "C2"]) == 1


def test_a_row_is_a_quantity_and_a_column_what_it_is_drawn_against():
    panels = {
        (axes.get_subplotspec().rowspan.start, axes.get_subplotspec().colspan.start): axes
        for axes in drawn(draw_curves, TIMED)
    }
    assert panels[0, 0].get_ylabel() == panels[0, 1].get_ylabel() == "reward of the samples"
    assert panels[0, 1].get_xlabel() == panels[1, 1].get_xlabel() == "seconds of training"


def test_many_curves_have_each_a_colour_of_its_own_and_one_legend():
    many = {f"e{n}": timed("e", 0.5, 0.25, update_seconds=1.0)["e"] for n in range(11)}
    figure = Figure(layout="constrained")
    draw_curves(figure, [ladder(1, curves=many)])
    assert all(len({line.get_color() for line in axes.lines}) == 11 for axes in figure.axes)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(many)
    assert [axes.get_legend() for axes in figure.axes] == [None] * 4


def test_rewards_of_many_curves_are_means_of_what_was_logged_last_and_those_of_few_are_not():
    many = {f"e{n}": curve(0.5, 0.25, bleu=[20.0, 10.0]) for n in range(9)}
    reward, validation = drawn(draw_curves, [ladder(1, curves=many)])
    assert {tuple(line.get_ydata()) for line in reward.lines} == {(0.5, 0.375)}
    assert {tuple(line.get_ydata()) for line in validation.lines} == {(20.0, 10.0)}
    del many["e0"]
    reward, _ = drawn(draw_curves, [ladder(1, curves=many)])
    assert {tuple(line.get_ydata()) for line in reward.lines} == {(0.5, 0.25)}


# --- files


def test_figures_are_named_after_their_ladder():
    both = [{**LENGTHS[0], **CURVES[0], "by_source_length": LENGTHS[0]["by_source_length"]}]
    assert figure_names(both, "toy/translation") == {
        "length": "toy-translation-length.png", "curves": "toy-translation-curves.png",
    }  # fmt: skip


def test_nothing_is_drawn_of_one_bucket_or_of_curves_without_reward_and_score():
    one_bucket = ladder(**by_length([30.0, None, None], [32.0, None, None], rows=(100, 0, 0)))
    assert figure_names([one_bucket], "toy") == {}
    only_loss = ladder(curves={"xe": {"train": [{"step": 10, "loss": 0.5}], "validation": []}})
    assert figure_names([only_loss], "toy") == {}
    assert figure_names([ladder()], "toy") == {}


def test_the_same_results_give_the_same_small_file_whatever_the_user_has_set(tmp_path):
    write_figures(LENGTHS, "one", tmp_path)
    with matplotlib.rc_context({"lines.linewidth": 9.0, "font.size": 20.0, "savefig.dpi": 30}):
        write_figures(LENGTHS, "two", tmp_path)
    write_figures(LENGTHS[:1], "three", tmp_path)
    one, two, three = ((tmp_path / f"{name}-length.png").read_bytes() for name in ("one", "two", "three"))
    assert one == two != three
    assert len(one) < 80_000


def test_a_file_says_nothing_of_the_software_or_the_day(tmp_path):
    write_figures(CURVES, "toy", tmp_path / "new")
    with Image.open(tmp_path / "new" / "toy-curves.png") as image:
        assert image.info.keys() <= {"dpi"}
        assert min(image.size) > 300


def test_without_matplotlib_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'hf-cmal\[plots\]'"):
        write_figures(LENGTHS, "toy", tmp_path)
    write_figures([ladder()], "toy", tmp_path)  # nothing to draw
    assert list(tmp_path.iterdir()) == []
