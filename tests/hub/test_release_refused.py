"""What is not released: the reason is said, and nothing is left behind or overwritten."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_cmal.hub.licences import APACHE_2
from hf_cmal.hub.release import round_to_half, write_release
from tests.hub.trained import EXAMPLE, FILES, load, options

pytestmark = pytest.mark.usefixtures("data_variable")


def everything_below(folder: Path) -> dict[str, bytes]:
    """All files, hidden ones included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("student", {"system": "nat_xe"}, "system is 'nat_xe'; the result has teacher_greedy"),
        ("student", {"system": "teacher_beam"}, "'teacher_beam' is a teacher of .* holds a student of"),
        ("teacher", {"system": "nat"}, "'nat' is a student of .* holds a teacher of"),
        ("student", {"dataset": "books"}, "dataset is 'books'.*; give one of toy, bentrevett/multi30k"),
        (
            "student",
            {"license": APACHE_2},
            "license is apache-2.0, but Multi30k may not be used so",
        ),
        ("student", {"domain": " "}, "domain is ' '; give a few words"),
        ("student", {"domain": "a\nb"}, "domain is 'a\\\\nb'; give a few words"),
        ("student", {"max_bytes": 10_000}, r"the weights are \d+ bytes .* max_bytes=10000; raise max_bytes"),
    ],
)
def test_what_cannot_be_released_is_refused_and_leaves_nothing(trained, tmp_path, name, changes, message):
    folder, result = trained
    with pytest.raises(ValueError, match=message):
        write_release(folder / name, tmp_path / "out" / "release", **options(result, **changes))
    assert everything_below(tmp_path) == {}


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
    assert everything_below(tmp_path / "out") == {}


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
    assert everything_below(tmp_path / "out") == {}


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
    assert everything_below(tmp_path) == {}


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
    before = everything_below(tmp_path)
    with pytest.raises(ValueError, match="max_bytes=10"):
        write_release(folder / "student", output, **options(result, max_bytes=10))
    assert everything_below(tmp_path) == before


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
    before = everything_below(tmp_path)
    with pytest.raises(FileExistsError, match=f"{message}; give another output"):
        write_release(folder / "student", output, **options(result))
    assert everything_below(tmp_path) == before


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
