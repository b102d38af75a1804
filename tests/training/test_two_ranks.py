"""Two gloo processes on this machine, against one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.training import two_ranks
from tests.training.tiny import largest_difference
from tests.training.two_ranks import NUM_ROWS, STEPS, step_gradients

ROOT = Path(__file__).resolve().parents[2]


def run_ranks(command: list[str]) -> None:
    """Starts python with these words; where it takes too long, its ranks are ended with it."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    with subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment) as process:
        try:
            assert process.wait(timeout=300) == 0
        except subprocess.TimeoutExpired:
            process.terminate()
            raise


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What two ranks leave behind; one start of two processes serves all tests."""
    folder = tmp_path_factory.mktemp("two_ranks")
    command = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        two_ranks.__name__,
    ]
    run_ranks([*command, str(folder), "--use_cpu"])
    return folder


@pytest.fixture(scope="module")
def found(folder) -> dict:
    return json.loads((folder / "found.json").read_text())


def test_there_were_two_ranks(found):
    assert found["world_size"] == 2


@pytest.mark.parametrize("kind", STEPS)
def test_two_ranks_have_the_gradients_of_one(kind, folder, tmp_path):
    """Without looking for unused parameters, so every parameter is used."""
    two = torch.load(folder / f"{kind}.pt")
    one = step_gradients(kind, tmp_path, per_device_train_batch_size=NUM_ROWS)
    assert largest_difference(one, two) < 1e-5
    half = step_gradients(kind, tmp_path, per_device_train_batch_size=NUM_ROWS // 2)
    assert largest_difference(one, half) > 1e-2


def test_a_metric_of_one_rank_alone_is_logged_and_nobody_waits_for_the_other(found):
    assert found["on_one_rank_only"] == [3.0, 3.0]


def test_the_ranks_sample_different_sentences(found):
    first, second = found["drawn"]
    assert first != second


def test_the_moving_average_is_taken_over_both_ranks(found):
    """b <- 0.9 b + 0.1 reward; the logged reward is the mean of both."""
    first, second = found["rewards"]
    expected = 0.9 * (0.1 * first) + 0.1 * second
    assert found["baselines"] == [pytest.approx(expected, rel=1e-6)] * 2
    assert expected > 0


def test_the_weights_of_the_ranks_agree_after_sampling_different_sentences(found):
    assert found["weights_agree"]


def test_an_odd_number_of_rows_is_evaluated_once_each_and_in_order(found):
    assert found["evaluation"]["eval_rows"] == 5
    assert found["evaluation"]["eval_in_order"] == 1
