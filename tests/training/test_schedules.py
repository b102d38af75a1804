"""The learning-rate rules against lists written out from Secs. 5.1.2 and 6.1.2."""

import math

import pytest
import torch

from hf_cmal.training.arguments import XeTrainingArguments
from hf_cmal.training.schedules import (
    LEARNING_RATE_RULES,
    captioning_cmal_factor,
    captioning_xe_factor,
    inverse_square_root_factor,
    learning_rate_factor,
)
from hf_cmal.training.xe_trainer import XeTrainer
from tests.training.tiny import make_rows, make_trainer, translator

# Sec. 5.1.2: "min(t x 1e-4, 3e-4) where t is the current epoch number that starts at 1. After 6 epochs, the
# learning rate is decayed by 0.5 every 3 epochs", for 30 epochs. Three epochs after the sixth the first
# halving is due, so epochs 7-9 still have 3e-4.
XE_RATES = [1e-4, 2e-4, *[3e-4] * 7, *[1.5e-4] * 3, *[7.5e-5] * 3, *[3.75e-5] * 3, *[1.875e-5] * 3]
XE_RATES += [*[9.375e-6] * 3, *[4.6875e-6] * 3, *[2.34375e-6] * 3]

# Sec. 5.1.2: "an initial learning rate of 7.5e-5 and decay it by 0.8 every 10 epochs", for 70 epochs.
CMAL_RATES = [7.5e-5] * 10 + [6e-5] * 10 + [4.8e-5] * 10 + [3.84e-5] * 10 + [3.072e-5] * 10
CMAL_RATES += [2.4576e-5] * 10 + [1.96608e-5] * 10


def test_captioning_xe_has_the_rate_of_the_paper_in_each_of_its_30_epochs():
    rates = [3e-4 * captioning_xe_factor(epoch) for epoch in range(1, 31)]
    assert rates == pytest.approx(XE_RATES, rel=1e-12)


def test_captioning_cmal_has_the_rate_of_the_paper_in_each_of_its_70_epochs():
    rates = [7.5e-5 * captioning_cmal_factor(epoch) for epoch in range(1, 71)]
    assert rates == pytest.approx(CMAL_RATES, rel=1e-12)


def test_inverse_square_root_rises_linearly_to_one_at_the_end_of_warm_up_then_falls():
    """The Transformer's rule, d^-0.5 min(step^-0.5, step w^-1.5), over its peak d^-0.5 w^-0.5."""
    steps = [1, 1000, 2000, 4000, 16_000, 100_000]
    factors = [inverse_square_root_factor(step) for step in steps]
    assert factors == pytest.approx([1 / 4000, 0.25, 0.5, 1.0, 0.5, 0.2], rel=1e-12)


def test_the_peak_of_the_transformer_base_is_the_rate_of_the_recipe():
    """Vaswani et al. 2017: d_model 512, warm-up 4,000: 1/sqrt(512 x 4000) = 1/1431.08."""
    assert 1 / math.sqrt(512 * 4000) == pytest.approx(7.0e-4, rel=2e-3)


def test_an_epoch_ends_after_its_last_update():
    """Three updates in an epoch: updates 0-2 are epoch 1, 3-5 epoch 2, 6-8 epoch 3."""
    factors = [
        learning_rate_factor("captioning_xe", update, updates_per_epoch=3, warmup_steps=0)
        for update in range(9)
    ]
    assert factors == pytest.approx([1 / 3] * 3 + [2 / 3] * 3 + [1.0] * 3)


def test_an_unknown_rule_is_an_error_that_names_the_legal_ones(tmp_path):
    for rules_user in (
        lambda: learning_rate_factor("cosine", 0, updates_per_epoch=1, warmup_steps=1),
        lambda: XeTrainingArguments(output_dir=str(tmp_path), use_cpu=True, learning_rate_rule="cosine"),
    ):
        with pytest.raises(ValueError, match="'cosine'") as error:
            rules_user()
        assert all(rule in str(error.value) for rule in LEARNING_RATE_RULES)


def rates_of_training(tmp_path, **options) -> list[float]:
    """The rate of every update, as the Trainer logs it: 24 rows of one micro-batch each."""
    model = translator()
    trainer = make_trainer(XeTrainer, model, make_rows(model, 24), tmp_path, **options)
    trainer.train()
    return [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]


def test_training_has_the_rate_of_each_epoch_with_accumulation(tmp_path):
    """24 rows / (4 rows x 4 micro-batches) = 2 updates an epoch, the second of 2 micro-batches."""
    rates = rates_of_training(
        tmp_path,
        num_train_epochs=11,
        gradient_accumulation_steps=4,
        learning_rate=3e-4,
        learning_rate_rule="captioning_xe",
    )
    assert rates == pytest.approx([rate for rate in XE_RATES[:11] for _ in range(2)], rel=1e-6)


def test_training_has_the_rate_of_each_epoch_with_a_token_budget(tmp_path):
    model = translator()
    trainer = make_trainer(
        XeTrainer,
        model,
        make_rows(model, 12),
        tmp_path,
        num_train_epochs=12,
        max_tokens_per_batch=24,
        learning_rate=7.5e-5,
        learning_rate_rule="captioning_cmal",
    )
    updates = len(trainer.get_train_dataloader())
    assert updates > 1
    trainer.train()
    rates = [entry["learning_rate"] for entry in trainer.state.log_history if "loss" in entry]
    assert rates == pytest.approx([rate for rate in CMAL_RATES[:12] for _ in range(updates)], rel=1e-6)


def test_training_warms_up_by_update(tmp_path):
    """Warm-up 4: a quarter of the rate at the first update, all at the fourth, 2/sqrt(5) at the fifth."""
    rates = rates_of_training(
        tmp_path, max_steps=5, learning_rate=1.0, learning_rate_rule="inverse_square_root", warmup_steps=4
    )
    assert rates == pytest.approx([0.25, 0.5, 0.75, 1.0, 2 / math.sqrt(5)], rel=1e-6)


def test_without_a_rule_the_scheduler_is_that_of_the_trainer(tmp_path):
    """Linear decay over three updates, which none of our rules is."""
    rates = rates_of_training(tmp_path, max_steps=3, learning_rate=3.0, lr_scheduler_type="linear")
    assert rates == pytest.approx([3.0, 2.0, 1.0])


def test_inverse_square_root_without_warm_up_is_refused(tmp_path):
    with pytest.raises(ValueError, match="warmup_steps.*4000"):
        XeTrainingArguments(output_dir=str(tmp_path), use_cpu=True, learning_rate_rule="inverse_square_root")


def test_a_given_scheduler_is_kept(tmp_path):
    model = translator()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda update: 0.5)
    trainer = make_trainer(
        XeTrainer,
        model,
        make_rows(model, 8),
        tmp_path,
        max_steps=1,
        learning_rate_rule="captioning_xe",
        trainer_options={"optimizers": (optimizer, scheduler)},
    )
    trainer.train()
    assert trainer.state.log_history[0]["learning_rate"] == pytest.approx(0.25)
