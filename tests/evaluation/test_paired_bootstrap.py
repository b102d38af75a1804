"""Paired bootstrap resampling against sacreBLEU on corpora written out, and against itself unpaired."""

import logging
import random

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU

from hf_cmal.evaluation.paired_bootstrap import (
    RESAMPLES,
    SEED,
    baselines_of,
    bleu_of_statistics,
    compare_with_baselines,
    draw_sentences,
    interval,
    resampled_bleu,
    sentence_statistics,
)
from hf_cmal.metrics.bleu import reference_streams

ROWS = 120


def corpus(*, wrong, seed, rows=ROWS):
    """Hypotheses in which about a share `wrong` of the words differs from the reference."""
    words, chance = random.Random(0), random.Random(seed)
    references = [[f"w{words.randrange(50)}" for _ in range(words.randrange(5, 25))] for _ in range(rows)]
    hypotheses = [
        " ".join("x" if chance.random() < wrong else word for word in reference) for reference in references
    ]
    return hypotheses, [[" ".join(reference)] for reference in references]


def sacrebleu(hypotheses, references, **options):
    return BLEU().corpus_score(hypotheses, reference_streams(hypotheses, references), **options)


GOOD, REFERENCES = corpus(wrong=0.2, seed=1)
BETTER = [text if row % 3 else " ".join(REFERENCES[row]) for row, text in enumerate(GOOD)]
ALIKE, _ = corpus(wrong=0.2, seed=2)
SYSTEMS = {"good": GOOD, "better": BETTER, "alike": ALIKE, "same": list(GOOD)}


def compared(name, baseline="good"):
    part = compare_with_baselines({name: baseline}, SYSTEMS, REFERENCES, bleu_signature="tok:13a")
    return part["systems"][name]


# --- the score of drawn sentences


@pytest.mark.parametrize(
    ("hypotheses", "references"),
    [
        (GOOD, REFERENCES),
        (["a b c d e", "f g."], [["a b c d", "a b x d e f g"], ["f g ."]]),
        (["a b c d e"], [["a b x d e"]]),  # two orders without a match are smoothed
        (["a b"], [["x y"]]),
    ],
)
def test_bleu_of_the_summed_statistics_is_sacrebleus(hypotheses, references):
    total = sentence_statistics(hypotheses, references).sum(0)
    assert bleu_of_statistics(total) == sacrebleu(hypotheses, references).score


def test_a_drawn_test_set_scores_as_its_sentences_written_out():
    draws = np.array([[2, 0, 1], [0, 3, 0]])
    scores = resampled_bleu(sentence_statistics(GOOD[:3], REFERENCES[:3]), draws)
    for score, rows in zip(scores, ([0, 0, 2], [1, 1, 1]), strict=True):
        written = sacrebleu([GOOD[row] for row in rows], [REFERENCES[row] for row in rows])
        assert score == written.score
    assert scores[0] != scores[1]


def test_every_drawn_test_set_has_as_many_sentences_with_repeats():
    draws = draw_sentences(50, resamples=200)
    assert draws.shape == (200, 50)
    assert set(draws.sum(1)) == {50}
    # a sentence is left out of a test set with probability (1 - 1/50)^50; z over the 200 x 50 cells
    left_out = (1 - 1 / 50) ** 50
    assert abs((draws == 0).mean() - left_out) < 4 * (left_out * (1 - left_out) / draws.size) ** 0.5


def test_draws_depend_on_the_number_of_sentences_and_the_seed_alone():
    assert (draw_sentences(50) == draw_sentences(50)).all()
    assert (draw_sentences(50) != draw_sentences(50, seed=SEED + 1)).any()


def test_the_spread_of_one_system_is_that_of_sacrebleus_own_bootstrap():
    """Both of 1,000 draws, whose quantiles differ by chance."""
    low, high = interval(resampled_bleu(sentence_statistics(GOOD, REFERENCES), draw_sentences(ROWS)))
    theirs = sacrebleu(GOOD, REFERENCES, n_bootstrap=1000)
    assert (high - low) / 2 == pytest.approx(theirs._ci, rel=0.1)
    assert (high + low) / 2 == pytest.approx(theirs._mean, abs=0.1 * theirs._ci)


