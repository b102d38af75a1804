"""What every listed reward must do; parametrised over REWARDS, so a new entry is tested once it is listed."""

import random
import subprocess
from importlib import metadata

import pytest
import torch

from hf_cmal.rewards import REWARDS, DocumentFrequencies, GleuReward, TextReward, get_reward
from hf_cmal.sampling import OTHER, Edits
from tests.rewards.plain import random_sentences

EOS = 0


def make(name, **options):
    if name == "cider-d":
        documents = [[[1, 2, 3]], [[4, 5]], [[6]], [[1, 2]]]
        options["document_frequencies"] = DocumentFrequencies.from_references(documents, eos_token_id=EOS)
    return get_reward(name, **options)


def ones(num_inputs, num_agents):
    return torch.ones(num_inputs, num_agents, dtype=torch.bool)


every_reward = pytest.mark.parametrize("name", sorted(REWARDS))
# one looks at the sentence alone
every_reward_of_references = pytest.mark.parametrize("name", sorted(set(REWARDS) - {"repetition"}))


@every_reward
def test_an_input_without_references_is_named(name):
    with pytest.raises(ValueError, match=r"input 1 of the batch has no reference.*Leave inputs without"):
        make(name).bind([[[1]], [], [[2]]], ones(3, 4), eos_token_id=EOS)


@every_reward
@pytest.mark.parametrize("empty", [[], [EOS]], ids=["no tokens", "eos only"])
def test_a_reference_without_tokens_is_named(name, empty):
    with pytest.raises(ValueError, match=r"input 1 of the batch has a reference without tokens: remove"):
        make(name).bind([[[1]], [[1], empty]], ones(2, 4), eos_token_id=EOS)


@every_reward
@pytest.mark.parametrize("word", [-100, 2**31])
def test_a_word_id_out_of_range_in_a_reference_is_named(name, word):
    with pytest.raises(ValueError, match=rf"input 1 .*word id {word}"):
        make(name).bind([[[1]], [[1], [2, word]]], ones(2, 4), eos_token_id=EOS)


@every_reward
@pytest.mark.parametrize("shape", [(2, 3), (1, 3, 4), (2, 3, 5)])
def test_actions_of_another_batch_are_refused(name, shape):
    bound = make(name).bind([[[1]], [[2]]], ones(2, 4), eos_token_id=EOS)
    with pytest.raises(ValueError, match=r"wants \[2, R, 4\]"):
        bound.score(torch.ones(shape, dtype=torch.long))


@every_reward
def test_references_must_match_the_batch(name):
    with pytest.raises(ValueError, match="1 lists of references for 2 inputs"):
        make(name).bind([[[1]]], ones(2, 4), eos_token_id=EOS)


@every_reward
def test_float_actions_and_too_large_words_are_refused(name):
    bound = make(name).bind([[[1]]], ones(1, 2), eos_token_id=EOS)
    with pytest.raises(ValueError, match="integers"):
        bound.score(torch.ones(1, 1, 2))
    with pytest.raises(ValueError, match=f"{2**31}"):
        bound.score(torch.full((1, 1, 2), 2**31))


@every_reward_of_references
def test_hard_inputs_give_finite_rewards(name):
    rng = random.Random(0)
    wide = tuple(range(1, 70_000))
    references = [
        [[5]],  # one word
        random_sentences(rng, 40, wide, 100),  # forty references
        [[9, 9, 9]],  # shares no word with the hypothesis
        random_sentences(rng, 3, wide, 100),
    ]
    actions = torch.randint(10, 70_000, (4, 3, 101))
    actions[:, 1] = EOS  # an empty hypothesis
    actions[:, 2] = 5
    actions[1, 2, : len(references[1][0])] = torch.tensor(references[1][0])
    mask = ones(4, 101)
    rewards = make(name).bind(references, mask, eos_token_id=EOS).score(actions)
    assert torch.isfinite(rewards).all() and (rewards >= 0).all() and (rewards[1, 2] > 0)
    assert rewards[2, 0] == 0
    no_agents = make(name).bind([[[1, 2]]], ~ones(1, 3), eos_token_id=EOS)
    assert no_agents.score(torch.ones(1, 1, 3, dtype=torch.long)).tolist() == [[0.0]]


@every_reward_of_references
def test_agents_outside_the_mask_are_not_read(name):
    reward = make(name)
    mask = torch.tensor([[True, True, True, False]])
    bound = reward.bind([[[1, 2]]], mask, eos_token_id=EOS)
    rows = torch.tensor([[[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 4, 4]]])
    scores = bound.score(rows)[0]
    assert scores[0] == scores[1]
    wider = reward.bind([[[1, 2]]], ones(1, 4), eos_token_id=EOS).score(torch.tensor([[[1, 2, 3, EOS]]]))
    assert wider.item() != scores[0]


