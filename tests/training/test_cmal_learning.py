"""CMAL learns from the references, and from nothing else: with those of other inputs it does not help."""

import copy

import pytest
import torch

from hf_cmal.estimators import get_estimator
from hf_cmal.rewards import get_reward
from hf_cmal.training.cmal_trainer import CmalTrainer
from hf_cmal.training.xe_trainer import XeTrainer
from tests.training.tiny import EOS, MODELS, collator, make_rows, make_trainer


def mean_reward(model, rows) -> float:
    """Mean GLEU of 100 sampled sentences per input against the references of `rows`."""
    batch = collator(model)(list(rows))
    inputs = {
        name: value for name, value in batch.items() if isinstance(value, torch.Tensor) and name != "labels"
    }
    with torch.no_grad():
        outputs = model.eval()(**inputs)
        log_probs = model.suppress_tokens(outputs.logits).log_softmax(-1)
    eos = EOS if model.config.length_mode == "fixed" else None
    proposals = get_estimator("moving_average").propose(
        log_probs,
        outputs.agent_mask,
        eos_token_id=eos,
        num_samples=100,
        generator=torch.Generator().manual_seed(0),
    )
    bound = get_reward("gleu").bind(batch["reference_ids"], outputs.agent_mask, eos_token_id=eos)
    return float(bound.score(proposals.actions).mean())


@pytest.fixture(scope="module", params=["translator", "captioner"])
def half_trained(request, tmp_path_factory):
    """A student that word-by-word training has brought part of the way, and its rows."""
    model = MODELS[request.param]()
    rows = make_rows(model, 32)
    make_trainer(
        XeTrainer,
        model,
        rows,
        tmp_path_factory.mktemp("xe"),
        max_steps=50,
        learning_rate=1e-2,
        per_device_train_batch_size=32,
        logging_steps=100,
    ).train()
    return model, rows


def train_by_cmal(model, rows, folder) -> list[float]:
    trainer = make_trainer(
        CmalTrainer,
        model,
        rows,
        folder,
        max_steps=40,
        learning_rate=5e-3,
        per_device_train_batch_size=32,
        logging_steps=8,
    )
    trainer.train()
    return [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]


def test_the_mean_reward_beats_the_start(half_trained, tmp_path):
    model, rows = half_trained
    before = mean_reward(model, rows)
    model = copy.deepcopy(model)
    logged = train_by_cmal(model, rows, tmp_path)
    assert mean_reward(model, rows) > before + 0.05
    assert logged[-1] > logged[0] + 0.05


def test_with_shuffled_references_cmal_does_not_help(half_trained, tmp_path):
    """References of other inputs tell nothing about this one: only what the input's own tell may help.

    Measured against the true references. The noise of the measure is about 0.005.
    """
    model, rows = half_trained
    before = mean_reward(model, rows)
    ids = rows["reference_ids"]
    shuffled = rows.remove_columns("reference_ids").add_column("reference_ids", [*ids[5:], *ids[:5]])
    assert all(one != other for one, other in zip(ids, shuffled["reference_ids"], strict=True))
    model = copy.deepcopy(model)
    train_by_cmal(model, shuffled, tmp_path)
    assert mean_reward(model, rows) < before + 0.02
