"""XE and CMAL training killed by SIGKILL and started again end in the weights of a run that was not.

Run as a script (`test_killed_training.py RECIPE STEP OVERRIDES ...`) this file runs a stage and hangs before
the update STEP, so that the test kills it where it wants. Distillation is killed in test_distillation.py.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hf_cmal.training.recipe import load_recipe
from hf_cmal.training.sequence_trainer import SequenceTrainer
from hf_cmal.training.stages import run_stage

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "recipes" / "toy" / "translation"
SMALL = [
    "data.toy_rows=[16,4,4]",
    "data.vocab_size=450",
    "data.max_source_length=48",
    "data.max_target_length=48",
    "model.d_model=16",
    "model.ffn_dim=16",
    "model.attention_heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
]
EVERY_STEP = [
    "training.max_steps=5",
    "training.max_tokens_per_batch=null",
    "training.per_device_train_batch_size=4",
    "training.eval_strategy=no",
    "training.save_strategy=steps",
    "training.save_steps=1",
    "training.load_best_model_at_end=false",
    "training.logging_steps=1",
]
KILLED_BEFORE = 3

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*were cut", "ignore:.*decoding limit", "ignore:.*pseudo-target"
)


def overrides(root: Path, made: Path) -> list[str]:
    return [f"root={root}", f"output_dir={made}", *SMALL, *EVERY_STEP]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A teacher and its student, trained for a step each."""
    root = tmp_path_factory.mktemp("ladder")
    one_step = [f"root={root}", *SMALL, *EVERY_STEP, "training.max_steps=1"]
    run_stage(load_recipe(TOY / "01_teacher_xe.yaml", one_step))
    run_stage(load_recipe(TOY / "04_student_xe.yaml", [*one_step, "pseudo_targets=null"]))
    return root


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "more"),
    [
        ("01_teacher_xe", []),
        ("04_student_xe", ["pseudo_targets=null"]),
        # both have a state of their own
        (
            "05_cmal",
            ["training.estimator=moving_average", "training.top_k=null", "training.average_decay=0.9"],
        ),
    ],
)
def test_a_killed_run_ends_in_the_weights_of_one_that_was_not_killed(stage, more, root, tmp_path):
    recipe = TOY / f"{stage}.yaml"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_stage(load_recipe(recipe, [*overrides(root, whole), *more]))
    process = subprocess.Popen(
        [sys.executable, __file__, str(recipe), str(KILLED_BEFORE), *overrides(root, killed), *more],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 300
    while not (killed / "hanging").exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    last = killed / f"checkpoint-{KILLED_BEFORE}"
    assert last.is_dir() and not (killed / "model.safetensors").exists()
    # as if the kill had come while this checkpoint was being written
    (last / "trainer_state.json").unlink()

    with pytest.warns(UserWarning, match=rf"checkpoint-{KILLED_BEFORE} was being written"):
        run_stage(load_recipe(recipe, [*overrides(root, killed), *more]))
    weights = [(folder / "model.safetensors").read_bytes() for folder in (whole, killed)]
    assert weights[0] == weights[1]
    start = (root / "04_student_xe" / "model.safetensors").read_bytes()
    assert weights[0] != start


if __name__ == "__main__":
    path, step, *words = sys.argv[1:]
    training_step = SequenceTrainer.training_step

    def hanging(trainer, *args, **kwargs):
        if trainer.state.global_step == int(step):
            (Path(trainer.args.output_dir) / "hanging").touch()
            time.sleep(600)
        return training_step(trainer, *args, **kwargs)

    SequenceTrainer.training_step = hanging
    run_stage(load_recipe(path, words))
