import math
from collections import Counter

import pytest
import torch

from hf_cmal.rewards import CiderDReward, DocumentFrequencies
from hf_cmal.rewards.ngrams import _child
from tests.rewards.plain import NARROW_WORDS, WIDE_WORDS, pad, pycocoevalcap_cider, random_batch, scores

EOS = 0


def reward_of(documents, *, eos_token_id=None, count_eos=True, **options):
    frequencies = DocumentFrequencies.from_references(
        documents, eos_token_id=eos_token_id, count_eos=count_eos
    )
    return CiderDReward(frequencies, count_eos=count_eos, **options)


def test_cider_d_of_one_word_out_of_two():
    # Two images, "1 2" and "3": every n-gram stands in one, idf l = log 2. Hypothesis "1" against "1 2":
    # order 1 has vectors (l) and (l, l): l * l / (l * l sqrt 2); orders 2 to 4 have no n-gram there.
    # Lengths differ by one: exp(-1 / (2 * 36)). Mean over four orders, times 10.
    expected = 10 / 4 * math.exp(-1 / 72) / math.sqrt(2)
    reward = reward_of([[[1, 2]], [[3]]])
    assert scores(reward, [[1]], [[[1, 2]]]) == pytest.approx([expected], abs=1e-14)
    narrower = reward_of([[[1, 2]], [[3]]], sigma=1.0)
    assert scores(narrower, [[1]], [[[1, 2]]]) == pytest.approx([10 / 4 * math.exp(-1 / 2) / math.sqrt(2)])


def test_cider_d_clips_repeated_words_at_the_reference_weight():
    # "1 1" against "1 2", idf l everywhere: order 1 has vectors (2l) and (l, l), clipped l * l / (2l * l
    # sqrt 2); order 2 has "1 1" against "1 2": 0.
    reward = reward_of([[[1, 2]], [[3]]])
    assert scores(reward, [[1, 1]], [[[1, 2]]]) == pytest.approx([10 / 4 / (2 * math.sqrt(2))], abs=1e-14)


@pytest.mark.parametrize("words", [NARROW_WORDS, WIDE_WORDS], ids=["five words", "words up to 2**31"])
@pytest.mark.parametrize("most_references", [1, 5])
@pytest.mark.parametrize("eos", ["eos counts", "eos is no word"])
def test_cider_d_equals_pycocoevalcap(words, most_references, eos):
    hypotheses, references = random_batch(3, 25, most_references, words)
    # Frequencies from other images: some n-grams of the batch were never seen, some in several images.
    documents = references[:10] + random_batch(4, 10, most_references, words)[1]
    count_eos = eos == "eos counts"
    reward = reward_of(documents, eos_token_id=EOS, count_eos=count_eos)
    actions, mask = pad([[*hypothesis, EOS] for hypothesis in hypotheses])
    ours = reward.bind(references, mask, eos_token_id=EOS).score(actions)[:, 0].tolist()

    def expected(with_eos: bool) -> list[float]:
        end = [EOS] if with_eos else []
        closed = [[[*reference, *end] for reference in image] for image in documents]
        return [
            pycocoevalcap_cider([*h, *end], [[*r, *end] for r in image], closed)
            for h, image in zip(hypotheses, references, strict=True)
        ]

    assert ours == pytest.approx(expected(count_eos), abs=1e-9)
    assert ours != pytest.approx(expected(not count_eos), abs=1e-3)


def test_unfinished_caption_scores_below_the_complete_one_only_if_eos_counts():
    a, cat, on, mat = 1, 2, 3, 4
    documents = [[[a, cat, on, a, mat]], [[a, 5, on, a]], [[6, 7]]]
    actions = torch.tensor(
        [[[a, cat, on, a, mat, EOS], [a, cat, on, a, EOS, EOS], [a, cat, on, a, mat, mat]]]
    )
    mask = torch.ones(1, 6, dtype=torch.bool)
    bound = reward_of(documents, eos_token_id=EOS).bind([[[a, cat, on, a, mat]]], mask, eos_token_id=EOS)
    complete, unfinished, endless = bound.score(actions)[0].tolist()
    assert complete > unfinished and complete > endless


def test_identical_caption_on_a_single_image_scores_ten_with_external_frequencies():
    documents = [[[1, 2, 3, 4, 5]], [[6, 7]], [[8]]]
    reward = reward_of(documents, eos_token_id=EOS)
    actions, mask = (
        torch.tensor([[[1, 2, 3, 4, 5, EOS], [1, 2, 3, 4, 6, EOS]]]),
        torch.ones(1, 6, dtype=torch.bool),
    )
    identical, other = reward.bind([[[1, 2, 3, 4, 5]]], mask, eos_token_id=EOS).score(actions)[0].tolist()
    assert identical == pytest.approx(10.0, abs=1e-12)
    assert other < 9


def test_frequencies_of_one_image_warn_why_scores_are_zero():
    with pytest.warns(UserWarning, match=r"one image only.*scores are 0"):
        reward = reward_of([[[1, 2, 3, 4]]])
    assert scores(reward, [[1, 2, 3, 4]], [[[1, 2, 3, 4]]]) == [0.0]


def test_document_frequencies_count_documents_once_per_ngram():
    # More than a thousand n-grams, so that the table grows several times; words repeat within an image.
    documents = random_batch(5, 400, 3, tuple(range(1, 60)))[1]
    frequencies = DocumentFrequencies.from_references(documents, eos_token_id=EOS)
    expected = Counter()
    for image in documents:
        closed = [[*reference, EOS] for reference in image]
        grams = {tuple(r[i : i + n]) for r in closed for n in range(1, 5) for i in range(len(r) - n + 1)}
        expected.update(grams)
    assert len(frequencies.counts) == len(expected) + 1 > 5000  # and the root
    for gram, count in expected.items():
        node = 0
        for word in gram:
            node = _child(frequencies.keys, frequencies.children, node, word)
        assert frequencies.counts[node] == count
    assert max(expected.values()) > 100
    assert _child(frequencies.keys, frequencies.children, 0, 99) == -1


def test_cider_d_without_frequencies_says_how_to_build_them():
    with pytest.raises(ValueError, match=r"DocumentFrequencies\.from_references\("):
        CiderDReward().bind([[[1]]], torch.ones(1, 1, dtype=torch.bool), eos_token_id=EOS)


@pytest.mark.parametrize(
    ("frequencies_eos", "options", "bound_eos"),
    [(None, {}, EOS), (EOS, {"count_eos": False}, EOS), (EOS, {}, None), (EOS, {}, 1)],
)
def test_frequencies_that_disagree_about_eos_are_refused(frequencies_eos, options, bound_eos):
    frequencies = DocumentFrequencies.from_references([[[4]], [[5]]], eos_token_id=frequencies_eos)
    with pytest.raises(ValueError, match=r"same eos_token_id and count_eos"):
        CiderDReward(frequencies, **options).bind(
            [[[4]]], torch.ones(1, 1, dtype=torch.bool), eos_token_id=bound_eos
        )


def test_signature_names_where_the_frequencies_come_from():
    reward = reward_of([[[1]], [[2]]], eos_token_id=EOS)
    assert reward.signature.startswith("cider-d|n:4|sigma:6.0|eos:yes|df:train(2)|v:")
    with pytest.raises(ValueError, match="sigma"):
        CiderDReward(sigma=0)
