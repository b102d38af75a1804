"""The reward benchmark, run as a user runs it; its speeds are not judged here, what it compares is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "reward_throughput.py"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def result(folder):
    command = [sys.executable, SCRIPT, "--quick", "--output", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_every_reward_is_timed_on_whole_sentences_and_edits(result):
    assert result["rewards"].keys() == {"cider_d", "gleu", "bleu", "rouge_l"}
    for kind in result["rewards"].values():
        assert kind["us_per_sentence"].keys() == kind["us_per_edit"].keys() == {"1", "all"}
        times = [*kind["us_per_sentence"].values(), *kind["us_per_edit"].values()]
        assert min(*times, kind["rival_us_per_sentence"], kind["bind_ms_per_batch"]) > 0.0
    assert {"versions", "hardware", "commit", "setting", "size"} <= result.keys()


@pytest.mark.slow
def test_the_rivals_give_the_same_scores(result):
    for kind in result["rewards"].values():
        assert kind["max_difference_sentences"] < 1e-9
        assert kind["max_difference_edits"] < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cider_d", "gleu"])
def test_a_speedup_is_the_ratio_of_its_parts(result, name):
    kind = result["rewards"][name]
    ratio = kind["rival_us_per_sentence"] / kind["us_per_edit"]["1"]
    assert result[f"{name}_edit_speedup"] == pytest.approx(ratio)


@pytest.mark.slow
def test_edits_are_those_of_two_words_and_two_pairs_of_each_agent(result):
    setting = result["setting"]
    agents = setting["samples_per_input"] * setting["mean_length"]
    pairs = agents - setting["samples_per_input"]
    assert setting["edits_per_input"] == pytest.approx(2 * agents + 2 * pairs)
    assert 0.0 < setting["unchanged_share_of_edits"] < 0.1
    assert setting["references_per_input"] == 5.0


@pytest.mark.slow
def test_the_file_holds_what_is_printed_and_a_figure_lies_beside_it(result, folder):
    assert json.loads((folder / "reward_throughput.json").read_text()) == result
    assert (folder / "reward_throughput.png").read_bytes().startswith(b"\x89PNG")
