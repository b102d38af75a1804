"""A release is the trained model in a smaller folder, with nothing lost but the machine it was trained on."""

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, pipeline

from hf_cmal.hub.card_facts import CardFacts, read_card_facts
from hf_cmal.hub.licences import APACHE_2
from hf_cmal.hub.release import write_release
from hf_cmal.training.recipe import load_recipe
from tests.hub.fake_hub import fake_hub
from tests.hub.isolation import run_isolated
from tests.hub.trained import (
    BEAMS,
    EXAMPLE,
    FILES,
    SENTENCES,
    TRAINING_STATE,
    load,
    options,
    save_trained_captioners,
)

NAMES = {"student": "tiny-student", "teacher": "tiny-teacher", "captioner": "tiny-captioner"}
STUDENT_CODE = {
    "configuration_nag.py",
    "generation_nag.py",
    "modeling_nag.py",
    "pipeline_nag.py",
    "sequences_nag.py",
}

pytestmark = pytest.mark.usefixtures("data_variable")


@pytest.fixture(scope="module")
def home(tmp_path_factory, trained, data) -> Path:
    """A folder that holds model_cards/ with both releases, as a clone does."""
    folder, result = trained
    home = tmp_path_factory.mktemp("clone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_CMAL_DATA", str(data))
        write_release(folder / "student", home / "model_cards" / NAMES["student"], **options(result))
        write_release(
            folder / "teacher",
            home / "model_cards" / NAMES["teacher"],
            **options(result, system="teacher_beam", license=APACHE_2, dataset="toy"),
        )
    return home


def release_of(home: Path, name: str) -> Path:
    return home / "model_cards" / NAMES[name]


def rounded(folder: Path) -> Any:
    """The trained model with weights rounded by numpy."""
    model, _ = load(folder)
    weights = {
        name: torch.from_numpy(tensor.numpy().astype(np.float16).astype(np.float32))
        for name, tensor in load_file(folder / "model.safetensors").items()
    }
    assert not model.load_state_dict(weights, strict=False).unexpected_keys
    model.tie_weights()
    return model


def decode(model: Any, tokenizer: Any, **settings: Any) -> list[str]:
    inputs = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    return tokenizer.batch_decode(model.generate(**inputs, **settings), skip_special_tokens=True)


# --- the model ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "system", "measured", "other"),
    [
        (
            "student",
            "nat_postprocess",
            {"remove_consecutive_duplicates": True},
            {"remove_consecutive_duplicates": False},
        ),
        (
            "student",
            "nat",
            {"remove_consecutive_duplicates": False},
            {"remove_consecutive_duplicates": True},
        ),
        ("teacher", "teacher_beam", {"num_beams": BEAMS}, {"num_beams": 1}),
        ("teacher", "teacher_greedy", {"num_beams": 1}, {"num_beams": BEAMS}),
    ],
)
def test_a_release_decodes_by_default_as_its_system_was_measured(
    trained, tmp_path, name, system, measured, other
):
    folder, result = trained
    release = write_release(folder / name, tmp_path / "release", **options(result, system=system))
    expected = rounded(folder / name)
    model, tokenizer = load(release)
    assert decode(model, tokenizer) == decode(expected, tokenizer, **measured)
    assert decode(model, tokenizer) != decode(expected, tokenizer, **other)


@pytest.mark.parametrize("name", ["student", "teacher"])
def test_all_weights_are_those_of_the_trained_model_rounded_to_half_precision(trained, home, name):
    folder, _ = trained
    model, expected = load(release_of(home, name))[0].state_dict(), rounded(folder / name).state_dict()
    original = load(folder / name)[0].state_dict()
    assert model.keys() == expected.keys()
    assert all(torch.equal(model[key], expected[key]) for key in expected)
    assert not all(torch.equal(model[key], original[key]) for key in original)


