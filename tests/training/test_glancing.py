"""Glancing: how many words are shown and which, what the student then reads, and what it learns."""

import pytest
import torch

from hf_cmal.training.glancing import glancing_ratio, reveal_words
from hf_cmal.training.xe_trainer import XeTrainer, cross_entropy_sum
from tests.training.tiny import (
    MODELS,
    collator,
    gradients_of_one_step,
    largest_difference,
    make_rows,
    make_trainer,
)

STUDENTS = ["translator", "captioner"]
LABELS = torch.tensor([[4, 5, 6, 7, 8, -100], [4, 5, 6, -100, -100, -100]])


def test_the_ratio_falls_on_a_straight_line_and_stays_within_its_ends():
    found = [glancing_ratio(progress, start=0.5, end=0.3) for progress in (-1.0, 0.0, 0.25, 1.0, 2.0)]
    assert found == pytest.approx([0.5, 0.5, 0.45, 0.3, 0.3])


@pytest.mark.parametrize(("ratio", "counts"), [(0.0, [0, 0]), (0.5, [2, 0]), (0.8, [3, 0]), (1.0, [4, 1])])
def test_as_many_words_are_shown_as_the_ratio_of_the_wrong_ones_rounded_down(ratio, counts):
    """Four wrong words in the first row, one in the second; padding is never wrong."""
    predictions = torch.tensor([[4, 0, 0, 0, 0, 0], [4, 5, 0, 0, 0, 0]])
    for _ in range(20):
        shown = reveal_words(LABELS, predictions, ratio=ratio)
        assert shown.sum(-1).tolist() == counts
        assert not shown[LABELS == -100].any()


def test_every_word_is_as_likely_to_be_shown_whether_it_was_right_or_wrong():
    """Two of five words, the first of which was right."""
    labels = LABELS[:1].expand(20_000, -1)
    predictions = torch.tensor([[4, 0, 0, 0, 0, 0]]).expand(20_000, -1)
    torch.manual_seed(0)
    shares = reveal_words(labels, predictions, ratio=0.5).float().mean(0)
    assert shares.tolist() == pytest.approx([0.4] * 5 + [0.0], abs=0.015)


def test_a_student_that_is_right_is_shown_nothing():
    assert not reveal_words(LABELS, LABELS, ratio=1.0).any()


@pytest.mark.parametrize("kind", STUDENTS)
def test_an_agent_reads_its_revealed_word_and_minus_100_reveals_nothing(kind):
    """Only the words count: the logits of the other sentence of the batch stay what they were."""
    model = MODELS[kind]().eval()
    batch = collator(model)(list(make_rows(model, 2)))
    inputs = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    labels = inputs.pop("labels")
    nothing = torch.full_like(labels, -100)
    one = nothing.clone()
    one[0, 0] = labels[0, 0]
    with torch.no_grad():
        plain, unrevealed, revealed = (
            model(**inputs, revealed_words=words).logits for words in (None, nothing, one)
        )
    assert torch.equal(plain, unrevealed)
    assert not torch.allclose(plain[0], revealed[0], atol=1e-4)
    assert torch.allclose(plain[1], revealed[1], atol=1e-6)


@pytest.mark.parametrize("kind", STUDENTS)
def test_the_loss_is_that_of_the_words_that_are_not_shown(kind, tmp_path, monkeypatch):
    """The first word of each sentence is shown; the length loss is not touched."""
    model = MODELS[kind]()
    rows = make_rows(model, 4)
    batch = collator(model)(list(rows))
    inputs = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    labels = inputs.pop("labels")
    shown = torch.zeros_like(labels, dtype=torch.bool)
    shown[:, 0] = True
    with torch.no_grad():
        outputs = model(**inputs, revealed_words=labels.masked_fill(~shown, -100))
    expected = cross_entropy_sum(outputs.logits, labels.masked_fill(shown, -100)) / (labels != -100).sum()
    if outputs.length_logits is not None:
        sources = inputs["attention_mask"].sum(-1)
        lengths = model.length_loss(outputs.length_logits, sources, inputs["target_lengths"])
        expected = expected + 0.1 * lengths.mean()

    def show_the_first(labels, predictions, *, ratio):
        first = torch.zeros_like(labels, dtype=torch.bool)
        first[:, 0] = True
        return first

    monkeypatch.setattr("hf_cmal.training.xe_trainer.reveal_words", show_the_first)
    trainer = make_trainer(XeTrainer, model, rows, tmp_path, max_steps=1, glancing_ratio=0.5)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("kind", STUDENTS)
def test_a_ratio_of_zero_is_training_without_glancing(kind, tmp_path):
    model = MODELS[kind]()
    rows = make_rows(model, 4)
    plain, zero, half = (
        gradients_of_one_step(XeTrainer, MODELS[kind](), rows, tmp_path, **options)
        for options in (
            {},
            {"glancing_ratio": 0.0, "glancing_ratio_end": 0.0},
            {"glancing_ratio": 0.5},
        )
    )
    assert largest_difference(plain, zero) < 1e-6
    assert largest_difference(plain, half) > 1e-2


def test_the_log_says_how_many_words_were_right_and_how_many_were_shown(tmp_path):
    """As the student learns its eight sentences, it gets more right and is shown fewer."""
    model = MODELS["translator"]()
    trainer = make_trainer(
        XeTrainer, model, make_rows(model, 8), tmp_path, max_steps=150, logging_steps=15, learning_rate=1e-2,
        glancing_ratio=0.5,
    )  # fmt: skip
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "words_shown" in entry]
    assert len(logs) == 10
    assert logs[0]["words_right"] < 0.5 < 0.8 < logs[-1]["words_right"]
    assert logs[0]["words_shown"] > 0.15 > 0.1 > logs[-1]["words_shown"]


def test_resuming_equals_never_having_stopped(tmp_path):
    rows = make_rows(MODELS["translator"](), 16)
    options = {"max_steps": 8, "glancing_ratio": 0.5, "save_strategy": "steps", "save_steps": 3}
    whole = make_trainer(XeTrainer, MODELS["translator"](dropout=0.3), rows, tmp_path / "whole", **options)
    whole.train()
    resumed = make_trainer(
        XeTrainer, MODELS["translator"](dropout=0.3), rows, tmp_path / "resumed", **options
    )
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-3"))
    expected, found = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("kind", ["teacher", "captioning_teacher"])
def test_a_teacher_cannot_glance(kind, tmp_path):
    model = MODELS[kind]()
    with pytest.raises(
        ValueError, match="glancing_ratio is 0.5, but glancing trains a student.*set it to None"
    ):
        make_trainer(XeTrainer, model, make_rows(model, 2), tmp_path, glancing_ratio=0.5)


@pytest.mark.parametrize("name", ["glancing_ratio", "glancing_ratio_end"])
@pytest.mark.parametrize("value", [-0.1, 1.5])
def test_a_ratio_outside_0_to_1_is_refused(name, value, tmp_path):
    model = MODELS["translator"]()
    with pytest.raises(ValueError, match=f"{name} is {value}; give a number from 0 to 1"):
        make_trainer(XeTrainer, model, make_rows(model, 2), tmp_path, **{name: value})
