"""Scores of token ids written by hand; the vocabulary is </s> <unk> a man dog on ladder ein mann <pad>."""

import dataclasses

import numpy as np
import pytest
import torch

from hf_cmal.evaluation.scoring import decode_tokens, real_tokens, score_tokens
from hf_cmal.tasks.translation import TRANSLATION
from tests.models.tiny_text import EOS, PAD, tiny_tokenizer

A, MAN, DOG, EIN, MANN = 2, 3, 4, 7, 8
# three sentences of 3, 3 and 1 words; 1, 2 and 0 of them repeat the word before
TOKENS = torch.tensor(
    [
        [EIN, MANN, MANN, EOS, PAD, PAD],
        [DOG, DOG, DOG, -100, -100, -100],
        [PAD, A, EOS, EOS, EOS, PAD],  # starts as Marian's decoder does, and says eos three times
    ]
)
TEXTS = ["ein mann mann", "dog dog dog", "a"]
REFERENCES = [["ein mann"], ["a dog on a ladder"], ["a", "a man"]]


def scored(tokens=TOKENS, **options):
    seen = {}

    def record(hypotheses, references):
        seen.update(hypotheses=hypotheses, references=references)
        return {"bleu": 12.5, "bleu_signature": "made up"}

    task = dataclasses.replace(TRANSLATION, scores=record)
    return score_tokens(task, tiny_tokenizer(), tokens, REFERENCES, **options), seen


def test_padding_start_and_eos_are_no_words():
    expected = [[1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]]
    assert real_tokens(TOKENS, tiny_tokenizer()).int().tolist() == expected


def test_repetition_rate_is_repeats_over_words_where_padding_and_eos_are_neither():
    scores, _ = scored()
    assert scores["repetition_rate"] == pytest.approx((1 + 2 + 0) / (3 + 3 + 1))


def test_mean_length_counts_words():
    scores, _ = scored()
    assert scores["mean_length"] == pytest.approx(7 / 3)


def test_the_tasks_scores_see_decoded_sentences_with_their_repetitions_and_are_passed_on():
    scores, seen = scored()
    assert seen == {"hypotheses": TEXTS, "references": REFERENCES}
    assert (scores["bleu"], scores["bleu_signature"]) == (12.5, "made up")


def test_decoded_sentences_skip_what_is_no_word():
    assert decode_tokens(tiny_tokenizer(), TOKENS) == TEXTS


def test_length_accuracy_compares_words_with_the_words_of_the_labels():
    labels = [[EIN, MAN, DOG, EOS, -100], [DOG, DOG, -100, -100, -100], [A, -100, -100, -100, -100]]
    scores, _ = scored(labels=torch.tensor(labels))
    assert scores["length_accuracy"] == pytest.approx(2 / 3)  # 3 of 3, 3 of 2, 1 of 1


def test_length_accuracy_is_left_out_where_nothing_is_expected():
    assert "length_accuracy" not in scored()[0]


def test_arrays_of_a_trainer_are_scored_like_tensors():
    assert scored(np.asarray(TOKENS), labels=np.asarray(TOKENS))[0] == scored(labels=TOKENS)[0]


def test_translations_are_scored_with_signatures():
    scores = score_tokens(TRANSLATION, tiny_tokenizer(), TOKENS, REFERENCES)
    assert {"bleu", "bleu_tokenised", "chrf"} <= scores.keys()
    assert "version:" in scores["bleu_signature"]
