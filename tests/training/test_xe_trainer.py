"""Word-by-word training: the loss by hand, accumulation, resuming, evaluation, and the stop at a NaN."""

import math

import pytest
import torch
from transformers import EvalPrediction

from hf_cmal.training.xe_trainer import XeTrainer, cross_entropy_sum
from tests.training.tiny import (
    MODELS,
    collator,
    gradients_of_one_step,
    largest_difference,
    make_rows,
    make_trainer,
    teacher,
)

LN2 = math.log(2)


def test_cross_entropy_is_minus_the_log_probability_of_the_labels_summed():
    """Odds 2 : 1 : 1; labels 0 and 1 cost ln 2 and ln 4, the ignored ones nothing."""
    logits = torch.tensor([2.0, 1.0, 1.0]).log().expand(1, 4, 3)
    assert cross_entropy_sum(logits, torch.tensor([[0, 1, -100, -100]])).item() == pytest.approx(3 * LN2)


def test_label_smoothing_spreads_its_share_over_the_vocabulary():
    """0.3 smoothed: 0.7 ln 2 + 0.3 (ln 2 + ln 4 + ln 4) / 3 = 1.2 ln 2."""
    logits = torch.tensor([[[2.0, 1.0, 1.0]]]).log()
    loss = cross_entropy_sum(logits, torch.tensor([[0]]), label_smoothing=0.3)
    assert loss.item() == pytest.approx(1.2 * LN2)


def loss_by_hand(model, batch) -> float:
    """Eq. (5) by loops: the mean of -log p over all words, the first ones included, and the length loss."""
    inputs = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    labels = inputs.pop("labels")
    with torch.no_grad():
        outputs = model.eval()(**inputs)
    costs = []
    for row in range(labels.shape[0]):
        for position in range(labels.shape[1]):
            if labels[row, position] != -100:
                scores = outputs.logits[row, position].double()
                costs.append(float(scores.logsumexp(0) - scores[labels[row, position]]))
    loss = sum(costs) / len(costs)
    if model.config.model_type == "cmal_nag" and outputs.length_logits is not None:
        length_costs = []
        for row, scores in enumerate(outputs.length_logits.double()):
            # class m + target words - source positions, eos included; m = 3
            offset = int((labels[row] != -100).sum()) - int(inputs["attention_mask"][row].sum())
            length_costs.append(float(scores.logsumexp(0) - scores[3 + offset]))
        loss += 0.1 * sum(length_costs) / len(length_costs)  # Sec. 6.1.2
    return loss