@pytest.mark.parametrize("name", ["student", "teacher"])
def test_half_precision_lies_on_the_disk_and_float32_in_memory(home, name):
    release = release_of(home, name)
    assert {tensor.dtype for tensor in load_file(release / "model.safetensors").values()} == {torch.float16}
    assert {tensor.dtype for tensor in load(release)[0].parameters()} == {torch.float32}
    translate = pipeline("nag-translation", model=str(release), device="cpu")
    assert {tensor.dtype for tensor in translate.model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", ["student", "teacher"])
def test_the_file_holds_the_same_tensors_in_half_the_bytes(trained, home, name):
    before = trained[0] / name / "model.safetensors"
    after = release_of(home, name) / "model.safetensors"
    # a tied matrix that were stored twice would be one name more
    assert load_file(after).keys() == load_file(before).keys()
    values = sum(tensor.numel() for tensor in load_file(before).values())
    assert before.stat().st_size - after.stat().st_size == pytest.approx(2 * values, abs=100)


def test_the_pipeline_of_a_released_student_postprocesses_by_default(trained, home):
    folder, _ = trained
    translate = pipeline("nag-translation", model=str(release_of(home, "student")), device="cpu")
    model, tokenizer = rounded(folder / "student"), translate.tokenizer
    assert [row["translation_text"] for row in translate(SENTENCES)] == [
        tokenizer.decode(
            model.generate(**tokenizer(text, return_tensors="pt"), remove_consecutive_duplicates=True)[0],
            skip_special_tokens=True,
        )
        for text in SENTENCES
    ]


@pytest.mark.parametrize("name", ["student", "teacher"])
def test_a_released_captioner_decodes_as_the_trained_one(tmp_path, name):
    result = save_trained_captioners(tmp_path)
    system = {"student": "nat_postprocess", "teacher": "teacher_beam"}[name]
    release = write_release(
        tmp_path / name, release_of(tmp_path, "captioner"), **options(result, system=system, dataset="toy")
    )
    model = AutoModelForImageTextToText.from_pretrained(release).eval()
    original = AutoModelForImageTextToText.from_pretrained(tmp_path / name).eval()
    features = torch.randn(4, 3, model.config.feature_size, generator=torch.Generator().manual_seed(0))
    settings = {
        "student": {"remove_consecutive_duplicates": True},
        "teacher": {"num_beams": BEAMS},
    }[name]
    expected = original.half().float().generate(features=features, **settings)
    assert model.generate(features=features).tolist() == expected.tolist()
    assert "recipe.yaml" not in (release / "README.md").read_text()
    assert printed(snippet_of(tmp_path, "captioner"), cwd=tmp_path).startswith("['")


# --- the folder -----------------------------------------------------------------------------------------


def test_a_release_holds_what_a_reader_needs_and_nothing_of_the_training(home):
    names = {path.name for path in release_of(home, "student").iterdir()}
    assert names == FILES | STUDENT_CODE
    assert {path.name for path in release_of(home, "teacher").iterdir()} == FILES
    assert not names & {name.split("/")[0] for name in TRAINING_STATE}


@pytest.mark.parametrize("name", ["student", "teacher"])
def test_no_file_names_a_place_of_this_machine(trained, home, data, name):
    for path in release_of(home, name).iterdir():
        content = path.read_bytes()
        for place in (trained[0], home, data, Path.home() / "x"):
            assert str(place).encode() not in content, path.name
        assert b"local_files_only" not in content


def test_the_recipe_is_that_of_the_training_with_its_data_wherever_they_lie(
    trained, home, data, tmp_path, monkeypatch
):
    before = load_recipe(trained[0] / "student" / "recipe.yaml")
    released = release_of(home, "student") / "recipe.yaml"
    assert load_recipe(released) == before
    assert before.data.train == (str(data / "own" / "train.en"), str(data / "own" / "train.de"))
    monkeypatch.setenv("HF_CMAL_DATA", "elsewhere")
    assert load_recipe(released).data.train == ("elsewhere/own/train.en", "elsewhere/own/train.de")


def test_a_release_that_is_released_again_stays_the_same(trained, home, tmp_path):
    first = release_of(home, "student")
    again = write_release(first, tmp_path / "model_cards" / NAMES["student"], **options(trained[1]))
    for name in (FILES | STUDENT_CODE) - {"README.md"}:
        assert (again / name).read_bytes() == (first / name).read_bytes(), name
    # its weights were half precision before, so nothing is rounded any more
    rounding = " The scores above are those of the weights before this rounding."
    assert (first / "README.md").read_text() == (again / "README.md").read_text().replace(
        '(`"dtype"` in `config.json`).', f'(`"dtype"` in `config.json`).{rounding}'
    )


@pytest.mark.slow
def test_a_release_is_pushed_whole(home, tmp_path):
    release = release_of(home, "student")
    code = f"""
import json, hf_cmal
print(json.dumps(hf_cmal.push_to_hub({str(release)!r}, "me/student")))
"""
    with fake_hub() as hub:
        variables = {
            "HF_ENDPOINT": hub.url,
            "HF_TOKEN": "hf_test",
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1",
        }
        run_isolated(code, hidden=[], home=tmp_path, environment=variables)
        pushed = hub.repos["me/student"]
    assert {name: pushed[name] for name in FILES | STUDENT_CODE} == {
        path.name: path.read_bytes() for path in release.iterdir()
    }


# --- the card -------------------------------------------------------------------------------------------


def card_of(home: Path, name: str) -> str:
    return (release_of(home, name) / "README.md").read_text(encoding="utf-8")


def snippet_of(home: Path, name: str) -> str:
    return card_of(home, name).split("```python\n")[1].split("```")[0]


def printed(snippet: str, *, cwd: Path) -> str:
    """What a snippet prints in this process, where hf_cmal is imported."""
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.chdir(cwd):
        exec(snippet, {})
    return output.getvalue()


@pytest.mark.parametrize(("name", "system"), [("student", "nat_postprocess"), ("teacher", "teacher_beam")])
def test_the_model_index_holds_exactly_the_scores_and_signatures_of_the_system(trained, home, name, system):
    scores = trained[1]["systems"][system]
    card = ModelCard(card_of(home, name))
    assert {(entry.metric_value, entry.metric_args["signature"]) for entry in card.data.eval_results} == {
        (scores[key.removesuffix("_signature")], value)
        for key, value in scores.items()
        if key.endswith("_signature")
    }
    assert len(card.data.eval_results) == 3
    assert card.data.model_name == NAMES[name]


def test_the_front_matter_says_licence_domain_and_kind(home):
    student, teacher = (ModelCard(card_of(home, name)).data for name in ("student", "teacher"))
    assert (student.license, student.license_name, student.license_link) == (
        "other",
        "non-commercial-research",
        "LICENSE",
    )
    assert (teacher.license, teacher.license_name, teacher.license_link) == ("apache-2.0", None, None)
    assert student.get("domain") == teacher.get("domain") == "coloured shapes"
    assert "non-autoregressive" in student.tags and "cmal" in student.tags
    assert "non-autoregressive" not in teacher.tags and "cmal" not in teacher.tags
    assert student.datasets == ["bentrevett/multi30k"] and teacher.datasets is None
    assert student.pipeline_tag == teacher.pipeline_tag == "translation"
    assert student.language == ["en", "de"]


def test_the_card_gives_the_command_line_its_facts(home):
    assert read_card_facts(release_of(home, "student")) == CardFacts(
        NAMES["student"], "coloured shapes", "non-commercial-research"
    )
    assert read_card_facts(release_of(home, "teacher")) == CardFacts(
        NAMES["teacher"], "coloured shapes", "apache-2.0"
    )


def test_card_and_licence_name_the_data_its_authors_and_what_may_be_done(home):
    card = card_of(home, "student")
    licence = (release_of(home, "student") / "LICENSE").read_text()
    for text in (card, " ".join(licence.split())):
        assert "Multi30k" in text and "Flickr30k" in text and "Elliott" in text
        assert "non-commercial research only" in text
    assert "Apache License" in licence and "without warranty" in licence and "attributed" in licence
    assert "Fast Sequence Generation with Multi-Agent Reinforcement Learning" in card
    assert "Multi30K: Multilingual English-German Image Descriptions" in card
    other = card_of(home, "teacher") + (release_of(home, "teacher") / "LICENSE").read_text()
    assert "Multi30" not in other and "non-commercial" not in other and "Flickr" not in other


def test_the_card_quotes_the_measured_repetition_and_the_defaults(home):
    assert "21.4 % of the tokens" in card_of(home, "student")
    assert "as **nat_postprocess** was measured (remove_consecutive_duplicates true)" in card_of(
        home, "student"
    )
    assert "1.2 % of the tokens" in card_of(home, "teacher")
    assert f"(num_beams {BEAMS}, do_sample false)" in card_of(home, "teacher")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["student", "teacher"])
