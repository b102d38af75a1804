"""One optimizer step of every kind of training, as a rank of torchrun; `test_two_ranks.py` starts it on two.

Use: `torchrun --nproc_per_node 2 tests/training/two_ranks.py FOLDER --use_cpu`. Rank 0 leaves in FOLDER the
gradients of each kind (KIND.pt) and what the ranks found out (found.json).
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import EvalPrediction, TrainerCallback

from hf_cmal.training.cmal_trainer import CmalTrainer
from hf_cmal.training.xe_trainer import XeTrainer
from tests.training.given_proposals import GivenProposals
from tests.training.tiny import MODELS, gradients_of_one_step, make_rows, make_trainer, translator

# What one process does with batches of eight rows, two do with four each.
NUM_ROWS = 8
STEPS = {
    "xe_teacher": (XeTrainer, "teacher"),
    "xe_translator": (XeTrainer, "translator"),
    "xe_captioner": (XeTrainer, "captioner"),
    "cmal_translator": (CmalTrainer, "translator"),
    "cmal_captioner": (CmalTrainer, "captioner"),
}


def step_gradients(kind: str, folder: Path, **options: Any) -> dict[str, torch.Tensor]:
    trainer_class, model_kind = STEPS[kind]
    if trainer_class is CmalTrainer:
        options["trainer_options"] = {"estimator": GivenProposals(top_k=2, compositional_weight=0.5)}
    model = MODELS[model_kind]()
    return gradients_of_one_step(trainer_class, model, make_rows(model, NUM_ROWS), folder, **options)


class OnOneRankOnly(TrainerCallback):
    """Records a metric on the last rank alone."""

    trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if args.process_index == args.world_size - 1:
            self.trainer.record({"on_one_rank_only": 3.0})


def row_numbers(prediction: EvalPrediction) -> dict[str, float]:
    """How many rows were predicted, and whether their labels came in the order of the dataset."""
    first_words = prediction.label_ids[:, 0].tolist()
    expected = [labels[0] for labels in make_rows(translator(), 5)["labels"]]
    return {"rows": float(len(prediction.predictions)), "in_order": float(first_words == expected)}


def find_out(folder: Path) -> dict[str, Any]:
    """Two CMAL steps with sampling and a moving average, then an evaluation of an odd number of rows."""
    model = translator(dropout=0.1)
    on_one_rank = OnOneRankOnly()
    trainer = make_trainer(
        CmalTrainer,
        model,
        make_rows(model, NUM_ROWS),
        folder,
        trainer_options={
            "eval_dataset": make_rows(model, 5),
            "compute_metrics": row_numbers,
            "callbacks": [on_one_rank],
        },
        max_steps=2,
        max_tokens_per_batch=24,
        estimator="moving_average",
        ddp_find_unused_parameters=False,
        save_strategy="steps",
        save_steps=2,
        per_device_eval_batch_size=1,
    )
    on_one_rank.trainer = trainer
    drawn = float(torch.rand(1, generator=trainer.generator(torch.device("cpu"))))
    trainer.train()
    evaluation = trainer.evaluate()
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    return {
        "world_size": trainer.args.world_size,
        "drawn": gather_object([drawn]),
        "baselines": gather_object([trainer.estimator.baseline]),
        "rewards": rewards,
        "on_one_rank_only": [e.get("on_one_rank_only") for e in trainer.state.log_history if "reward" in e],
        "evaluation": evaluation,
        "weights_agree": len({float(p.sum()) for p in gather_object([model.lm_head.weight.detach()])}) == 1,
    }


def main() -> None:
    folder = Path(sys.argv[1])
    for kind in STEPS:
        gradients = step_gradients(
            kind, folder, per_device_train_batch_size=NUM_ROWS // 2, ddp_find_unused_parameters=False
        )
        if os.environ["RANK"] == "0":
            torch.save(gradients, folder / f"{kind}.pt")
    found = find_out(folder / "found_out")
    if os.environ["RANK"] == "0":
        (folder / "found.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
