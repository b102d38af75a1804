import pytest
import torch
from nltk.translate.gleu_score import sentence_gleu

from hf_cmal.rewards import GleuReward
from tests.rewards.plain import WIDE_WORDS, nltk_gleu, random_batch, scores

EOS = 0


def score(hypotheses, references, *, eos_token_id=None, **options):
    """Joint actions of one input, all agents real."""
    actions = torch.tensor([hypotheses])
    mask = torch.ones(1, actions.shape[2], dtype=torch.bool)
    return (
        GleuReward(**options).bind([references], mask, eos_token_id=eos_token_id).score(actions)[0].tolist()
    )


def test_gleu_is_matches_over_the_larger_number_of_ngrams():
    # Reference 1 2 3 4: 4 + 3 + 2 + 1 = 10 n-grams. Hypothesis 1 2 3 9 also has 10, of which 1, 2, 3, "1 2",
    # "2 3" and "1 2 3" match: 6 / 10. Hypothesis 9 9 9 9 has none.
    assert score([[1, 2, 3, 9], [9, 9, 9, 9]], [[1, 2, 3, 4]]) == pytest.approx([0.6, 0.0], abs=1e-15)


def test_gleu_clips_repeated_ngrams_at_the_reference_count():
    # Reference "1 2 1": words 1 1 2, pairs "1 2" "2 1", triple; 6 n-grams. Hypothesis "1 1 1": 1 matches
    # twice, not three times; 2 / 6. With "1 1 1" as its own reference everything matches.
    assert score([[1, 1, 1]], [[1, 2, 1]]) == pytest.approx([2 / 6], abs=1e-15)
    assert score([[1, 1, 1]], [[1, 1, 1]]) == [1.0]


def test_gleu_is_the_minimum_of_precision_and_recall():
    # Hypothesis 1 2 of reference 1 2 3: precision 3/3, recall 3/6. Exchanged: precision 3/6, recall 3/3.
    assert score([[1, 2]], [[1, 2, 3]]) == pytest.approx([0.5], abs=1e-15)
    assert score([[1, 2, 3]], [[1, 2]]) == pytest.approx([0.5], abs=1e-15)


@pytest.mark.parametrize("most_references", [1, 4, 40])
@pytest.mark.parametrize("words", [(1, 2, 3, 4, 5), WIDE_WORDS], ids=["five words", "words up to 2**31"])
def test_gleu_equals_nltk(most_references, words):
    hypotheses, references = random_batch(7, 60, most_references, words)
    ours = scores(GleuReward(), hypotheses, references)
    theirs = [nltk_gleu(h, r) for h, r in zip(hypotheses, references, strict=True)]
    assert ours == pytest.approx(theirs, abs=1e-12)
    other_order = [sentence_gleu(r, h, max_len=3) for h, r in zip(hypotheses, references, strict=True)]
    assert ours != pytest.approx(other_order, abs=1e-3)
    assert scores(GleuReward(max_order=3), hypotheses, references) == pytest.approx(other_order, abs=1e-12)


def test_gleu_of_several_references_is_that_of_the_best_one_not_of_their_union():
    # 1 2 has 3 of 3 n-grams in the first, and against the second, 3 4, none; 1 2 3 4 has 3 / 10 in each,
    # though every word of it stands in some reference.
    references = [[1, 2], [3, 4]]
    assert score([[1, 2]], references) == [1.0]
    assert score([[1, 2, 3, 4]], references) == pytest.approx([0.3], abs=1e-15)
    assert score([[1, 2, 3, 4]], [[1, 2, 3, 4]]) == [1.0]


@pytest.mark.parametrize("sentence", [[5], [5, 6], [5, 6, 7]])
def test_gleu_of_an_identical_pair_of_one_to_three_words_is_one(sentence):
    assert score([sentence], [sentence]) == [1.0]
    assert score([[*sentence[:-1], 9]], [sentence])[0] < 1.0


def test_unfinished_sentence_scores_below_the_complete_one():
    a, cat, on, table = 1, 2, 3, 4
    reference = [a, cat, on, a, table]
    complete, unfinished = [a, cat, on, a, table, EOS], [a, cat, on, a, EOS, EOS]
    with_eos = score([complete, unfinished], [reference], eos_token_id=EOS)
    # 6 words with eos: 6 + 5 + 4 + 3 = 18 n-grams. The unfinished one has 5 words, 14 n-grams; of these 1 2 3
    # 1 and 0, "1 2" "2 3" "3 1", "1 2 3" "2 3 1", "1 2 3 1" match: 5 + 3 + 2 + 1 = 11.
    assert with_eos == pytest.approx([1.0, 11 / 18], abs=1e-15)


def test_sentence_without_eos_scores_below_the_one_that_ends_only_where_eos_counts():
    reference, ended, running_on = [5, 6, 7], [5, 6, 7, EOS], [5, 6, 7, 7]
    counted = score([ended, running_on], [reference], eos_token_id=EOS)
    assert counted[0] == 1.0 and counted[1] < 1.0
    cut = [[5, 6, 7, EOS], [5, 6, 7, EOS]]
    assert score(cut, [reference], eos_token_id=EOS, count_eos=False) == [1.0, 1.0]
    # Three agents only: the words are complete, the eos is missing. 6 of (4 + 3 + 2 + 1) n-grams.
    assert score([[5, 6, 7]], [reference], eos_token_id=EOS) == pytest.approx([0.6], abs=1e-15)
    assert score([[5, 6, 7]], [reference], eos_token_id=EOS, count_eos=False) == [1.0]


def test_words_after_the_first_eos_change_nothing_and_the_eos_position_does():
    reference = [5, 6, 7]
    behind = score([[5, 6, EOS, 7, 9], [5, 6, EOS, EOS, 5]], [reference], eos_token_id=EOS)
    assert behind[0] == behind[1]
    replaced = score([[5, 6, EOS, 7, 9], [5, 6, 7, 7, 9]], [reference], eos_token_id=EOS)
    assert replaced[0] != replaced[1]


def test_repeated_words_are_kept():
    very, good = 1, 2
    # "very very good" (3 + 2 + 1 n-grams) against itself, and "very good" (3 n-grams, all in the reference).
    assert score([[very, very, good]], [[very, very, good]]) == [1.0]
    assert score([[very, good]], [[very, very, good]]) == pytest.approx([0.5], abs=1e-15)


def test_candidates_are_the_words_of_the_references_and_the_eos_where_there_is_one():
    mask = torch.ones(2, 3, dtype=torch.bool)
    references = [[[7, 5], [5, 9]], [[8]]]
    assert GleuReward().bind(references, mask, eos_token_id=0).candidates.tolist() == [
        [0, 5, 7, 9],
        [0, 8, -1, -1],
    ]
    uncounted = GleuReward(count_eos=False).bind(references, mask, eos_token_id=0)
    assert uncounted.candidates.tolist() == [[5, 7, 9, 0], [8, -1, -1, 0]]  # it still ends the sentence
