"""A card says what the result says, and nothing else."""

import json

import pytest
from huggingface_hub import ModelCard

from hf_cmal import model_card

TRANSLATION = {
    "task": "translation",
    "split": "test_2016_flickr",
    "rows": 1000,
    "latency": {
        "batch_size": 1,
        "inputs": 100,
        "threads": 2,
        "dtype": "float32",
        "device": "cpu",
        "rival": "teacher",
    },
    "systems": {
        "teacher": {
            "bleu": 37.25,
            "bleu_signature": "nrefs:1|tok:13a",
            "chrf": 60.5,
            "chrf_signature": "nrefs:1|nc:6",
            "latency_ms": 400.0,
            "speedup": 1.0,
        },
        "cmal": {
            "bleu": 31.125,
            "bleu_signature": "nrefs:1|tok:13a",
            "chrf": 55.0625,
            "chrf_signature": "nrefs:1|nc:6",
            "repetition_rate": 0.0123,
            "latency_ms": 25.0,
            "speedup": 16.0,
        },
    },
    "hardware": {"processor": "a processor", "accelerator": None},
}
CAPTIONING = {
    "task": "captioning",
    "split": "test",
    "rows": 8,
    "systems": {
        "cmal": {
            "cider": 1.25,
            "cider_signature": "cider-d|n:4",
            "bleu_1": 0.75,
            "bleu_4": 0.375,
            "bleu_signature": "bleu|n:1-4|smooth:coco",
        }
    },
}
OPTIONS = {
    "repo_id": "me/nat-en-de",
    "system": "cmal",
    "dataset": "bentrevett/multi30k",
    "languages": ["en", "de"],
}


def test_the_model_index_holds_the_scores_of_the_chosen_system_with_their_signatures():
    card = ModelCard(model_card(TRANSLATION, **OPTIONS))
    entries = [
        (entry.metric_type, entry.metric_value, entry.metric_args, entry.dataset_split)
        for entry in card.data.eval_results
    ]
    assert entries == [
        ("bleu", 31.125, {"signature": "nrefs:1|tok:13a"}, "test_2016_flickr"),
        ("chrf", 55.0625, {"signature": "nrefs:1|nc:6"}, "test_2016_flickr"),
    ]
    other = ModelCard(model_card(TRANSLATION, **{**OPTIONS, "system": "teacher"}))
    assert [entry.metric_value for entry in other.data.eval_results] == [37.25, 60.5]


def test_the_front_matter_names_license_languages_task_and_metrics():
    data = ModelCard(model_card(TRANSLATION, **OPTIONS, base_model="me/teacher")).data
    assert data.license == "apache-2.0"
    assert data.language == ["en", "de"]
    assert data.pipeline_tag == "translation"
    assert data.library_name == "transformers"
    assert data.metrics == ["bleu", "chrf"]
    assert data.datasets == ["bentrevett/multi30k"]
    assert data.base_model == "me/teacher"
    assert data.model_name == "nat-en-de"


def test_a_data_set_that_is_not_on_the_hub_is_not_linked():
    assert ModelCard(model_card(TRANSLATION, **{**OPTIONS, "dataset": "toy"})).data.datasets is None


def test_the_table_compares_all_systems_of_the_run():
    text = model_card(TRANSLATION, **OPTIONS)
    assert "| teacher | 37.25 | 60.5 | 400 | 1 |" in text
    assert "| **cmal** | 31.12 | 55.06 | 25 | 16 |" in text
    assert "batch 1, float32, cpu, 2 threads, mean over 100 inputs; speed-up over teacher" in text


def test_what_was_not_measured_is_not_on_the_card():
    text = model_card(CAPTIONING, **OPTIONS)
    for absent in ("chrF", "ROUGE", "latency", "speed-up"):
        assert absent not in text
    assert "| **cmal** | 1.25 | 0.75 | 0.375 |" in text


def test_metrics_that_share_a_signature_print_it_once():
    text = model_card(CAPTIONING, **OPTIONS)
    assert text.count("`bleu|n:1-4|smooth:coco`") == 1
    card = ModelCard(text)
    assert [entry.metric_name for entry in card.data.eval_results] == ["CIDEr", "BLEU-1", "BLEU-4"]
    assert card.data.eval_results[2].metric_args == {"signature": "bleu|n:1-4|smooth:coco"}


def test_the_usage_is_python_and_names_the_repository():
    for result in (TRANSLATION, CAPTIONING):
        usage = model_card(result, **OPTIONS).split("```python\n")[1].split("```")[0]
        compile(usage, "usage", "exec")
        assert '"me/nat-en-de"' in usage


def test_a_path_of_the_json_gives_the_same_card(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps(TRANSLATION))
    assert model_card(path, **OPTIONS) == model_card(TRANSLATION, **OPTIONS)


def without(system: dict, *keys: str) -> dict:
    return {**TRANSLATION, "systems": {"cmal": {k: v for k, v in system.items() if k not in keys}}}


@pytest.mark.parametrize(
    ("result", "options", "message"),
    [
        ({**TRANSLATION, "task": "chess"}, {}, "'chess'; legal values: translation, captioning"),
        (TRANSLATION, {"system": "xe"}, "system is 'xe'; the result has teacher, cmal"),
        (without(TRANSLATION["systems"]["cmal"], "chrf_signature"), {}, "without chrf_signature"),
        (without(TRANSLATION["systems"]["cmal"], "bleu", "chrf"), {}, "none of the metrics bleu"),
    ],
)
def test_a_result_that_cannot_be_shown_is_refused_with_the_reason(result, options, message):
    with pytest.raises(ValueError, match=message):
        model_card(result, **{**OPTIONS, **options})
