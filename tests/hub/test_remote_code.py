"""A saved folder carries all that it needs: it answers the same where hf_cmal is not installed."""

import ast
import json
from pathlib import Path

import pytest
from transformers import pipeline

import hf_cmal
from tests.hub.checkpoints import ANSWERS, TEXTS, save_checkpoints
from tests.hub.isolation import run_isolated

STUDENT_CODE = {
    "configuration_nag.py",
    "generation_nag.py",
    "modeling_nag.py",
    "pipeline_nag.py",
    "sequences_nag.py",
}
TEACHER_CODE = STUDENT_CODE | {"configuration_nag_teacher.py", "modeling_nag_teacher.py"}
CODE = {"translator": STUDENT_CODE, "student": STUDENT_CODE, "teacher": TEACHER_CODE}
# Beside its own files, a checkpoint may import these; another package would have to be installed first.
ALLOWED_IMPORTS = {"torch", "transformers", "huggingface_hub"}


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("saved")
    return folder, save_checkpoints(folder)


@pytest.fixture(scope="module")
def without_hf_cmal(saved, tmp_path_factory) -> dict:
    """Answers of a fresh process, and of the translator after that process saved it again."""
    folder, _ = saved
    names = [str(folder / name) for name in CODE]
    again = str(folder / "again")
    code = f"""{ANSWERS}
TEXTS = {TEXTS!r}
first = answers(*{names!r})
AutoModelForSeq2SeqLM.from_pretrained({names[0]!r}, trust_remote_code=True).save_pretrained({again!r})
AutoTokenizer.from_pretrained({names[0]!r}, trust_remote_code=False).save_pretrained({again!r})
second = answers({again!r}, *{names[1:]!r})
print(json.dumps([first, second]))
"""
    first, second = run_isolated(code, hidden=["hf_cmal"], home=tmp_path_factory.mktemp("home"))
    return {"first": first, "again": second}


@pytest.mark.parametrize("name", CODE)
def test_a_folder_carries_exactly_the_code_it_needs(saved, name):
    folder, _ = saved
    assert {path.name for path in (folder / name).glob("*.py")} == CODE[name]


@pytest.mark.parametrize("name", CODE)
def test_the_code_of_a_folder_is_that_of_the_package(saved, name):
    folder, _ = saved
    package = Path(hf_cmal.__file__).parent / "models" / "nag"
    for file in CODE[name]:
        assert (folder / name / file).read_bytes() == (package / file).read_bytes()


def test_the_answers_differ_between_inputs_so_that_equal_answers_mean_something(saved):
    _, expected = saved
    for answer in ("tokens", "captions", "beam"):
        first, second = expected[answer][:2]
        assert first != second
    assert expected["inferred"] != expected["named"]


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["tokens", "inferred", "named", "captions", "beam", "classes"])
def test_a_fresh_process_without_hf_cmal_gives_the_same_answers(saved, without_hf_cmal, answer):
    _, expected = saved
    assert without_hf_cmal["first"][answer] == expected[answer]


@pytest.mark.slow
def test_a_translator_saved_again_without_hf_cmal_is_as_complete_as_the_first(saved, without_hf_cmal):
    folder, expected = saved
    assert without_hf_cmal["again"] == expected
    assert {path.name for path in (folder / "again").glob("*.py")} == STUDENT_CODE
    configs = [json.loads((folder / name / "config.json").read_text()) for name in ("translator", "again")]
    assert configs[0] == configs[1]


def test_where_hf_cmal_is_imported_the_pipeline_needs_no_trust_in_remote_code(saved):
    folder, expected = saved
    for trust in (None, True):
        translate = pipeline(
            "nag-translation", model=str(folder / "translator"), trust_remote_code=trust, device="cpu"
        )
        assert type(translate) is hf_cmal.NagTranslationPipeline
        assert type(translate.model) is hf_cmal.NagForTranslation
        assert translate(TEXTS, remove_consecutive_duplicates=True) == expected["named"]


def test_the_pipeline_saves_a_folder_as_complete_as_the_models(saved, tmp_path):
    folder, _ = saved
    translate = pipeline("nag-translation", model=str(folder / "translator"), device="cpu")
    translate.save_pretrained(tmp_path)
    names = {path.name for path in (folder / "translator").iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert json.loads((tmp_path / "config.json").read_text()) == json.loads(
        (folder / "translator" / "config.json").read_text()
    )


def test_only_a_translator_names_a_pipeline(saved):
    folder, _ = saved
    named = [name for name in CODE if "custom_pipelines" in (folder / name / "config.json").read_text()]
    assert named == ["translator"]


@pytest.mark.parametrize("file", sorted(TEACHER_CODE))
def test_shipped_code_imports_its_own_folder_and_what_every_user_has(file):
    """transformers copies what `from .x import y` reaches; it sees neither `..x` nor `from . import x`."""
    source = (Path(hf_cmal.__file__).parent / "models" / "nag" / file).read_text()
    standard = {"collections", "copy", "dataclasses", "json", "math", "os", "pathlib", "typing", "warnings"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            assert {alias.name.split(".")[0] for alias in node.names} <= ALLOWED_IMPORTS | standard
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            assert node.module.split(".")[0] in ALLOWED_IMPORTS | standard
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 1
            assert f"{node.module}.py" in TEACHER_CODE
