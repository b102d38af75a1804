"""Minus the share of repeated words, and weighted sums of rewards."""

import pytest
import torch

from hf_cmal.metrics.tokens import repetition_rate
from hf_cmal.rewards import BleuReward, DocumentFrequencies, GleuReward, MixtureReward, get_reward
from hf_cmal.rewards.mixture import parse_mixture
from hf_cmal.rewards.repetition import RepetitionReward
from hf_cmal.sampling import OTHER, Edits

EOS = 0
REFERENCES = [[[1, 2, 3]], [[4, 1], [2, 2]]]


def bind(reward, mask=None, eos_token_id=None):
    mask = torch.ones(2, 5, dtype=torch.bool) if mask is None else mask
    return reward.bind(REFERENCES, mask, eos_token_id=eos_token_id)


def actions(seed=0, rows=7):
    return torch.randint(1, 4, (2, rows, 5), generator=torch.Generator().manual_seed(seed))


# ---- repetition ---


def test_the_repetition_reward_is_minus_the_repetition_rate_of_the_sentence():
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    sampled = actions()
    rewards = bind(RepetitionReward(), mask).score(sampled)
    assert rewards.min() < -0.3 and rewards.max() == 0.0
    for b in range(2):
        for r in range(7):
            assert rewards[b, r].item() == pytest.approx(-repetition_rate(sampled[b, r][None], mask[b][None]))


def test_words_after_the_eos_and_the_eos_itself_do_not_count():
    """5 5 eos: one of two words; 5 eos 6 6: none of one; nothing but an eos: 0."""
    rows = torch.tensor([[[5, 5, 0, 0, 0], [5, 0, 6, 6, 6], [0, 5, 5, 5, 5]]] * 2)
    assert bind(RepetitionReward(), eos_token_id=EOS).score(rows)[0].tolist() == [-0.5, 0.0, 0.0]


def test_an_edit_that_repairs_a_repetition_earns_what_it_repairs():
    """5 5 6 7 8 has one repeated word of five; replacing the second 5 by 6 repeats the 6 instead."""
    sampled = torch.tensor([[[5, 5, 6, 7, 8]]] * 2)
    edits = Edits(
        position=torch.tensor([[[1, 1, 0]]] * 2),
        words=torch.tensor([[[[9, 9], [6, 9], [6, 6]]]] * 2),
        width=torch.tensor([[[1, 1, 2]]] * 2),
        mask=torch.ones(2, 1, 3, dtype=torch.bool),
    )
    # the pair 6 6 before another 6 repeats twice
    assert bind(RepetitionReward()).score_edits(sampled, edits)[0, 0].tolist() == [-0.0, -0.2, -0.4]


def test_any_word_can_change_the_repetition_so_no_candidates_are_named():
    bound = bind(RepetitionReward())
    assert bound.candidates is None and not bound.other_is_exact


# ---- mixtures ---


def test_a_mixture_is_the_weighted_sum_of_its_parts_for_sentences_and_edits():
    mixture = MixtureReward([(1.0, GleuReward()), (0.5, RepetitionReward()), (-2.0, BleuReward())])
    sampled = actions()
    edits = Edits(
        position=torch.tensor([[[0, 3, 1]] * 7] * 2),
        words=torch.randint(1, 4, (2, 7, 3, 2), generator=torch.Generator().manual_seed(1)),
        width=torch.tensor([[[1, 2, 1]] * 7] * 2),
        mask=torch.tensor([[[True, True, False]] * 7] * 2),
    )
    parts = [bind(reward) for reward in (GleuReward(), RepetitionReward(), BleuReward())]
    weights = (1.0, 0.5, -2.0)
    bound = bind(mixture)
    torch.testing.assert_close(
        bound.score(sampled), sum(w * part.score(sampled) for w, part in zip(weights, parts, strict=True))
    )
    edited = bound.score_edits(sampled, edits)
    torch.testing.assert_close(
        edited, sum(w * part.score_edits(sampled, edits) for w, part in zip(weights, parts, strict=True))
    )
    assert (edited[..., 2] == 0).all() and (edited[..., :2] != 0).any()


def test_the_candidates_of_a_mixture_are_those_of_its_parts_each_once():
    bound = bind(MixtureReward([(1.0, GleuReward()), (1.0, BleuReward())]))
    assert [sorted(row[row != OTHER].tolist()) for row in bound.candidates] == [[1, 2, 3], [1, 2, 4]]
    assert bound.other_is_exact
    bound = bind(MixtureReward([(1.0, GleuReward()), (1.0, RepetitionReward())]))
    assert bound.candidates is None and not bound.other_is_exact


def test_a_mixture_is_named_by_its_weights_and_parts():
    mixture = get_reward("gleu + 0.5 * repetition")
    assert mixture.name == "gleu+0.5*repetition"
    first, second = mixture.signature.split(" + ")
    assert first == GleuReward().signature
    assert second == f"0.5*{RepetitionReward().signature}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gleu", [(1.0, "gleu")]),
        ("cider-d+0.25*bleu", [(1.0, "cider-d"), (0.25, "bleu")]),
        ("-1 * repetition + my.own_reward", [(-1.0, "repetition"), (1.0, "my.own_reward")]),
    ],
)
def test_a_sum_is_read_as_weights_and_names(text, parts):
    assert parse_mixture(text) == parts


@pytest.mark.parametrize("text", ["gleu +", "much*gleu", "0.5*", "nan*gleu", "inf*gleu", "2*3*gleu", ""])
def test_a_sum_that_cannot_be_read_is_named_with_an_example(text):
    with pytest.raises(ValueError, match=r"write names with weights, e\.g\. 'gleu \+ 0\.5 \* repetition'"):
        get_reward(text)


def test_each_part_is_given_the_options_that_it_knows():
    frequencies = DocumentFrequencies.from_references(REFERENCES, eos_token_id=None)
    mixture = get_reward("cider-d + 0.1 * gleu", document_frequencies=frequencies, max_order=2)
    assert "n:1-2" in mixture.parts[1][1].signature
    with pytest.raises(TypeError, match="has no option 'smoothing'; its options: max_order, count_eos"):
        get_reward("gleu + repetition", smoothing=1)
    with pytest.raises(ValueError, match="unknown reward 'meteor'"):
        get_reward("gleu + meteor")


def test_a_weighted_single_reward_is_that_reward_times_the_weight():
    sampled = actions()
    torch.testing.assert_close(
        bind(get_reward("3*gleu")).score(sampled), 3 * bind(GleuReward()).score(sampled)
    )


def test_a_mixture_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        MixtureReward([])