@pytest.mark.parametrize("kind", MODELS)
def test_the_logged_loss_is_the_cross_entropy_of_every_word_from_the_first_on(kind, tmp_path):
    model = MODELS[kind]()
    rows = make_rows(model, 4)
    expected = loss_by_hand(model, collator(model)(list(rows)))
    trainer = make_trainer(XeTrainer, model, rows, tmp_path, max_steps=1)
    trainer.train()
    assert trainer.state.log_history[0]["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_eight_micro_batches_of_one_are_one_batch_of_eight(kind, tmp_path):
    rows = make_rows(MODELS[kind](), 8)
    options = {"label_smoothing_factor": 0.1}
    whole = gradients_of_one_step(
        XeTrainer, MODELS[kind](), rows, tmp_path, per_device_train_batch_size=8, **options
    )
    parts = gradients_of_one_step(
        XeTrainer,
        MODELS[kind](),
        rows,
        tmp_path,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=8,
        **options,
    )
    assert largest_difference(whole, parts) < 1e-5


@pytest.mark.parametrize("kind", MODELS)
def test_the_mean_of_the_means_of_micro_batches_would_be_another_gradient(kind, tmp_path):
    """Rows have two to seven words: averaging each alone, then all, weighs the words of short rows more."""
    model = MODELS[kind]()
    rows = make_rows(model, 8)
    whole = gradients_of_one_step(
        XeTrainer, model, rows, tmp_path, per_device_train_batch_size=8, learning_rate=0.0
    )
    model.zero_grad()
    for row in rows:
        inputs = {
            name: value for name, value in collator(model)([row]).items() if isinstance(value, torch.Tensor)
        }
        (model(**inputs).loss / 8).backward()
    naive = {name: parameter.grad for name, parameter in model.named_parameters() if name in whole}
    assert largest_difference(whole, naive) > 1e-2


def weights(model) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("kind", ["teacher", "translator"])
def test_resuming_in_the_middle_of_an_epoch_equals_never_having_stopped(kind, tmp_path):
    """With dropout, token-budget batches, accumulation and a decaying rate; stopped in the second epoch."""
    rows = make_rows(MODELS[kind](), 24)
    options = {
        "num_train_epochs": 3,
        "max_tokens_per_batch": 20,
        "gradient_accumulation_steps": 2,
        "lr_scheduler_type": "linear",
    }

    def trainer_in(folder, **more):
        return make_trainer(XeTrainer, MODELS[kind](dropout=0.3), rows, tmp_path / folder, **options, **more)

    whole = trainer_in("whole")
    updates = -(-len(whole.get_train_dataloader()) // 2)
    stop = updates + 2
    assert updates < stop < 2 * updates
    whole = trainer_in("whole", save_strategy="steps", save_steps=stop)
    whole.train()
    resumed = trainer_in("resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / f"checkpoint-{stop}"))
    expected, found = weights(whole.model), weights(resumed.model)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert losses(whole) == losses(resumed)
    other_seed = trainer_in("other", seed=1, data_seed=42)
    other_seed.train()
    assert not torch.equal(expected["model.shared.weight"], weights(other_seed.model)["model.shared.weight"])


def losses(trainer) -> dict[int, float]:
    return {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}


def exact_words(prediction: EvalPrediction) -> dict[str, float]:
    """Share of label words that are predicted in place."""
    labels = torch.as_tensor(prediction.label_ids)
    found = torch.nn.functional.pad(torch.as_tensor(prediction.predictions), (0, labels.shape[1]), value=-100)
    found = found[:, : labels.shape[1]]
    return {"bleu": float((found == labels)[labels != -100].float().mean())}


@pytest.mark.parametrize("kind", ["teacher", "translator", "captioner"])
def test_metrics_of_decoded_sentences_choose_the_best_checkpoint(kind, tmp_path):
    model = MODELS[kind]()
    rows = make_rows(model, 8)
    trainer = make_trainer(
        XeTrainer,
        model,
        rows,
        tmp_path,
        trainer_options={"eval_dataset": rows, "compute_metrics": exact_words},
        num_train_epochs=12,
        learning_rate=1e-2,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="bleu",
        generation_max_length=8,
    )
    trainer.train()
    scores = [entry["eval_bleu"] for entry in trainer.state.log_history if "eval_bleu" in entry]
    assert len(scores) == 12 and len(set(scores)) > 2
    assert trainer.state.best_metric == max(scores)
    assert trainer.evaluate()["eval_bleu"] == max(scores)  # the best weights were loaded


@pytest.mark.parametrize("kind", ["teacher", "captioner"])
def test_the_evaluation_loss_is_the_cross_entropy_without_smoothing(kind, tmp_path):
    model = MODELS[kind]()
    rows = make_rows(model, 4)
    trainer = make_trainer(
        XeTrainer, model, rows, tmp_path, trainer_options={"eval_dataset": rows}, label_smoothing_factor=0.5
    )
    expected = loss_by_hand(model, collator(model)(list(rows)))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", ["teacher", "translator"])
def test_a_loss_that_is_not_finite_stops_before_the_update_and_names_the_sources(kind, tmp_path):
    model = MODELS[kind]()
    rows = make_rows(model, 8)
    trainer = make_trainer(XeTrainer, model, rows, tmp_path, max_steps=5, learning_rate=0.1)

    def break_the_model_after_one_step(module, inputs):
        if trainer.state.global_step == 1:
            module.weight.data[0] = math.nan

    model.get_encoder().layers[0].fc1.register_forward_pre_hook(break_the_model_after_one_step)
    with pytest.raises(FloatingPointError, match="nan at step 1") as error:
        trainer.train()
    assert any(repr(source) in str(error.value) for source in rows["source"])
    assert "before the update" in str(error.value)
    assert trainer.state.global_step == 1
    assert torch.isfinite(model.get_encoder().layers[0].fc2.weight).all()


def test_a_source_in_pictures_is_named_by_its_image_id(tmp_path):
    model = MODELS["captioner"]()
    model.get_encoder().layers[0].fc1.weight.data.fill_(math.nan)
    trainer = make_trainer(
        XeTrainer, model, make_rows(model, 2).remove_columns("source"), tmp_path, max_steps=1
    )
    with pytest.raises(FloatingPointError, match="'picture [01]'"):
        trainer.train()


def test_the_references_are_in_the_batch_beside_the_tensors(tmp_path):
    """The Trainer drops the columns that `forward` does not name, unless it is told not to."""
    model = teacher()
    rows = make_rows(model, 4)
    for options in ({}, {"max_tokens_per_batch": 40}):
        trainer = make_trainer(XeTrainer, model, rows, tmp_path, **options)
        batch = next(iter(trainer.get_train_dataloader()))
        assert sorted(batch["references"]) == sorted(rows["references"])
        assert sorted(batch["reference_ids"]) == sorted(rows["reference_ids"])


@pytest.mark.parametrize("kind", MODELS)
def test_in_bf16_on_cpus_attention_is_written_out_and_else_the_fused_one_stays(kind, tmp_path):
    """The same loss either way: both are the same attention."""
    losses = []
    for bf16 in (True, False):
        model = MODELS[kind]()
        assert model.config._attn_implementation == "sdpa"
        trainer = make_trainer(XeTrainer, model, make_rows(model, 8), tmp_path, bf16=bf16, max_steps=1)
        assert model.config._attn_implementation == ("eager" if bf16 else "sdpa")
        trainer.train()
        losses.append(trainer.state.log_history[0]["loss"])
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=0.02)
