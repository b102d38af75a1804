"""Rivals measured fairly: all run once per round, in turns, so a slow moment of the machine hits each."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


def all_threads() -> int:
    """How many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def median_seconds(systems: Mapping[str, Callable[[], Any]], *, rounds: int) -> dict[str, float]:
    """Median wall time of one call of each, after one call that is not counted.

    Every other round goes backwards, so that nobody always runs after the same neighbour.
    """
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for call in systems.values():
        call()
    for number in range(rounds):
        names = list(systems)
        for name in names if number % 2 == 0 else reversed(names):
            start = time.perf_counter()
            systems[name]()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}
