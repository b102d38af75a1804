"""Inputs at the edges, for every reward: values by hand, or by the plain sums of `plain.py`."""

import math
import random

import pytest
import torch

from hf_cmal.rewards import (
    BleuReward,
    CiderDReward,
    DocumentFrequencies,
    GleuReward,
    MixtureReward,
    RepetitionReward,
    RougeLReward,
    score_written_out,
)
from hf_cmal.sampling import Edits
from tests.rewards.plain import (
    coco_bleu,
    nltk_gleu,
    pad,
    pycocoevalcap_cider,
    random_sentences,
    repetition,
    rouge_l,
    sacrebleu_bleu,
)

EOS = 0
SEVENTY_THOUSAND = range(1, 70_000)
# Three images; the words 5 and 6 stand in one each, every reference ends in eos.
DOCUMENTS = [[[5, 7, 8]], [[6, 6]], [[9], [8]]]
FREQUENCIES = DocumentFrequencies.from_references(DOCUMENTS, eos_token_id=EOS)

REWARDS = {
    "gleu": GleuReward(),
    "bleu": BleuReward(),
    "bleu-coco": BleuReward(smoothing="coco"),
    "cider-d": CiderDReward(FREQUENCIES),
    "rouge-l": RougeLReward(),
    "repetition": RepetitionReward(),
    "mixture": MixtureReward([(1.0, GleuReward()), (0.5, RepetitionReward()), (-0.25, RougeLReward())]),
}


def plain(name: str, hypothesis: list[int], references: list[list[int]]) -> float:
    """The value of the sentence `hypothesis`, which ends in eos, against references that all end in eos."""
    closed = [[*reference, EOS] for reference in references]
    values = {
        "gleu": lambda: nltk_gleu(hypothesis, closed),
        "bleu": lambda: sacrebleu_bleu(hypothesis, closed),
        "bleu-coco": lambda: coco_bleu(hypothesis, closed),
        "cider-d": lambda: pycocoevalcap_cider(
            hypothesis, closed, [[[*reference, EOS] for reference in image] for image in DOCUMENTS]
        ),
        "rouge-l": lambda: rouge_l(hypothesis, closed),
        "repetition": lambda: repetition([word for word in hypothesis if word != EOS]),
    }
    values["mixture"] = lambda: values["gleu"]() + 0.5 * values["repetition"]() - 0.25 * values["rouge-l"]()
    return values[name]()


def score(name: str, hypothesis: list[int], references: list[list[int]]) -> float:
    actions, mask = pad([hypothesis])
    return REWARDS[name].bind([references], mask, eos_token_id=EOS).score(actions).item()


every_reward = pytest.mark.parametrize("name", REWARDS)

# By hand. "5 eos" against itself has 2 words, 1 pair, and no longer n-gram: COCO's BLEU counts these as
# 1e-15 / 1e-9. CIDEr-D: order 1 has 5 (eos is in all images and weighs nothing), order 2 has "5 eos".
ONE_WORD = {
    "gleu": 1.0, "bleu": 1.0, "bleu-coco": 1e-12 ** (1 / 4), "cider-d": 10 * 2 / 4, "rouge-l": 1.0,
    "repetition": 0.0, "mixture": 1 - 0.25,
}  # fmt: skip

# "eos" against "5 6 eos": 1 of 6 n-grams; brevity exp(1 - 3 / 1); precision 1 and recall 1 / 3. The three
# orders above the first are 1e-15 / 1e-9 each.
EMPTY_ROUGE = (1 + 1.44) * (1 / 3) / (1 / 3 + 1.44)
EMPTY = {
    "gleu": 1 / 6, "bleu": math.exp(-2), "bleu-coco": math.exp(-2) * 1e-18 ** (1 / 4), "cider-d": 0.0,
    "rouge-l": EMPTY_ROUGE, "repetition": 0.0, "mixture": 1 / 6 - 0.25 * EMPTY_ROUGE,
}  # fmt: skip