@every_reward_of_references
def test_an_input_is_scored_against_its_own_references_only(name):
    references = [[[1, 2, 3]], [[4, 5], [6]], [[1, 2]]]
    actions = torch.tensor([[[1, 2, 3, 0]], [[4, 5, 0, 0]], [[1, 2, 0, 0]]])
    together = make(name).bind(references, ones(3, 4), eos_token_id=EOS).score(actions)
    alone = [
        make(name).bind([references[b]], ones(1, 4), eos_token_id=EOS).score(actions[b : b + 1])
        for b in range(3)
    ]
    torch.testing.assert_close(together, torch.cat(alone), rtol=0, atol=0)
    shuffled = make(name).bind(references[1:] + references[:1], ones(3, 4), eos_token_id=EOS).score(actions)
    assert not torch.equal(together, shuffled)


@every_reward
def test_a_reference_that_already_ends_in_eos_is_not_ended_twice(name):
    actions = torch.tensor([[[1, 2, EOS, 3]]])
    with_eos = make(name).bind([[[1, 2, EOS]]], ones(1, 4), eos_token_id=EOS).score(actions)
    without = make(name).bind([[[1, 2]]], ones(1, 4), eos_token_id=EOS).score(actions)
    assert torch.equal(with_eos, without)


@every_reward
def test_an_empty_batch_and_no_edits_are_fine(name):
    bound = make(name).bind([], ones(0, 4), eos_token_id=EOS)
    assert bound.score(torch.ones(0, 3, 4, dtype=torch.long)).shape == (0, 3)
    none = torch.zeros(1, 1, 0, dtype=torch.long)
    edits = Edits(position=none, words=none[..., None].expand(1, 1, 0, 2), width=none, mask=none.bool())
    bound = make(name).bind([[[1]]], ones(1, 4), eos_token_id=EOS)
    assert bound.score_edits(torch.ones(1, 1, 4, dtype=torch.long), edits).shape == (1, 1, 0)


@every_reward
def test_a_batch_of_words_nobody_knows_is_worth_nothing(name):
    bound = make(name).bind([[[1, 2]]], ones(1, 3), eos_token_id=EOS)
    assert bound.score(torch.full((1, 1, 3), OTHER)).tolist() == [[0.0]]


@every_reward_of_references
def test_signature_carries_name_eos_and_version(name):
    signature = make(name).signature
    assert signature.startswith(f"{name}|") and signature.endswith(f"|v:{metadata.version('hf-cmal')}")
    assert "|eos:yes|" in signature


@every_reward_of_references
def test_rewards_start_no_process_and_so_need_no_java(name, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError(f"started a process: {args}")

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(subprocess, "Popen", refuse)
    bound = make(name).bind([[[1, 2]]], ones(1, 3), eos_token_id=EOS)
    assert bound.score(torch.tensor([[[1, 2, EOS]]])).item() > 0
    with pytest.raises(AssertionError, match="started a process"):
        subprocess.run(["java"], check=True)


def test_gleu_signature_names_the_orders():
    assert GleuReward().signature.startswith("gleu|n:1-4|eos:yes|v:")
    assert GleuReward(max_order=2, count_eos=False).signature.startswith("gleu|n:1-2|eos:no|v:")


def test_an_unknown_reward_names_the_legal_ones():
    with pytest.raises(
        ValueError,
        match=r"unknown reward 'glue'; legal names: gleu, cider-d, bleu, rouge-l, repetition, or a dotted",
    ):
        get_reward("glue")
    with pytest.raises(ValueError, match=r"no_such_module.*legal names"):
        get_reward("no_such_module.reward")
    with pytest.raises(ValueError, match=r"no_such_reward.*legal names"):
        get_reward("hf_cmal.rewards.text.no_such_reward")
    with pytest.raises(ValueError, match="neither a class nor a function"):
        get_reward("hf_cmal.rewards.references.MAX_WORD_ID")


def test_an_unknown_option_names_the_known_ones():
    with pytest.raises(
        TypeError, match=r"the reward 'gleu' has no option 'order'; its options: max_order, count_eos"
    ):
        get_reward("gleu", order=3)
    with pytest.raises(TypeError, match=r"needs the option 'decode'"):
        get_reward("hf_cmal.rewards.text.word_gleu")
    with pytest.raises(ValueError, match="at least 1, got 0"):
        get_reward("gleu", max_order=0)


def test_a_dotted_path_names_a_function_or_a_class():
    decode = str
    reward = get_reward("hf_cmal.rewards.text.word_gleu", decode=decode)
    assert isinstance(reward, TextReward) and reward.name == "word_gleu" and reward.decode is decode
    own = get_reward("hf_cmal.rewards.gleu.GleuReward", max_order=2)
    assert own == GleuReward(max_order=2)
    assert get_reward("gleu", decode=decode) == GleuReward()
