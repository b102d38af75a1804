"""Which model a command takes when it is told none, and how it names it."""

import pytest

from hf_cmal.cli import default_model
from hf_cmal.cli.default_model import MODEL_VARIABLE, STUDENT, describe_model, find_model, published

CARD = """---
license: other
license_name: research-only
model-index:
- name: tiny-nag
  results: []
domain: descriptions of shapes
---
# tiny
"""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A clone with a published student, and no model in the environment."""
    monkeypatch.setattr(default_model, "CLONE", tmp_path / "clone")
    monkeypatch.delenv(MODEL_VARIABLE, raising=False)
    folder = tmp_path / "clone" / "model_cards" / STUDENT
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    return folder


def test_the_one_asked_for_goes_before_the_environments_before_the_clones(clone, monkeypatch):
    assert find_model(None) == str(clone)
    monkeypatch.setenv(MODEL_VARIABLE, "of/environment")
    assert find_model(None) == "of/environment"
    assert find_model("given") == "given"


def test_without_any_the_error_says_how_to_get_one(clone):
    (clone / "config.json").unlink()
    assert published(STUDENT) is None
    with pytest.raises(
        ValueError, match=rf"--model FOLDER.*{MODEL_VARIABLE}.*model_cards.*hf-cmal run recipes"
    ):
        find_model(None)


def test_the_line_has_the_cards_name_domain_and_licence(clone):
    (clone / "README.md").write_text(CARD)
    assert describe_model(str(clone)) == "tiny-nag, for descriptions of shapes; licence: research-only"


def test_a_folder_without_card_is_named_and_the_rest_is_said_to_be_unknown(clone):
    assert describe_model(str(clone)) == f"{STUDENT} (it has no card that names its domain and licence)"
