"""A card says what the result says, and nothing else."""

import json
import re
from importlib import metadata
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from hf_cmal import model_card
from hf_cmal.hub.model_card import METRICS

RECIPES = Path(__file__).resolve().parents[2] / "recipes"

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
            "kind": "teacher",
            "bleu": 37.25,
            "bleu_signature": "nrefs:1|tok:13a",
            "chrf": 60.5,
            "chrf_signature": "nrefs:1|nc:6",
            "latency_ms": 400.0,
            "speedup": 1.0,
        },
        "cmal": {
            "kind": "student",
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
            "kind": "student",
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


@pytest.mark.parametrize(
    "path", sorted(RECIPES.rglob("results/*.json")), ids=lambda path: path.relative_to(RECIPES).as_posix()
)
def test_every_score_of_the_projects_results_has_a_place_on_the_card(path):
    result = json.loads(path.read_text())
    for scores in result["systems"].values():
        scored = {key.removesuffix("_signature") for key in scores if key.endswith("_signature")}
        shown = {signature.removesuffix("_signature") for _, _, signature in METRICS.values()}
        assert scored and scored <= shown


def test_no_card_speaks_of_a_training_that_its_recipe_does_not_name():
    def card(recipe):
        return model_card(TRANSLATION, **OPTIONS, recipe=recipe)

    unknown, words, teacher_words, cmal = (
        card(None),
        card({"stage": "student_xe", "pseudo_targets": None}),
        card({"stage": "student_xe", "pseudo_targets": "outputs/03"}),
        card({"stage": "cmal"}),
    )
    assert "multi-agent learning" in cmal and "cmal" in ModelCard(cmal).data.tags
    for text in (unknown, words, teacher_words):
        assert "multi-agent learning" not in text and "cmal" not in ModelCard(text).data.tags
    other = card({"stage": "cmal", "training": {"estimator": "all_action"}})
    assert "estimated by `all_action`, in place of" in other
    assert "in place of" not in cmal
    assert "in place of" not in card({"stage": "cmal", "training": {"estimator": "counterfactual"}})
    assert "word by word (cross-entropy) on the sentences of the data set" in words
    assert "word by word (cross-entropy) on its teacher's outputs" in teacher_words
    assert "recipe.yaml" not in unknown and "recipe.yaml" in words


def test_a_teachers_card_is_not_that_of_a_student():
    text = model_card(TRANSLATION, **{**OPTIONS, "system": "teacher"})
    assert "An autoregressive Transformer" in text and "trust_remote_code" not in text
    assert "A non-autoregressive Transformer" not in text
    assert "autoregressive" in ModelCard(text).data.tags
    assert "trust_remote_code=True" in model_card(TRANSLATION, **OPTIONS)


def test_an_example_with_quotes_stays_one_string():
    text = model_card(TRANSLATION, **OPTIONS, example='"It\'s {here}", she says.')
    usage = text.split("```python\n")[1].split("```")[0]
    compile(usage, "usage", "exec")
    assert r"""translate("\"It's {here}\", she says.")""" in usage
    assert """'"It'"'"'s {here}", she says.'""" in text.split("```bash\n")[1].split("```")[0]


def test_the_card_asks_for_the_transformers_that_the_package_asks_for():
    needed = next(line for line in metadata.requires("hf-cmal") if line.startswith("transformers"))
    version = re.search(r">=([\d.]+)", needed)[1]
    assert f"transformers {version} or newer" in model_card(TRANSLATION, **OPTIONS)


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
        (
            {**TRANSLATION, "systems": {"cmal": {"bleu": 1.0}}},
            {},
            "kind of 'cmal' is None; legal values: stud",
        ),
        (TRANSLATION, {"dataset": "books"}, "dataset is 'books'.*give one of toy, bentrevett/multi30k"),
        (TRANSLATION, {"recipe": {"stage": "evaluate"}}, "stage is 'evaluate'; a stage that trains a model"),
        (TRANSLATION, {"system": "xe"}, "system is 'xe'; the result has teacher, cmal"),
        (without(TRANSLATION["systems"]["cmal"], "chrf_signature"), {}, "without chrf_signature"),
        (without(TRANSLATION["systems"]["cmal"], "bleu", "chrf"), {}, "none of the metrics bleu"),
    ],
)
def test_a_result_that_cannot_be_shown_is_refused_with_the_reason(result, options, message):
    with pytest.raises(ValueError, match=message):
        model_card(result, **{**OPTIONS, **options})