def test_the_interval_holds_the_middle_95_per_cent():
    assert interval(np.arange(1001.0)[::-1]) == pytest.approx((25.0, 975.0))


# --- differences


def test_a_system_against_itself_has_no_difference_on_any_draw():
    one = compared("same")
    assert (one["difference"], one["low"], one["high"]) == (0.0, 0.0, 0.0)
    assert {float(value) for value in one["resampled"].split()} == {0.0}


def test_a_clearly_better_system_is_better_in_all_of_the_interval():
    one = compared("better")
    scores = [sacrebleu(SYSTEMS[name], REFERENCES).score for name in ("better", "good")]
    assert one["difference"] == scores[0] - scores[1]
    assert 0.0 < one["low"] < one["difference"] < one["high"]
    worse = compared("good", "better")
    assert [worse[name] for name in ("difference", "low", "high")] == pytest.approx(
        [-one[name] for name in ("difference", "high", "low")]
    )


def test_systems_as_good_as_each_other_have_an_interval_around_zero():
    one = compared("alike")
    assert one["difference"] != 0.0
    assert one["low"] < 0.0 < one["high"]


def test_the_interval_is_of_pairs_and_narrower_than_of_two_systems_on_different_draws():
    better, good = (sentence_statistics(SYSTEMS[name], REFERENCES) for name in ("better", "good"))
    draws, others = draw_sentences(ROWS), draw_sentences(ROWS, seed=SEED + 1)
    low, high = interval(resampled_bleu(better, draws) - resampled_bleu(good, others))
    one = compared("better")
    assert one["high"] - one["low"] < 0.8 * (high - low)
    assert (one["low"], one["high"]) == interval(resampled_bleu(better, draws) - resampled_bleu(good, draws))


def test_the_resampled_differences_give_the_interval_again_and_the_signature_says_how():
    part = compare_with_baselines({"better": "good"}, SYSTEMS, REFERENCES, bleu_signature="tok:13a")
    one = part["systems"]["better"]
    values = np.array([float(value) for value in one["resampled"].split()])
    assert len(values) == RESAMPLES == 1000
    assert interval(values) == pytest.approx((one["low"], one["high"]), abs=6e-4)
    assert one["baseline"] == "good"
    assert part["signature"] == "paired-bootstrap|bs:1000|seed:12345|rows:120|interval:95 %|tok:13a"


def test_sacrebleu_is_not_made_to_warn(caplog):
    with caplog.at_level(logging.WARNING):
        sentence_statistics(GOOD[:2], REFERENCES[:2])
    assert caplog.records == []


def test_a_sentence_without_reference_is_an_error():
    with pytest.raises(ValueError, match="sentence 1 has no reference"):
        sentence_statistics(["a", "b"], [["a"], []])


# --- which with which


def test_each_system_is_compared_with_the_baselines_model_that_postprocesses_as_it_does():
    systems = {
        "xe": ("x", False), "xe_post": ("x", True), "ca": ("c", False), "ca_post": ("c", True),
        "teacher": ("t", False),
    }  # fmt: skip
    expected = {"xe": "ca", "xe_post": "ca_post", "teacher": "ca"}
    assert baselines_of(systems, "ca") == expected
    assert baselines_of(systems, "ca_post") == expected


def test_a_second_name_of_the_baseline_is_compared_with_it():
    assert baselines_of({"ca": ("c", False), "again": ("c", False)}, "ca") == {"again": "ca"}


def test_a_baseline_that_is_no_system_is_an_error_that_names_them():
    with pytest.raises(ValueError, match=r"evaluation\.baseline is 'cf'; legal values: xe, ca, or null"):
        baselines_of({"xe": ("x", False), "ca": ("c", False)}, "cf")


def test_a_system_without_a_baseline_that_postprocesses_as_it_does_is_an_error_that_names_it():
    message = r"systems\.xe_post has remove_consecutive_duplicates true, but no system of .* model c has"
    with pytest.raises(ValueError, match=message):
        baselines_of({"xe_post": ("x", True), "ca": ("c", False)}, "ca")