@every_reward
def test_a_sentence_of_one_word_equals_itself(name):
    assert score(name, [5, EOS], [[5]]) == pytest.approx(ONE_WORD[name], rel=1e-7)
    if name != "repetition":
        assert score(name, [6, EOS], [[5]]) != pytest.approx(ONE_WORD[name], rel=0.1)


@every_reward
@pytest.mark.parametrize("behind", [[], [5], [6, 6, 5]], ids=["alone", "a word behind", "words behind"])
def test_an_empty_hypothesis_is_worth_its_eos(name, behind):
    assert score(name, [EOS, *behind], [[5, 6]]) == pytest.approx(EMPTY[name], rel=1e-7, abs=1e-15)
    if name != "repetition":
        assert score(name, [5, EOS, *behind], [[5, 6]]) != pytest.approx(EMPTY[name], rel=0.1)


@every_reward
@pytest.mark.parametrize("row", [[EOS, 5, 6], [5, 5, 6]], ids=["eos first", "no agent"])
def test_a_hypothesis_without_a_word_is_worth_nothing_where_eos_is_no_word(name, row):
    frequencies = DocumentFrequencies.from_references(DOCUMENTS, eos_token_id=EOS, count_eos=False)
    without_eos = {
        "gleu": GleuReward(count_eos=False),
        "bleu": BleuReward(count_eos=False),
        "bleu-coco": BleuReward(count_eos=False, smoothing="coco"),
        "cider-d": CiderDReward(frequencies, count_eos=False),
        "rouge-l": RougeLReward(count_eos=False),
        "repetition": RepetitionReward(),
        "mixture": MixtureReward([(1.0, GleuReward(count_eos=False)), (0.5, RepetitionReward())]),
    }
    mask = torch.full((1, 3), row[0] == EOS)
    bound = without_eos[name].bind([[[5, 6]]], mask, eos_token_id=EOS)
    assert bound.score(torch.tensor([[row]])).item() == 0.0
    spoken = without_eos[name].bind([[[5, 6]]], ~mask | mask, eos_token_id=EOS)
    assert spoken.score(torch.tensor([[[5, 5, 6]]])).item() != 0.0


@every_reward
def test_references_that_share_no_word_are_worth_nothing(name):
    # No eos in reach: 5 5 5 shares nothing. Only COCO's BLEU is not 0: each order is 1e-15 over its number
    # of n-grams, and the fourth 1e-15 / 1e-9; the brevity penalty is exp(1 - 4 / 3).
    expected = {
        "bleu-coco": math.exp(-1 / 3) * (1e-45 / (3 * 2 * 1) * 1e-6) ** (1 / 4),
        "repetition": -2 / 3,
        "mixture": -1 / 3,
    }.get(name, 0.0)
    references = [[6, 7, 8], [8, 8, 9]]
    assert score(name, [5, 5, 5], references) == pytest.approx(expected, rel=1e-7, abs=1e-30)
    if name != "repetition":
        assert score(name, [5, 5, 8], references) != pytest.approx(expected, rel=0.1, abs=0)


