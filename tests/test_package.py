"""`import hf_cmal`: what it registers, what it offers, and what it leaves alone."""

import tomllib
from pathlib import Path

import pytest
from transformers import AutoConfig, AutoModel, AutoModelForImageTextToText, AutoModelForSeq2SeqLM
from transformers.pipelines import PIPELINE_REGISTRY

import hf_cmal
from tests.hub.checkpoints import SIZES, TEXTS, save_checkpoints
from tests.hub.isolation import run_isolated

TRAINING_ONLY = ["accelerate", "datasets", "evaluate", "numba", "omegaconf", "pycocoevalcap", "sacrebleu"]


@pytest.mark.parametrize("name", hf_cmal.__all__)
def test_every_public_name_is_there(name):
    assert getattr(hf_cmal, name) is not None
    assert name in dir(hf_cmal)


def test_an_unknown_name_is_an_attribute_error_that_lists_the_public_ones():
    with pytest.raises(AttributeError, match="no attribute 'NagTrainer'; public names: NagConfig, "):
        hf_cmal.NagTrainer  # noqa: B018


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert hf_cmal.__version__ == project["version"]


def test_the_auto_classes_know_both_model_types():
    student = AutoConfig.for_model("cmal_nag", **SIZES)
    captioner = AutoConfig.for_model("cmal_nag", **SIZES, feature_size=4)
    teacher = AutoConfig.for_model("cmal_nag_teacher", **SIZES, feature_size=4)
    assert type(AutoModel.from_config(student)) is hf_cmal.NagModel
    assert type(AutoModelForSeq2SeqLM.from_config(student)) is hf_cmal.NagForTranslation
    assert type(AutoModelForImageTextToText.from_config(captioner)) is hf_cmal.NagForCaptioning
    assert type(AutoModelForImageTextToText.from_config(teacher)) is hf_cmal.NagTeacherForCaptioning
    with pytest.raises(ValueError, match="NagTeacherConfig"):
        AutoModelForSeq2SeqLM.from_config(teacher)


def test_the_pipeline_registry_knows_the_translation_task():
    _, task, _ = PIPELINE_REGISTRY.check_task("nag-translation")
    assert task["impl"] is hf_cmal.NagTranslationPipeline
    assert task["pt"] == (AutoModelForSeq2SeqLM,)


def test_a_translator_runs_where_no_training_dependency_is_installed(tmp_path):
    expected = save_checkpoints(tmp_path)["inferred"]
    code = f"""
import json, sys
import hf_cmal
from transformers import pipeline
translate = pipeline("nag-translation", model={str(tmp_path / "translator")!r}, device="cpu")
rooms = sorted(name for name in sys.modules if name.startswith("hf_cmal.") and ".models" not in name)
print(json.dumps([translate({TEXTS!r}), rooms]))
"""
    answers, rooms = run_isolated(code, hidden=TRAINING_ONLY, home=tmp_path)
    assert answers == expected
    assert rooms == []
