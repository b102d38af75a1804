"""The arithmetic of latencies under a clock that only the systems move; nothing here measures real time."""

from types import SimpleNamespace

import pytest
import torch

from hf_cmal.evaluation import latency
from hf_cmal.evaluation.latency import assert_float32, describe_latency, measure_latency
from tests.models.tiny_nag import tiny_translator


class Stopwatch:
    """Two systems that take as many seconds as their input says, and the clock that sees it."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        self.calls = []
        monkeypatch.setattr(latency, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def system(self, name):
        def decode(row):
            self.calls.append((name, row["row"]))
            self.now += row[name]

        return decode

    def measure(self, rows, **options):
        inputs = [{"row": i, "slow": slow, "fast": fast} for i, (slow, fast) in enumerate(rows)]
        systems = {"slow": self.system("slow"), "fast": self.system("fast")}
        return measure_latency(systems, inputs, rival="slow", **options)


@pytest.fixture
def stopwatch(monkeypatch):
    return Stopwatch(monkeypatch)


def test_speedup_is_the_ratio_of_the_means_not_the_mean_of_the_ratios(stopwatch):
    times = stopwatch.measure([(1.0, 0.25), (4.0, 2.0)])
    assert times["slow"]["latency_ms"] == pytest.approx(2500)
    assert times["fast"]["latency_ms"] == pytest.approx(1125)
    assert times["fast"]["speedup"] == pytest.approx(2500 / 1125)  # the ratios are 4 and 2, their mean is 3
    assert times["slow"]["speedup"] == 1


def test_median_and_ninetieth_percentile_are_of_single_inputs_in_milliseconds(stopwatch):
    # 1 to 9 and 20 seconds, not in order: median 5.5 (mean 6.5), nine of ten take at most 9
    seconds = [3, 1, 2, 20, 9, 8, 7, 6, 5, 4]
    times = stopwatch.measure([(float(s), 1.0) for s in seconds])["slow"]
    assert times["latency_ms_median"] == pytest.approx(5500)
    assert times["latency_ms_p90"] == pytest.approx(9000)


def test_warm_up_inputs_are_decoded_by_every_system_and_not_counted(stopwatch):
    times = stopwatch.measure([(100.0, 100.0), (1.0, 1.0)], warmup=1)
    assert stopwatch.calls[:2] == [("slow", 0), ("fast", 0)]
    assert len(stopwatch.calls) == 2 + 4
    assert times["slow"]["latency_ms"] == pytest.approx(50_500)


def test_systems_take_turns_on_every_input(stopwatch):
    stopwatch.measure([(1.0, 1.0), (1.0, 1.0)], warmup=0)
    assert stopwatch.calls == [("slow", 0), ("fast", 0), ("slow", 1), ("fast", 1)]


def test_an_unknown_rival_is_an_error_that_names_the_systems():
    with pytest.raises(ValueError, match="rival is 'beam'; legal values: slow, fast"):
        measure_latency({"slow": print, "fast": print}, [{}], rival="beam")


def test_no_input_is_an_error():
    with pytest.raises(ValueError, match="latency_rows of 1 or more"):
        measure_latency({"slow": print}, [], rival="slow")


def test_weights_in_half_precision_are_refused_with_their_dtype_named():
    student = tiny_translator()
    assert_float32("student", student)
    with pytest.raises(ValueError, match=r"student has weights in torch\.float16; .* float32"):
        assert_float32("student", student.half())


def test_one_weight_of_another_precision_is_enough_to_be_refused():
    student = tiny_translator()
    student.model.encoder.layers[0].to(torch.bfloat16)
    with pytest.raises(ValueError, match=r"torch\.bfloat16"):
        assert_float32("student", student)


def test_a_latency_names_batch_inputs_threads_dtype_device_and_rival():
    described = describe_latency([1, 2, 3], rival="teacher", device=torch.device("cpu"))
    assert described == {
        "batch_size": 1, "inputs": 3, "threads": torch.get_num_threads(), "dtype": "float32", "device": "cpu",
        "rival": "teacher",
    }  # fmt: skip
