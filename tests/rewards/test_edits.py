"""`score_edits` of every reward against whole sentences, written out."""

import itertools

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
    TextReward,
    score_written_out,
)
from hf_cmal.sampling import OTHER, Edits, write_out_edits

EOS = 0
REFERENCES = [[[1, 2, 3], [2, 2, 3, 1]], [[4, 1]], [[3, 3, 3, 3, 3], [1, 2], [5]]]


def _gleu_of_text(prompts, completions, *, references, **columns):
    ids = [[int(word) for word in completion.split()] for completion in completions]
    mask = torch.ones(1, 1, dtype=torch.bool)
    values = []
    for sentence, image in zip(ids, references, strict=True):
        bound = GleuReward().bind([image], mask.expand(1, max(1, len(sentence))), eos_token_id=None)
        values.append(bound.score(torch.tensor([[sentence or [OTHER]]])).item())
    return values


def _decode(sentences):
    return [" ".join(map(str, sentence)) for sentence in sentences]


FREQUENCIES = DocumentFrequencies.from_references(REFERENCES * 2, eos_token_id=EOS)
REWARDS = [GleuReward(), BleuReward(), CiderDReward(FREQUENCIES), GleuReward(count_eos=False)]
REWARDS += [RougeLReward(), BleuReward(smoothing="coco", max_order=1)]
REWARDS += [RepetitionReward(), MixtureReward([(1.0, GleuReward()), (0.5, RepetitionReward())])]
REWARDS += [TextReward(_gleu_of_text, decode=_decode, name="gleu_of_text")]


def bind(reward, num_agents, eos_token_id=EOS):
    lengths = torch.tensor([num_agents, max(1, num_agents - 1), num_agents])
    mask = torch.arange(num_agents) < lengths[:, None]
    return reward.bind(REFERENCES, mask, eos_token_id=eos_token_id, columns={"references": REFERENCES})


def random_edits(num_samples, num_agents, count, *, seed):
    generator = torch.Generator().manual_seed(seed)
    shape = (3, num_samples, count)
    width = torch.randint(1, min(2, num_agents) + 1, shape, generator=generator)
    position = (torch.rand(shape, generator=generator) * (num_agents - width + 1)).long()
    words = torch.randint(0, 6, (*shape, 2), generator=generator)
    mask = torch.rand(shape, generator=generator) < 0.8
    actions = torch.randint(0, 6, (3, num_samples + 1, num_agents), generator=generator)
    return actions, Edits(position=position, words=words, width=width, mask=mask)


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.signature.rpartition("|v")[0])
@pytest.mark.parametrize("num_agents", [1, 2, 6])
def test_edits_score_as_the_sentences_they_stand_for(reward, num_agents):
    # Words 0 to 5, eos is 0: edits write an eos, remove one and revive the words behind it, change dead ones.
    actions, edits = random_edits(4, num_agents, 40, seed=num_agents)
    bound = bind(reward, num_agents)
    written = write_out_edits(actions, edits)
    one_by_one = torch.stack(
        [bound.score(written[:, :, m]) for m in range(edits.position.shape[2])], dim=-1
    ).masked_fill(~edits.mask, 0.0)
    ours = bound.score_edits(actions, edits)
    assert ours.dtype == torch.float64 and ours.shape == edits.mask.shape
    torch.testing.assert_close(ours, one_by_one, rtol=0, atol=1e-12)
    torch.testing.assert_close(score_written_out(bound.score, actions, edits), one_by_one, rtol=0, atol=1e-12)
    unedited = bound.score(actions)[:, :4, None].expand_as(ours).masked_fill(~edits.mask, 0.0)
    alone = num_agents == 1 and isinstance(reward, RepetitionReward)  # who can repeat nobody
    assert ((ours - unedited).abs().max() > 0.1) != alone


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.signature.rpartition("|v")[0])
def test_edits_behind_the_first_eos_leave_the_reward_and_the_eos_itself_does_not(reward):
    actions = torch.tensor([[[1, 2, EOS, 5, 5]], [[4, 1, EOS, 5, 5]], [[1, 2, EOS, 5, 5]]])
    words = torch.tensor([[1, 2]]).expand(3, 1, 5, 2)
    position, width = (
        torch.tensor([0, 1, 2, 3, 3]).expand(3, 1, 5),
        torch.tensor([1, 1, 1, 1, 2]).expand(3, 1, 5),
    )
    edits = Edits(position=position, words=words, width=width, mask=torch.ones(3, 1, 5, dtype=torch.bool))
    bound = bind(reward, 5)
    unedited, edited = bound.score(actions)[:, 0], bound.score_edits(actions, edits)[:, 0]
    assert torch.equal(edited[:, 3], unedited) and torch.equal(edited[:, 4], unedited)
    assert (edited[:, 2] != unedited).all()


