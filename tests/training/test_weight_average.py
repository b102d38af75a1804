"""The moving average of the weights: its numbers, and what of a run it changes."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from hf_cmal.training.cmal_trainer import CmalTrainer
from hf_cmal.training.weight_average import AVERAGE, WeightAverage
from hf_cmal.training.xe_trainer import XeTrainer
from tests.training.tiny import make_rows, make_trainer, teacher, translator


def one_weight(value: float) -> nn.Module:
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(value)
    return model


def test_the_average_moves_as_its_formula_says():
    """From 0; weights 1, 1, 4; the decays 1/10, 2/11 and, at the ceiling, 0.2 instead of 3/12.

    0.1 * 0 + 0.9 * 1 = 0.9; 2/11 * 0.9 + 9/11 * 1 = 0.98182; 0.2 * 0.98182 + 0.8 * 4 = 3.39636
    """
    model = one_weight(0.0)
    average = WeightAverage(model, decay=0.2)
    for value, expected in ((1.0, 0.9), (1.0, 0.9818182), (4.0, 3.3963636)):
        model.weight.data.fill_(value)
        average.update()
        assert average.weights["weight"].item() == pytest.approx(expected)


def test_inside_the_model_has_the_average_and_afterwards_its_own_weights_again():
    model = one_weight(2.0)
    average = WeightAverage(model, decay=0.5)
    model.weight.data.fill_(6.0)
    with pytest.raises(KeyError), average.applied():
        assert model.weight.item() == 2.0
        raise KeyError
    assert model.weight.item() == 6.0


def test_what_is_saved_comes_back_with_its_number_of_updates(tmp_path):
    model = one_weight(0.0)
    average = WeightAverage(model, decay=0.9)
    model.weight.data.fill_(1.0)
    average.update()
    average.save(tmp_path)
    other = WeightAverage(model, decay=0.9)
    other.load(tmp_path)
    assert (other.updates, other.weights["weight"].item()) == (1, average.weights["weight"].item())
    (tmp_path / AVERAGE).unlink()
    with pytest.raises(FileNotFoundError, match="begun without average_decay"):
        other.load(tmp_path)


@pytest.mark.parametrize(("trainer_class", "model"), [(XeTrainer, teacher), (CmalTrainer, translator)])
def test_averaging_does_not_change_the_training_and_ends_elsewhere(trainer_class, model, tmp_path):
    ends = []
    for decay in (None, 0.8):
        made = model()
        trainer = make_trainer(
            trainer_class, made, make_rows(made, 8), tmp_path, max_steps=6, average_decay=decay
        )
        trainer.train()
        own = {name: value.detach().clone() for name, value in made.named_parameters()}
        with trainer.averaged_weights():
            kept = {name: value.detach().clone() for name, value in made.named_parameters()}
        ends.append((own, kept))
    (plain, kept_plain), (own, kept) = ends
    assert all(torch.equal(plain[name], own[name]) for name in plain)
    assert all(torch.equal(plain[name], kept_plain[name]) for name in plain)
    assert max(float((kept[name] - own[name]).abs().max()) for name in own) > 1e-4


def test_the_average_is_what_is_evaluated(tmp_path):
    model = translator()
    rows = make_rows(model, 8)
    trainer = make_trainer(
        XeTrainer, model, rows, tmp_path, max_steps=6, learning_rate=0.05, average_decay=0.9,
        trainer_options={"eval_dataset": rows},
    )  # fmt: skip
    trainer.train()
    averaged = trainer.evaluate()["eval_loss"]
    trainer.average = None
    assert abs(trainer.evaluate()["eval_loss"] - averaged) > 1e-3


def test_a_resumed_run_has_the_average_of_one_that_never_stopped(tmp_path):
    def run(folder, **more):
        model = translator()
        options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "average_decay": 0.9}
        trainer = make_trainer(XeTrainer, model, make_rows(model, 8), tmp_path / folder, **options)
        trainer.train(**more)
        return trainer.average

    whole = run("whole")
    checkpoint = tmp_path / "whole" / "checkpoint-2"
    assert load_file(checkpoint / AVERAGE)["updates"].item() == 2
    resumed = run("resumed", resume_from_checkpoint=str(checkpoint))
    assert resumed.updates == whole.updates == 4
    assert all(torch.equal(resumed.weights[name], whole.weights[name]) for name in whole.weights)


@pytest.mark.parametrize("decay", [0.0, 1.0, -1.0, float("nan")])
def test_a_decay_that_averages_nothing_is_refused(decay, tmp_path):
    model = teacher()
    with pytest.raises(ValueError, match=f"average_decay is {decay}; give a number between 0 and 1"):
        make_trainer(XeTrainer, model, make_rows(model, 4), tmp_path, average_decay=decay)


def test_the_average_and_the_best_checkpoint_exclude_each_other(tmp_path):
    model = teacher()
    with pytest.raises(ValueError, match="set load_best_model_at_end to false"):
        make_trainer(
            XeTrainer, model, make_rows(model, 4), tmp_path, average_decay=0.9, load_best_model_at_end=True,
            eval_strategy="steps", save_strategy="steps",
        )  # fmt: skip
