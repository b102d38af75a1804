"""A release is the trained model in a smaller folder, with nothing lost but the machine it was trained on."""

import contextlib
import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from hf_cmal.hub.card_facts import CardFacts, read_card_facts
from hf_cmal.hub.licences import APACHE_2, NON_COMMERCIAL_RESEARCH
from hf_cmal.hub.release import round_to_half, write_release
from hf_cmal.training.recipe import load_recipe
from tests.hub.fake_hub import fake_hub
from tests.hub.isolation import run_isolated
from tests.hub.trained import (
    BEAMS,
    EXAMPLE,
    SENTENCES,
    TRAINING_STATE,
    save_trained,
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
FILES = {
    "README.md",
    "LICENSE",
    "recipe.yaml",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def trained(tmp_path_factory, data) -> tuple[Path, dict[str, Any]]:
    """The folder that holds teacher/ and student/, and the result of measuring them."""
    folder = tmp_path_factory.mktemp("trained")
    return folder, save_trained(folder, data=data)


@pytest.fixture(autouse=True)
def _data_variable(monkeypatch, data):
    monkeypatch.setenv("HF_CMAL_DATA", str(data))


def options(result: dict, **changes: Any) -> dict[str, Any]:
    return {
        "result": result,
        "system": "nat_postprocess",
        "dataset": "bentrevett/multi30k",
        "languages": ["en", "de"],
        "license": NON_COMMERCIAL_RESEARCH,
        "domain": "coloured shapes",
        "example": EXAMPLE,
        **changes,
    }


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


def load(folder: Path) -> tuple[Any, Any]:
    return (
        AutoModelForSeq2SeqLM.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )


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


# --- what is refused ------------------------------------------------------------------------------------


def everything_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("student", {"system": "nat_xe"}, "system is 'nat_xe'; the result has teacher_greedy"),
        ("student", {"system": "teacher_beam"}, "'teacher_beam' is a teacher of .* holds a student of"),
        ("teacher", {"system": "nat"}, "'nat' is a student of .* holds a teacher of"),
        ("student", {"dataset": "books"}, "dataset is 'books'.*; give one of toy, bentrevett/multi30k"),
        ("student", {"domain": " "}, "domain is ' '; give a few words"),
        ("student", {"domain": "a\nb"}, "domain is 'a\\\\nb'; give a few words"),
        ("student", {"max_bytes": 10_000}, r"the weights are \d+ bytes .* max_bytes=10000; raise max_bytes"),
    ],
)
def test_what_cannot_be_released_is_refused_and_leaves_nothing(trained, tmp_path, name, changes, message):
    folder, result = trained
    with pytest.raises(ValueError, match=message):
        write_release(folder / name, tmp_path / "out" / "release", **options(result, **changes))
    assert left_in(tmp_path) == {}