def test_the_snippet_of_the_card_runs_where_hf_cmal_is_not_installed(trained, home, name):
    snippet = snippet_of(home, name)
    code = f"""
import contextlib, io, json
try:
    import hf_cmal
except ModuleNotFoundError:
    pass
else:
    raise AssertionError("hf_cmal is importable, so this process proves nothing")
with contextlib.redirect_stdout(io.StringIO()) as output:
    exec({snippet!r}, {{}})
print(json.dumps(output.getvalue()))
"""
    # its working directory holds model_cards/, as a clone does
    without = run_isolated(code, hidden=["hf_cmal"], home=home)
    assert without == printed(snippet, cwd=home)
    model, tokenizer = load(release_of(home, name))
    expected = tokenizer.decode(
        model.generate(**tokenizer(EXAMPLE, return_tensors="pt"))[0], skip_special_tokens=True
    )
    assert expected
    assert without == str([{"translation_text": expected}] if name == "student" else [expected]) + "\n"


def test_a_hub_id_that_is_given_is_the_one_in_the_code(trained, tmp_path):
    release = write_release(
        trained[0] / "student", tmp_path / "out", **options(trained[1], repo_id="me/nat", base_model="me/ag")
    )
    card = (release / "README.md").read_text()
    assert 'model="me/nat"' in card and "hf-cmal translate --model me/nat" in card
    assert ModelCard(card).data.base_model == "me/ag"
