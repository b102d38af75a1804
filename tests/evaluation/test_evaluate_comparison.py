"""Evaluation with a baseline, and of a part of the systems, by tiny real models."""

import json

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU

from hf_cmal.data.columns import REFERENCES
from hf_cmal.evaluation.evaluate import EvaluationOptions, System, evaluate_systems
from hf_cmal.metrics.bleu import reference_streams
from hf_cmal.tasks import get_task
from tests.evaluation.tiny_ladder import CAPTIONING_DATA, TRANSLATION_DATA

TRANSLATION = get_task("translation")


def split_rows():
    return TRANSLATION.load(TRANSLATION_DATA)["test"]


def evaluated(systems, *, task=TRANSLATION, data=TRANSLATION_DATA, rows=None, **options):
    rows = task.load(data)["test"] if rows is None else rows
    return evaluate_systems(
        EvaluationOptions(systems=systems, batch_size=4, examples=len(rows), length_bounds=(), **options),
        task=task, data=data, rows=rows, device=torch.device("cpu"),
    )  # fmt: skip


def systems_of(folder):
    return {
        "student": System(f"{folder}/student"),
        "student_postprocess": System(f"{folder}/student", remove_consecutive_duplicates=True),
        "again": System(f"{folder}/student"),
        "teacher": System(f"{folder}/teacher"),
    }


@pytest.fixture(scope="module")
def rows(translators):
    """The reference of the first four is what the student says, so that not all systems are equally bad."""
    plain = split_rows()
    _, examples = evaluated({"student": System(f"{translators}/student")})
    said = [[example["systems"]["student"]] for example in examples[:4]]
    return plain.remove_columns(REFERENCES).add_column(REFERENCES, [*said, *plain[REFERENCES][4:]])


@pytest.fixture(scope="module")
def run(translators, rows):
    return evaluated(systems_of(translators), rows=rows, baseline="student")


@pytest.mark.filterwarnings(
    "ignore::hf_cmal.data.skipped.SkippedDataWarning"
)  # what the student says is long
def test_every_system_is_compared_with_the_baseline_on_its_own_sentences(run, rows):
    result, examples = run
    comparison = result["comparison"]
    assert comparison["baseline"] == "student"
    assert list(comparison["systems"]) == ["again", "teacher"]
    again, teacher = comparison["systems"].values()
    assert (again["difference"], again["low"], again["high"]) == (0.0, 0.0, 0.0)
    streams = reference_streams(rows[REFERENCES], rows[REFERENCES])
    scores = {
        name: BLEU().corpus_score([example["systems"][name] for example in examples], streams).score
        for name in ("teacher", "student")
    }
    assert teacher["difference"] == scores["teacher"] - scores["student"] < -5.0
    assert teacher["low"] < teacher["difference"] < teacher["high"]
    signature = result["systems"]["student"]["bleu_signature"]
    assert comparison["signature"] == f"paired-bootstrap|bs:1000|seed:12345|rows:10|interval:95 %|{signature}"


def test_a_comparison_holds_no_sentence(run):
    result, examples = run
    text = json.dumps(result["comparison"], ensure_ascii=False)
    written = {sentence for example in examples for sentence in example["systems"].values()}
    assert len(written) > 10
    assert [sentence for sentence in written if sentence in text] == []


def test_without_a_baseline_nothing_is_compared(translators):
    result, _ = evaluated({"student": System(f"{translators}/student")})
    assert "comparison" not in result


def test_only_the_systems_that_are_named_are_measured_with_their_curves(translators, tmp_path):
    (tmp_path / "trainer_state.json").write_text('{"log_history": [{"step": 1, "loss": 0.5}]}')
    curves = {"student": str(tmp_path), "teacher": "not/there"}
    systems = {**systems_of(translators), "gone": System("not/there")}
    only = ("again", "student")
    result, examples = evaluated(systems, only=only, curves=curves, baseline="student")
    assert list(result["systems"]) == ["student", "again"]
    assert list(examples[0]["systems"]) == ["student", "again"]
    assert list(result["curves"]) == ["student"]
    assert list(result["comparison"]["systems"]) == ["again"]


# --- bad input, found before a model is opened

NOWHERE = {"student": System("not/there"), "other": System("not/there/either")}


def test_a_part_that_is_no_system_is_an_error_that_names_them():
    with pytest.raises(ValueError, match=r"evaluation\.only names cf, ca; legal values: student, other"):
        evaluated(NOWHERE, only=("cf", "student", "ca"))


@pytest.mark.parametrize("only", [(), ("other",)])
def test_an_unknown_baseline_is_an_error_that_names_the_systems(only):
    with pytest.raises(ValueError, match=r"evaluation\.baseline is '\w+'; legal values: "):
        evaluated(NOWHERE, baseline="student" if only else "beam", only=only)


def test_a_system_that_postprocesses_needs_a_baseline_that_does():
    systems = {**NOWHERE, "post": System("x", remove_consecutive_duplicates=True)}
    with pytest.raises(ValueError, match=r"evaluation\.systems\.post has remove_consecutive_duplicates true"):
        evaluated(systems, baseline="student")


def test_a_baseline_of_a_task_without_bleu_is_an_error_that_names_its_score():
    with pytest.raises(ValueError, match="task captioning is measured by cider; set it to null"):
        evaluated(NOWHERE, task=get_task("captioning"), data=CAPTIONING_DATA, baseline="student")