def left_in(folder: Path) -> dict[str, bytes]:
    """All files, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def broken(trained, tmp_path) -> Path:
    """A copy of the trained folders that a test may spoil."""
    return shutil.copytree(trained[0], tmp_path / "broken")


def spoil(folder: Path, tensor: str, value: float, index: tuple[int, ...]) -> None:
    weights = load_file(folder / "model.safetensors")
    weights[tensor][index] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


BIAS = "model.encoder.layers.0.fc1.bias"


@pytest.mark.parametrize("name", ["student", "teacher"])
@pytest.mark.parametrize(("value", "shown"), [(65_520.0, "65520"), (-1e6, r"-1e\+06"), (float("nan"), "nan")])
def test_a_weight_that_half_precision_cannot_hold_is_named(trained, broken, tmp_path, name, value, shown):
    spoil(broken / name, BIAS, value, (3,))
    system = {"student": "nat", "teacher": "teacher_beam"}[name]
    with pytest.raises(ValueError, match=rf"^{BIAS} holds {shown}, which half precision cannot store.*65504"):
        write_release(broken / name, tmp_path / "out" / "release", **options(trained[1], system=system))
    assert left_in(tmp_path / "out") == {}


def test_the_largest_weight_of_half_precision_and_a_wanted_infinity_are_kept(broken):
    spoil(broken / "student", BIAS, 65_504.0, (3,))
    spoil(broken / "student", "final_logits_bias", -torch.inf, (0, 5))
    model, _ = load(broken / "student")
    assert round_to_half(model)
    assert model.state_dict()[BIAS][3] == 65_504.0
    assert model.state_dict()["final_logits_bias"][0, 5] == -torch.inf
    assert not round_to_half(model.float())  # nothing is left to round


def test_a_model_that_writes_nothing_is_not_released(trained, broken, tmp_path):
    spoil(broken / "teacher", "final_logits_bias", 1000.0, (0, 0))  # the eos first
    with pytest.raises(ValueError, match=rf"translates '{EXAMPLE}' to an empty text; give an example"):
        write_release(
            broken / "teacher", tmp_path / "out" / "release", **options(trained[1], system="teacher_beam")
        )
    assert left_in(tmp_path / "out") == {}


def test_a_path_of_this_machine_in_the_recipe_is_named(trained, tmp_path, monkeypatch, data):
    folder, result = trained
    for variable in (str(data / "own" / "more"), None):
        if variable is None:
            monkeypatch.delenv("HF_CMAL_DATA")
        else:
            monkeypatch.setenv("HF_CMAL_DATA", variable)
        with pytest.raises(ValueError) as caught:
            write_release(folder / "student", tmp_path / "release", **options(result))
        assert f"data.train[0] is {str(data / 'own' / 'train.en')!r}, a path of this machine" in str(
            caught.value
        )
        assert f"set HF_CMAL_DATA (now {variable!r})" in str(caught.value)
    assert left_in(tmp_path) == {}


def test_a_folder_that_is_missing_or_holds_no_model_is_an_error(trained, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder '.*nowhere'; give one that a training"):
        write_release(tmp_path / "nowhere", tmp_path / "release", **options(trained[1]))
    (tmp_path / "empty").mkdir()
    with pytest.raises(OSError, match="'.*empty' holds no model that can be opened"):
        write_release(tmp_path / "empty", tmp_path / "release", **options(trained[1]))


@pytest.mark.parametrize("missing", ["parameters", "num_beams", "remove_consecutive_duplicates"])
def test_a_result_that_does_not_say_how_it_was_measured_is_refused(trained, tmp_path, missing):
    folder, result = trained
    systems = {
        name: {key: value for key, value in scores.items() if key != missing}
        for name, scores in result["systems"].items()
    }
    with pytest.raises(ValueError, match=f"The result lacks {missing} of 'nat_postprocess'; `hf-cmal eval"):
        write_release(folder / "student", tmp_path / "out", **options({**result, "systems": systems}))


# --- what is in the way ---------------------------------------------------------------------------------


def test_an_earlier_release_is_replaced(trained, tmp_path):
    folder, result = trained
    output = tmp_path / "release"
    write_release(folder / "student", output, **options(result, notes="The first."))
    write_release(folder / "teacher", output, **options(result, system="teacher_beam", notes="The second."))
    assert {path.name for path in output.iterdir()} == FILES
    assert "The second." in (output / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["release"]


def test_an_earlier_release_stays_when_the_next_one_fails(trained, tmp_path):
    folder, result = trained
    output = write_release(folder / "student", tmp_path / "release", **options(result))
    before = left_in(tmp_path)
    with pytest.raises(ValueError, match="max_bytes=10"):
        write_release(folder / "student", output, **options(result, max_bytes=10))
    assert left_in(tmp_path) == before


def test_an_empty_folder_is_filled(trained, tmp_path):
    (tmp_path / "release").mkdir()
    write_release(trained[0] / "student", tmp_path / "release", **options(trained[1]))
    assert (tmp_path / "release" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("stranger", "message"),
    [
        ("notes.txt", "holds 'notes.txt', which no release holds"),
        ("checkpoint-10/model.safetensors", "holds 'checkpoint-10/', which no release holds"),
    ],
)
def test_a_release_to_which_something_was_added_is_left_alone(trained, tmp_path, stranger, message):
    folder, result = trained
    output = write_release(folder / "student", tmp_path / "release", **options(result))
    (output / stranger).parent.mkdir(exist_ok=True)
    (output / stranger).write_text("mine")
    before = left_in(tmp_path)
    with pytest.raises(FileExistsError, match=f"{message}; give another output"):
        write_release(folder / "student", output, **options(result))
    assert left_in(tmp_path) == before


def test_a_trained_folder_is_never_replaced(trained, tmp_path):
    folder, result = trained
    own = shutil.copytree(folder / "student", tmp_path / "own")
    with pytest.raises(FileExistsError, match="'checkpoint-10/', which no release holds"):
        write_release(own, own, **options(result))
    for name in ("checkpoint-10", "tokenizer"):
        shutil.rmtree(own / name)
    for name in ("trainer_state.json", "training_args.bin"):
        (own / name).unlink()
    # now it looks like a release but for the card
    with pytest.raises(FileExistsError, match="but no card of a release; give another output, or empty it"):
        write_release(own, own, **options(result))
    assert (own / "model.safetensors").read_bytes() == (folder / "student" / "model.safetensors").read_bytes()


def test_an_output_that_is_a_file_is_an_error(trained, tmp_path):
    (tmp_path / "release").write_text("mine")
    with pytest.raises(FileExistsError, match="release' is a file; give a folder"):
        write_release(trained[0] / "student", tmp_path / "release", **options(trained[1]))
    assert (tmp_path / "release").read_text() == "mine"
