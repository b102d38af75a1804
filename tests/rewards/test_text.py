import pytest
import torch
from nltk.translate.gleu_score import sentence_gleu

from hf_cmal.rewards import TextReward, word_gleu
from hf_cmal.sampling import OTHER, Edits

EOS = 0
WORDS = ["</s>", "a", "cat", "sat", "down"]


def decode(sentences):
    return [" ".join(WORDS[word] for word in sentence) for sentence in sentences]


class Recorder:
    """A reward function that keeps what it was called with; the reward is the number of letters."""

    def __init__(self):
        self.calls = []

    def __call__(self, prompts, completions, **columns):
        self.calls.append((prompts, completions, columns))
        return [float(len(completion)) for completion in completions]


def bind(function, *, num_inputs=2, num_agents=3, eos_token_id=EOS, columns=None):
    mask = torch.ones(num_inputs, num_agents, dtype=torch.bool)
    reward = TextReward(function, decode=decode, name="recorder")
    return reward.bind([[[1]]] * num_inputs, mask, eos_token_id=eos_token_id, columns=columns)


def test_equal_sentences_of_an_input_are_scored_once_and_columns_follow_them():
    recorder = Recorder()
    columns = {"source": ["eins", "zwei"], "references": [["a cat"], ["sat", "down"]], "image_id": [7, 8]}
    bound = bind(recorder, columns=columns)
    # Input 0 says "a cat" twice and "a" twice, once with a word behind the eos. Input 1 says "a cat" too.
    actions = torch.tensor(
        [
            [[1, 2, EOS], [1, EOS, 3], [1, 2, EOS], [1, EOS, EOS]],
            [[1, 2, EOS], [3, 3, 3], [1, 2, EOS], [1, 2, EOS]],
        ]
    )
    rewards = bound.score(actions)
    assert rewards.tolist() == [[5, 1, 5, 1], [5, 11, 5, 5]]
    [(prompts, completions, passed)] = recorder.calls
    assert completions == ["a cat", "a", "a cat", "sat sat sat"]
    assert prompts == ["eins", "eins", "zwei", "zwei"]
    assert passed == {
        "references": [["a cat"], ["a cat"], ["sat", "down"], ["sat", "down"]],
        "image_id": [7, 7, 8, 8],
    }


def test_prompts_are_none_where_the_batch_has_no_source():
    recorder = Recorder()
    bind(recorder, num_inputs=1).score(torch.tensor([[[1, 2, 3]]]))
    assert recorder.calls == [([None], ["a cat sat"], {})]


def test_without_eos_a_sentence_is_all_agents_of_the_mask():
    recorder = Recorder()
    reward = TextReward(recorder, decode=decode, name="recorder")
    mask = torch.tensor([[True, True, False]])
    reward.bind([[[1]]], mask, eos_token_id=None).score(torch.tensor([[[0, 1, 4]]]))
    assert recorder.calls[0][1] == ["</s> a"]


def test_edits_are_written_out_and_masked_ones_are_zero():
    recorder = Recorder()
    edits = Edits(
        position=torch.tensor([[[0, 1, 0]]]),
        words=torch.tensor([[[[2, 0], [3, 4], [4, 0]]]]),
        width=torch.tensor([[[1, 2, 1]]]),
        mask=torch.tensor([[[True, True, False]]]),
    )
    rewards = bind(recorder, num_inputs=1).score_edits(torch.tensor([[[1, 2, EOS]]]), edits)
    assert rewards.tolist() == [[[len("cat cat"), len("a sat down"), 0]]]


def test_a_wrong_number_of_values_names_function_and_counts():
    with pytest.raises(ValueError, match=r"recorder returned 1 values for 2 completions"):
        bind(lambda prompts, completions, **columns: [1.0]).score(torch.tensor([[[1, 2, 3]], [[2, 2, 2]]]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), None])
def test_a_value_that_is_not_finite_names_function_count_and_completion(bad):
    function = lambda prompts, completions, **columns: [1.0, bad]  # noqa: E731
    with pytest.raises(
        ValueError, match=r"recorder returned 1 of 2 values that are not finite.*'cat cat cat'"
    ):
        bind(function).score(torch.tensor([[[1, 2, 3]], [[2, 2, 2]]]))


def test_columns_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"column 'references' has 1 entries for 2 inputs"):
        bind(Recorder(), columns={"references": [["a"]]})
    with pytest.raises(ValueError, match="rename it"):
        bind(Recorder(), columns={"prompts": ["a", "b"]})
    with pytest.raises(TypeError, match="decode"):
        TextReward(Recorder(), decode=None, name="recorder")


def test_a_text_reward_knows_no_candidates_and_refuses_other():
    bound = bind(Recorder(), num_inputs=1)
    assert bound.candidates is None and not bound.other_is_exact
    with pytest.raises(ValueError, match="OTHER"):
        bound.score(torch.tensor([[[1, OTHER, EOS]]]))
    assert bound.score(torch.tensor([[[1, EOS, OTHER]]])).tolist() == [[1.0]]


def test_word_gleu_equals_nltk_on_words():
    completions = ["a cat sat", "a cat", "the dog ran off", "", "sat cat a"]
    references = [["a cat sat down", "the cat sat"]] * 2 + [["no", "the dog ran off"], ["a"], ["a cat sat"]]
    expected = [
        sentence_gleu([r.split() for r in group], completion.split())
        for completion, group in zip(completions, references, strict=True)
    ]
    assert word_gleu([None] * 5, completions, references=references) == pytest.approx(expected, abs=1e-12)
    # 6 of 10 n-grams, 3 of 6 ("the cat sat": cat, sat, "cat sat"), then 3 of 10.
    assert expected[:2] == pytest.approx([0.6, 0.3])
    assert word_gleu([], [], references=[]) == []
