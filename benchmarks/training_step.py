"""Seconds of an optimizer step word by word (XE) and by CMAL, and which share of it the rewards take.

The real trainers run the paper's two shapes with Transformer-Base in float32 on random weights with a policy
like a trained one's (`parts/students.py`); all steps of a shape take turns on one batch and share the model
and Adam. Ends by printing one JSON object: `captioning` and `translation`, each with `reward_share` and
`cmal_over_xe` of the paper's preset, `all_action_over_ca`, and the parts of every step.

    python benchmarks/training_step.py [--quick] [--rounds 5] [--output FOLDER]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from parts.report import add_options, finish
from parts.stopwatch import REWARD_PARTS, Stopwatch, TimedEstimator, TimedReward, timed_step
from parts.students import Setting, Shape, captioning, translation
from parts.turns import all_threads

from hf_cmal.estimators import get_estimator
from hf_cmal.evaluation.environment import describe_environment
from hf_cmal.training.arguments import CmalTrainingArguments, XeTrainingArguments
from hf_cmal.training.cmal_trainer import CmalTrainer
from hf_cmal.training.sequence_trainer import SequenceTrainer
from hf_cmal.training.xe_trainer import XeTrainer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

XE, CA, ALL_ACTION = "xe", "counterfactual_top_2_compositional", "all_action"
NUM_SAMPLES = 5
LEARNING_RATE = 1e-9  # so small that the policy stays as certain as it was made
PARTS = ("forward", "loss", "propose", *REWARD_PARTS, "surrogate", "backward", "optimizer", "counting")


@dataclass(frozen=True)
class Task:
    """A shape with what is measured on it.

    Attributes:
        build: makes the student and its batch.
        preset: the paper's estimator, a key of `estimators`.
        estimators: name -> the name in ESTIMATORS and its options.
    """

    build: Callable[[Shape], Setting]
    shape: Shape
    preset: str
    estimators: Mapping[str, tuple[str, dict[str, Any]]]


ESTIMATORS: dict[str, tuple[str, dict[str, Any]]] = {
    CA: ("counterfactual", {"top_k": 2, "compositional_weight": 0.5}),
    ALL_ACTION: ("all_action", {}),
}
TASKS = {
    # Sec. 5.1.2: 50 images, N = 16, V = 9,487, k = 2 and lambda = 0.5
    "captioning": Task(
        captioning,
        Shape(vocab_size=9_487, batch_size=50, source_length=196, target_length=16, num_images=20_000),
        CA,
        ESTIMATORS,
    ),
    # Sec. 6.1.2: 3,000 target words, V = 40,000, k = 1
    "translation": Task(
        translation,
        Shape(vocab_size=40_000, batch_size=100, source_length=30, target_length=30),
        "counterfactual_top_1",
        {"counterfactual_top_1": ("counterfactual", {"top_k": 1}), **ESTIMATORS},
    ),
}
QUICK = {
    "vocab_size": 300, "batch_size": 4, "source_length": 8, "target_length": 8, "d_model": 32, "layers": 1,
    "heads": 2, "ffn_dim": 64, "num_images": 50,
}  # fmt: skip


def make_trainers(task: Task, setting: Setting, watch: Stopwatch, folder: str) -> dict[str, SequenceTrainer]:
    """A trainer for each step, all of the same model and optimizer."""
    options: dict[str, Any] = {
        "output_dir": folder, "use_cpu": True, "optim": "adamw_torch", "weight_decay": 0.0,
        "learning_rate": LEARNING_RATE, "lr_scheduler_type": "constant",
        "per_device_train_batch_size": task.shape.batch_size,
    }  # fmt: skip
    first = XeTrainer(model=setting.student, args=XeTrainingArguments(**options))
    first.create_optimizer_and_scheduler(num_training_steps=1_000)
    trainers: dict[str, SequenceTrainer] = {XE: first}
    for name, (estimator, estimator_options) in task.estimators.items():
        trainers[name] = CmalTrainer(
            model=setting.student,
            args=CmalTrainingArguments(num_samples=NUM_SAMPLES, **options),
            reward=TimedReward(setting.reward, watch),
            estimator=TimedEstimator(get_estimator(estimator, **estimator_options), watch),
            optimizers=(first.optimizer, first.lr_scheduler),
        )
    return trainers


def measure(task: Task, *, rounds: int) -> dict[str, Any]:
    """All that the JSON says of one shape."""
    setting, watch = task.build(task.shape), Stopwatch()
    times: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        trainers = make_trainers(task, setting, watch, folder)
        small = {name: value[:2] for name, value in setting.batch.items()}
        for trainer in trainers.values():  # compiles the kernels and makes the state of Adam
            timed_step(trainer, small, watch)
            trainer.log({"loss": 0.0})  # forgets what was recorded of these two rows
        for number in range(rounds):
            # every other round goes backwards, so that nobody always runs after the same neighbour
            for name in reversed(list(trainers)) if number % 2 else trainers:
                seconds = timed_step(trainers[name], dict(setting.batch), watch)
                times.setdefault(name, []).append(seconds)
        trainers[task.preset].log({"loss": 0.0})  # adds the means of what the trainer recorded
        recorded = trainers[task.preset].state.log_history[-1]
    systems = {name: describe_times(times[name]) for name in trainers}
    preset, xe, ca = systems[task.preset], systems[XE], systems[CA]
    return {
        "reward_share": preset["rewards_seconds"] / preset["step_seconds"],
        "cmal_over_xe": preset["step_seconds"] / xe["step_seconds"],
        "all_action_over_ca": systems[ALL_ACTION]["step_seconds"] / ca["step_seconds"],
        "xe_seconds": xe["step_seconds"],
        "cmal_seconds": preset["step_seconds"],
        "preset": task.preset,
        "systems": systems,
        "setting": {
            **vars(task.shape),
            "num_samples": NUM_SAMPLES,
            "reward": setting.reward.signature,
            "references_per_input": len(setting.batch["reference_ids"][0]),
            "weights": "random, word scores spread; frequent words and the references' words are likely",
            "entropy_without_dropout": setting.entropy,
            "entropy": recorded["entropy"],
            "mean_reward": recorded["reward"],
            "mean_length": recorded["completions/mean_length"],
            "learning_rate": LEARNING_RATE,
            "dtype": str(setting.student.dtype).removeprefix("torch."),
            "parameters": setting.student.num_parameters(),
            "rounds": rounds,
            "threads": torch.get_num_threads(),
        },
    }


def describe_times(times: list[dict[str, float]]) -> dict[str, Any]:
    """Medians over the rounds, in seconds."""
    parts = {part: statistics.median(seconds.get(part, 0.0) for seconds in times) for part in PARTS}
    rewards = [sum(seconds.get(part, 0.0) for part in REWARD_PARTS) for seconds in times]
    return {
        "step_seconds": statistics.median(seconds["step"] for seconds in times),
        "rewards_seconds": statistics.median(rewards),
        "parts": parts,
    }


def draw(figure: "Figure", result: dict[str, Any]) -> None:
    """A bar per step, stacked of its parts; a panel per shape."""
    for place, name in enumerate(TASKS, start=1):
        axes = figure.add_subplot(2, 1, place)
        systems = result[name]["systems"]
        places = range(len(systems))
        left = [0.0] * len(systems)
        for number, part in enumerate(PARTS):
            widths = [system["parts"][part] for system in systems.values()]
            axes.barh(places, widths, left=left, label=part, color=f"C{number}")
            left = [start + width for start, width in zip(left, widths, strict=True)]
        axes.set_yticks(places, [system.replace("_compositional", " + CA") for system in systems], fontsize=7)
        axes.invert_yaxis()
        axes.tick_params(axis="x", labelsize=7)
        axes.set_xlabel(f"seconds per {name} step", fontsize=7)
        axes.spines[["top", "right"]].set_visible(False)
        if place == 1:
            figure.legend(fontsize=7, frameon=False, loc="outside right center")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time of a training step and its parts.")
    add_options(parser)
    parser.add_argument("--rounds", type=int, help="steps of each kind (default: 5, quick 1)")
    options = parser.parse_args()
    torch.set_num_threads(all_threads())
    rounds = options.rounds or (1 if options.quick else 5)
    start = time.perf_counter()
    result: dict[str, Any] = {"size": "quick" if options.quick else "transformer_base"}
    for name, task in TASKS.items():
        shape = replace(task.shape, **QUICK) if options.quick else task.shape
        result[name] = measure(replace(task, shape=shape), rounds=rounds)
    result["total_seconds"] = time.perf_counter() - start
    finish("training_step", result | describe_environment(), options, draw)


if __name__ == "__main__":
    main()
