import math

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from hf_cmal.rewards import BleuReward
from tests.rewards.plain import WIDE_WORDS, random_batch, sacrebleu_bleu, scores, text


def test_bleu_is_the_geometric_mean_of_precisions_times_the_brevity_penalty():
    # Reference 1 2 3 4 5, hypothesis 1 2 3 9: precisions 3/4, 2/3, 1/2, and 1/(2 x 1) for the order without
    # match; 4 words against 5: exp(1 - 5/4).
    expected = math.exp(1 - 5 / 4) * (3 / 4 * 2 / 3 * 1 / 2 * 1 / 2) ** (1 / 4)
    assert scores(BleuReward(), [[1, 2, 3, 9]], [[[1, 2, 3, 4, 5]]]) == pytest.approx([expected], abs=1e-15)


def test_bleu_of_a_short_sentence_uses_the_orders_it_has():
    # Hypothesis 1 9 of reference 1 2: 1/2 and, smoothed, 1/(2 x 1); two orders only.
    assert scores(BleuReward(), [[1, 9]], [[[1, 2]]]) == pytest.approx([0.5], abs=1e-15)


def test_bleu_smoothing_halves_once_more_for_each_order_without_match():
    # 1 9 2 of reference 2 8 1: 2/3, then 1/(2 x 2), then 1/(4 x 1).
    expected = (2 / 3 * 1 / 4 * 1 / 4) ** (1 / 3)
    assert scores(BleuReward(), [[1, 9, 2]], [[[2, 8, 1]]]) == pytest.approx([expected], abs=1e-15)


def test_bleu_takes_the_closest_reference_length_and_the_shorter_of_two():
    # Two words; lengths 1 and 3 are equally close: 1 counts, no penalty. With 3 alone: exp(1 - 3/2).
    assert scores(BleuReward(), [[1, 2]], [[[1, 2, 3], [7]]]) == pytest.approx([1.0], abs=1e-15)
    assert scores(BleuReward(), [[1, 2]], [[[7], [1, 2, 3]]]) == pytest.approx([1.0], abs=1e-15)
    assert scores(BleuReward(), [[1, 2]], [[[1, 2, 3]]]) == pytest.approx([math.exp(-1 / 2)], abs=1e-15)


@pytest.mark.parametrize("most_references", [1, 4, 40])
@pytest.mark.parametrize("words", [(1, 2, 3, 4, 5), WIDE_WORDS], ids=["five words", "words up to 2**31"])
def test_bleu_equals_sacrebleu_with_effective_order_and_exp_smoothing(most_references, words):
    hypotheses, references = random_batch(11, 60, most_references, words)
    ours = scores(BleuReward(), hypotheses, references)
    pairs = list(zip(hypotheses, references, strict=True))
    assert ours == pytest.approx([sacrebleu_bleu(h, r) for h, r in pairs], abs=1e-12)
    unsmoothed = BLEU(tokenize="none", effective_order=True, smooth_method="add-k")
    other = [unsmoothed.sentence_score(text(h), [text(x) for x in r]).score / 100 for h, r in pairs]
    assert ours != pytest.approx(other, abs=1e-3)


@pytest.mark.parametrize("sentence", [[5], [5, 6], [5, 6, 7]])
def test_bleu_of_an_identical_pair_of_one_to_three_words_is_one(sentence):
    assert scores(BleuReward(), [sentence], [[sentence]]) == pytest.approx([1.0], abs=1e-15)
    assert scores(BleuReward(), [[*sentence[:-1], 9]], [[sentence]])[0] < 1.0


def test_bleu_counts_eos_as_a_word_by_default():
    actions, mask = torch.tensor([[[5, 6, 0, 9], [5, 6, 9, 9]]]), torch.ones(1, 4, dtype=torch.bool)
    ended, running_on = BleuReward().bind([[[5, 6]]], mask, eos_token_id=0).score(actions)[0].tolist()
    assert ended == pytest.approx(1.0, abs=1e-15)
    assert running_on < 1.0
    # Cut to "5 6": only where eos counts is something missing, 2 words of 3.
    short, short_mask = actions[:, 1:, :2], mask[:, :2]
    assert BleuReward().bind([[[5, 6]]], short_mask, eos_token_id=0).score(short).item() == pytest.approx(
        math.exp(1 - 3 / 2)
    )
    without = BleuReward(count_eos=False).bind([[[5, 6]]], short_mask, eos_token_id=0)
    assert without.score(short).item() == pytest.approx(1.0)


def test_bleu_signature_names_smoothing_order_and_eos():
    assert BleuReward().signature.startswith("bleu|n:4|smooth:exp|eff:yes|eos:yes|v:")
    assert BleuReward(max_order=2, count_eos=False).signature.startswith(
        "bleu|n:2|smooth:exp|eff:yes|eos:no|v:"
    )