@every_reward
@pytest.mark.parametrize("num_references", [1, 2, 5, 40])
@pytest.mark.parametrize("length", [1, 100])
def test_long_and_short_sentences_in_a_vocabulary_of_seventy_thousand_words(name, num_references, length):
    rng = random.Random(length * num_references)
    references = random_sentences(rng, num_references, SEVENTY_THOUSAND, 100)
    references[0] = [rng.choice(SEVENTY_THOUSAND) for _ in range(length)]
    references[-1] = [*references[0][: length // 2], *references[-1]]
    # A stretch of the first reference, and then words that nobody says, one of them twice.
    copied = references[0][: max(1, length // 3)]
    hypothesis = [*copied, 69_999, 69_999, *references[-1][-5:], EOS][: max(2, length - 1)]
    for sentence in (hypothesis, [*references[0], EOS], [EOS]):
        value = score(name, sentence, references)
        assert math.isfinite(value)
        # CIDEr-D may leave 1e-17 where the sum is 0; COCO's BLEU of nothing is as small as 1e-15.
        smallest = 0 if name == "bleu-coco" else 1e-12
        assert value == pytest.approx(plain(name, sentence, references), rel=1e-9, abs=smallest)
    if name != "repetition":
        identical = score(name, [*references[0], EOS], references)
        assert identical != pytest.approx(score(name, hypothesis, references), rel=1e-3, abs=0)


@pytest.mark.parametrize(
    ("sentence", "position", "word", "expected"),
    [
        # "1 1" against "1", whatever 1 weighs: order 1 has (2w) and (w), clipped w * w / (2w * w).
        ([1, 500], 1, 1, 10 / 4 * math.exp(-1 / 72) / 2),
        # "1 eos" against itself: orders 1 and 2.
        ([1, *[500] * 50], 1, EOS, 10 * 2 / 4),
    ],
    ids=["of two words", "of fifty-one words"],
)
def test_cider_d_of_an_edit_that_leaves_next_to_no_weight_is_exact(sentence, position, word, expected):
    """1 stands in all of 10,000 images but one, so its weight is 1e-4 where that of 500 is 9."""
    images = [[[1]]] * 9_999 + [[[9]]]
    reward = CiderDReward(
        DocumentFrequencies.from_references(images, eos_token_id=EOS, count_eos=word == EOS),
        count_eos=word == EOS,
    )
    actions, mask = pad([sentence])
    one = torch.ones(1, 1, 1, dtype=torch.long)
    edits = Edits(
        position=one * position, words=(one * word)[..., None].expand(1, 1, 1, 2), width=one, mask=one.bool()
    )
    bound = reward.bind([[[1]]], mask, eos_token_id=EOS)
    assert bound.score_edits(actions, edits).item() == pytest.approx(expected, rel=1e-9)
    assert bound.score(actions).item() != pytest.approx(expected, rel=0.1)


def many_edits(num_inputs: int, num_edits: int) -> tuple[list[list[list[int]]], torch.Tensor, Edits]:
    """References, joint actions of 16 agents, and edits of words that hardly come twice."""
    generator = torch.Generator().manual_seed(num_edits)
    rng = random.Random(num_edits)
    references = [random_sentences(rng, 3, range(1, 10), 16) for _ in range(num_inputs)]
    shape = (num_inputs, 2, num_edits)
    width = torch.randint(1, 3, shape, generator=generator)
    stranger = torch.randint(10, 70_000, (*shape, 2), generator=generator)
    known = torch.randint(0, 10, (*shape, 2), generator=generator)
    edits = Edits(
        position=torch.randint(0, 15, shape, generator=generator),
        words=torch.where(torch.rand((*shape, 2), generator=generator) < 0.7, stranger, known),
        width=width,
        mask=torch.ones(shape, dtype=torch.bool),
    )
    actions = torch.randint(1, 10, (num_inputs, 2, 16), generator=generator)
    actions[:, 1, 9] = EOS
    return references, actions, edits


@every_reward
def test_thousands_of_edits_score_as_the_sentences_they_stand_for(name):
    """More n-grams that nobody said before than the memory of a kernel holds."""
    references, actions, edits = many_edits(1, 3_000)
    bound = REWARDS[name].bind(references, torch.ones(1, 16, dtype=torch.bool), eos_token_id=EOS)
    edited = bound.score_edits(actions, edits)
    written_out = score_written_out(bound.score, actions, edits)
    torch.testing.assert_close(edited, written_out, rtol=1e-9, atol=1e-12)
    assert (edited != bound.score(actions)[..., None]).any()


@every_reward
def test_the_number_of_threads_changes_no_reward(name):
    references, actions, edits = many_edits(7, 20)
    bound = REWARDS[name].bind(references, torch.ones(7, 16, dtype=torch.bool), eos_token_id=EOS)
    before = torch.get_num_threads()
    found = []
    try:
        for num_threads in (1, 2, 5, 16):
            torch.set_num_threads(num_threads)
            found.append((bound.score(actions), bound.score_edits(actions, edits)))
    finally:
        torch.set_num_threads(before)
    for rewards, edited in found[1:]:
        assert torch.equal(rewards, found[0][0]) and torch.equal(edited, found[0][1])
    assert len(found[0][1].flatten(1).sum(1).unique()) > 4