@pytest.mark.parametrize("reward", REWARDS[:3], ids=lambda reward: reward.name)
def test_masked_edits_are_zero_whatever_they_hold(reward):
    actions = torch.tensor([[[1, 2, 3]], [[4, 1, 2]], [[3, 3, 3]]])
    shape = (3, 1, 2)
    edits = Edits(
        position=torch.tensor([-7, 90]).expand(shape),
        words=torch.full((*shape, 2), -5),
        width=torch.full(shape, 9),
        mask=torch.zeros(shape, dtype=torch.bool),
    )
    assert bind(reward, 3).score_edits(actions, edits).tolist() == torch.zeros(shape).tolist()


@pytest.mark.parametrize("reward", REWARDS, ids=lambda reward: reward.signature.rpartition("|v")[0])
@pytest.mark.parametrize(("position", "width"), [(3, 1), (2, 2), (-1, 1), (0, 3)])
def test_an_edit_outside_the_agents_is_refused(reward, position, width):
    one = (3, 1, 1)
    edits = Edits(
        position=torch.full(one, position),
        words=torch.ones((*one, 2), dtype=torch.long),
        width=torch.full(one, width),
        mask=torch.ones(one, dtype=torch.bool),
    )
    with pytest.raises(ValueError, match=r"edit \[0, 0, 0\] has position"):
        bind(reward, 3).score_edits(torch.ones(3, 1, 3, dtype=torch.long), edits)


@pytest.mark.parametrize("reward", REWARDS[:2], ids=lambda reward: reward.name)
def test_other_is_worth_what_every_word_outside_the_references_is_worth(reward):
    bound = bind(reward, 4)
    assert bound.other_is_exact
    sentences = torch.tensor(list(itertools.product([1, 3, OTHER], repeat=4)))[None].expand(3, -1, -1)
    for word in (77, 2**31 - 1):
        assert torch.equal(bound.score(sentences), bound.score(sentences.where(sentences != OTHER, word)))
    assert not torch.equal(bound.score(sentences), bound.score(sentences.where(sentences != OTHER, 2)))


def test_other_is_not_exact_for_cider_d_where_a_common_word_weighs_less():
    frequencies = DocumentFrequencies.from_references([[[1, 2, 9]], [[3, 9]], [[4]]], eos_token_id=None)
    bound = CiderDReward(frequencies).bind([[[1, 2]]], torch.ones(1, 3, dtype=torch.bool), eos_token_id=None)
    assert not bound.other_is_exact
    common, unseen, other = bound.score(torch.tensor([[[1, 2, 9], [1, 2, 77], [1, 2, OTHER]]]))[0].tolist()
    assert common > unseen == other


def test_nothing_is_written_to_actions_or_edits():
    actions, edits = random_edits(2, 5, 7, seed=9)
    before = actions.clone(), edits.words.clone(), edits.position.clone()
    for reward in REWARDS:
        bound = bind(reward, 5)
        bound.score(actions)
        bound.score_edits(actions, edits)
    assert all(
        torch.equal(old, new) for old, new in zip(before, (actions, edits.words, edits.position), strict=True)
    )


def test_more_n_grams_than_the_memory_of_cider_d_holds_change_no_score():
    generator = torch.Generator().manual_seed(0)
    actions = torch.randint(1, 5_000, (1, 2, 16), generator=generator)
    position = torch.randint(0, 15, (1, 2, 2_000), generator=generator).sort(-1).values
    words = torch.randint(1, 5_000, (1, 2, 2_000, 2), generator=generator)
    edits = Edits(position=position, words=words, width=torch.full_like(position, 2), mask=position >= 0)
    reference = actions[0, 0].tolist()
    frequencies = DocumentFrequencies.from_references(
        [[reference], [reference[:3]], [[1]]], eos_token_id=None
    )
    bound = CiderDReward(frequencies).bind(
        [[reference]], torch.ones(1, 16, dtype=torch.bool), eos_token_id=None
    )
    ours, written = bound.score_edits(actions, edits), score_written_out(bound.score, actions, edits)
    torch.testing.assert_close(ours, written, rtol=0, atol=1e-9)
    assert ours.unique().numel() > 10


@pytest.mark.parametrize("reward", REWARDS[:4], ids=lambda reward: reward.signature.rpartition("|v")[0])
def test_two_threads_score_as_one(reward):
    actions, edits = random_edits(4, 6, 40, seed=3)
    bound = bind(reward, 6)
    threads = torch.get_num_threads()
    results = []
    try:
        for number in (1, 2):
            torch.set_num_threads(number)
            results.append((bound.score(actions), bound.score_edits(actions, edits)))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))
