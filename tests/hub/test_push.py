"""Pushing to and pulling from a Hub on this machine, with the real client on both sides."""

import json
from pathlib import Path

import pytest

import hf_cmal
from tests.hub.checkpoints import ANSWERS, TEXTS, save_checkpoints
from tests.hub.fake_hub import FakeHub, fake_hub
from tests.hub.isolation import run_isolated

# The checkpoints are pushed by one fresh process and pulled by another.
pytestmark = pytest.mark.slow

CARD = "---\nlicense: apache-2.0\n---\n# Pushed\n"
LEFT_BEHIND = [
    "training_args.bin",
    "optimizer.pt",
    "optimizer.bin",
    "scheduler.pt",
    "rng_state_0.pth",
    "trainer_state.json",
    "checkpoint-10/model.safetensors",
    "runs/events",
    "document_frequencies.safetensors",
]


def hub_variables(hub: FakeHub) -> dict[str, str]:
    return {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_test", "HF_HUB_OFFLINE": "0", "NO_PROXY": "127.0.0.1"}


@pytest.fixture(scope="module")
def pushed(tmp_path_factory) -> tuple[FakeHub, Path, dict, list[str]]:
    """A hub with the three checkpoints, the folder they came from, their answers, what push returned."""
    folder = tmp_path_factory.mktemp("saved")
    expected = save_checkpoints(folder)
    for name in LEFT_BEHIND:
        (folder / "translator" / name).parent.mkdir(exist_ok=True)
        (folder / "translator" / name).write_text("left behind")
    (folder / "translator" / "README.md").write_text("replaced by the card")
    (folder / "translator" / "recipe.yaml").write_text("seed: 1\n")
    (folder / "student" / "README.md").write_text("the folder's own card")
    code = f"""
import json
import hf_cmal
from transformers import AutoModelForImageTextToText, AutoTokenizer
urls = [
    hf_cmal.push_to_hub({str(folder / "translator")!r}, "me/translator", card={CARD!r}, private=True),
    hf_cmal.push_to_hub({str(folder / "student")!r}, "me/student"),
]
# transformers' own way
AutoModelForImageTextToText.from_pretrained({str(folder / "teacher")!r}).push_to_hub("me/teacher")
# and once more, into a repository that exists
urls.append(hf_cmal.push_to_hub({str(folder / "student")!r}, "me/student"))
print(json.dumps(urls))
"""
    with fake_hub() as hub:
        home = tmp_path_factory.mktemp("push")
        urls = run_isolated(code, hidden=[], home=home, environment=hub_variables(hub))
        yield hub, folder, expected, urls


@pytest.fixture(scope="module")
def pulled(pushed, tmp_path_factory) -> dict:
    """The answers of a fresh process with an empty cache and without hf_cmal."""
    hub, *_ = pushed
    code = f"""{ANSWERS}
TEXTS = {TEXTS!r}
print(json.dumps(answers("me/translator", "me/student", "me/teacher")))
"""
    home = tmp_path_factory.mktemp("pull")
    return run_isolated(code, hidden=["hf_cmal"], home=home, environment=hub_variables(hub))


@pytest.mark.parametrize("answer", ["tokens", "inferred", "named", "captions", "beam", "classes"])
def test_what_is_pulled_without_hf_cmal_answers_as_what_was_pushed(pushed, pulled, answer):
    _, _, expected, _ = pushed
    assert pulled[answer] == expected[answer]


def test_the_hub_received_the_folder_without_the_training_state(pushed):
    hub, folder, *_ = pushed
    kept = {path.name for path in (folder / "translator").iterdir() if path.is_file()} - set(LEFT_BEHIND)
    assert set(hub.repos["me/translator"]) - {".gitattributes"} == kept
    assert {"recipe.yaml", "README.md", "model.safetensors", "tokenizer.json", "pipeline_nag.py"} <= kept


def test_files_arrive_unchanged(pushed):
    hub, folder, *_ = pushed
    for name in ("model.safetensors", "config.json", "pipeline_nag.py"):
        assert hub.repos["me/translator"][name] == (folder / "translator" / name).read_bytes()


def test_a_given_card_replaces_the_folders_and_leaves_the_folder_alone(pushed):
    hub, folder, *_ = pushed
    assert hub.repos["me/translator"]["README.md"].decode() == CARD
    assert (folder / "translator" / "README.md").read_text() == "replaced by the card"
    assert hub.repos["me/student"]["README.md"].decode() == "the folder's own card"


def test_a_new_repository_is_private_only_on_request(pushed):
    hub, *_ = pushed
    assert hub.private == {"me/translator": True, "me/student": False, "me/teacher": False}


def test_push_returns_the_address_of_the_commit_also_the_second_time(pushed):
    hub, _, _, urls = pushed
    assert urls[0].startswith(f"{hub.url}/me/translator/commit/")
    assert urls[1].startswith(f"{hub.url}/me/student/commit/")
    assert urls[2].startswith(f"{hub.url}/me/student/commit/")


def test_the_client_asked_the_fake_hub_for_nothing_it_does_not_know(pushed, pulled):
    hub, *_ = pushed
    # Of the repositories, that is: what else a client wants to know of the Hub depends on where it runs.
    assert [request for request in hub.unknown_requests if "/me/" in request] == []


def test_a_folder_without_config_is_not_pushed(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"config\.json does not exist"):
        hf_cmal.push_to_hub(tmp_path, "me/nothing")


def test_a_folder_whose_code_is_missing_is_not_pushed(tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps({"auto_map": {"AutoConfig": "configuration_nag.NagConfig"}})
    )
    with pytest.raises(FileNotFoundError, match=r"config\.json names configuration_nag\.py"):
        hf_cmal.push_to_hub(tmp_path, "me/nothing")
