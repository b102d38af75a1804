"""Latency at batch 1: the time of `generate` alone, for several systems on the same inputs in the same run.

As in the paper's tables, a sentence is decoded by itself and the average over sentences counts; the
speed-up is the rival's average over a system's. The systems take turns on every input, so that a change in
the machine's load meets all of them. Tokenizing is not timed, nothing is compiled, weights must be float32.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel


def measure_latency(
    systems: Mapping[str, Callable[[Any], Any]], inputs: Sequence[Any], *, rival: str, warmup: int = 3
) -> dict[str, dict[str, float]]:
    """Milliseconds per input of each system, and its speed-up over `rival`.

    Args:
        systems: name -> function that decodes one input.
        inputs: what the functions take, one row each.
        rival: the system whose mean latency counts as 1.
        warmup: inputs decoded by every system before the clock runs.

    Returns:
        name -> `latency_ms` (mean), `latency_ms_median`, `latency_ms_p90`, `speedup`.

    Raises:
        ValueError: if `rival` is no system, or there is no input.
    """
    if rival not in systems:
        raise ValueError(f"rival is {rival!r}; legal values: {', '.join(systems)}")
    if not inputs:
        raise ValueError("there is no input to time: give latency_rows of 1 or more")
    for row in inputs[:warmup]:
        for decode in systems.values():
            decode(row)
    times: dict[str, list[float]] = {name: [] for name in systems}
    for row in inputs:
        for name, decode in systems.items():
            _synchronize()
            start = time.perf_counter()
            decode(row)
            _synchronize()
            times[name].append((time.perf_counter() - start) * 1000)
    means = {name: statistics.fmean(values) for name, values in times.items()}
    return {
        name: {
            "latency_ms": means[name],
            "latency_ms_median": statistics.median(values),
            "latency_ms_p90": sorted(values)[int(0.9 * (len(values) - 1))],
            "speedup": means[rival] / means[name],
        }
        for name, values in times.items()
    }


def assert_float32(name: str, model: PreTrainedModel) -> None:
    """Raises ValueError if a weight is not float32: systems are only compared in the same precision."""
    others = {str(parameter.dtype) for parameter in model.parameters()} - {"torch.float32"}
    if others:
        raise ValueError(f"{name} has weights in {', '.join(sorted(others))}; latency is compared in float32")


def _synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def describe_latency(inputs: Sequence[Any], *, rival: str, device: torch.device) -> dict[str, Any]:
    """What a latency figure has to name: batch, inputs, threads, precision, device and rival."""
    return {
        "batch_size": 1,
        "inputs": len(inputs),
        "threads": torch.get_num_threads(),
        "dtype": "float32",
        "device": str(device),
        "rival": rival,
    }
