"""The latency benchmark, run as a user runs it; its figures are not judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "latency.py"


@pytest.mark.slow
def test_a_quick_run_ends_in_one_json_object_with_every_system_and_its_setting():
    done = subprocess.run(
        [sys.executable, SCRIPT, "--quick", "--beams", "2"], capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert (result["size"], result["rival"], result["batch_size"], result["dtype"]) == (
        "quick", "teacher_beam2", 1, "float32",
    )  # fmt: skip
    assert result["systems"].keys() == {"teacher_beam2", "teacher_greedy", "student"}
    rival = result["systems"]["teacher_beam2"]["latency_ms"]
    for system in result["systems"].values():
        assert system["speedup"] == pytest.approx(rival / system["latency_ms"])
    assert {"versions", "hardware", "commit", "threads", "inputs"} <= result.keys()
