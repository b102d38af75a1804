"""A recipe leaves its machine: data move under the variable, any other absolute path is named and refused."""

from pathlib import Path

import pytest
import yaml

from hf_cmal.hub.portable_recipe import read_portable_recipe


def portable(tmp_path: Path, recipe: object, data_folder: str | None = "/data") -> dict:
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return read_portable_recipe(path, data_folder=data_folder)


@pytest.mark.parametrize("data_folder", ["/data", "/data/", "/data/./", "/other/../data"])
def test_data_files_move_under_the_variable_at_any_depth(tmp_path, data_folder):
    recipe = {"a": "/data/x.gz", "b": {"c": ["/data/y/z.en", "/data/../data/w"]}}
    assert portable(tmp_path, recipe, data_folder) == {
        "a": "${oc.env:HF_CMAL_DATA}/x.gz",
        "b": {"c": ["${oc.env:HF_CMAL_DATA}/y/z.en", "${oc.env:HF_CMAL_DATA}/w"]},
    }


def test_everything_else_is_kept_as_it_is(tmp_path):
    recipe = {
        "stage": "cmal",
        "output_dir": "outputs/05",
        "rate": 1e-9,
        "rows": None,
        "on": True,
        "train": ["${oc.env:HF_CMAL_DATA}/x", "relative/x"],
        "expected": "see /data",
    }
    assert portable(tmp_path, recipe) == recipe


@pytest.mark.parametrize(
    ("recipe", "where"),
    [
        ({"output_dir": "/elsewhere/05"}, "output_dir is '/elsewhere/05'"),
        ({"data": {"train": ["/data/x", "/database/x"]}}, r"data.train\[1\] is '/database/x'"),
        ({"data": {"train": ["/data/../secret/x"]}}, r"data.train\[0\] is '/data/../secret/x'"),
        ({"teacher": "C:\\runs\\01"}, r"teacher is 'C:\\\\runs\\\\01'"),
    ],
)
def test_a_path_outside_the_data_folder_is_an_error_that_names_it(tmp_path, recipe, where):
    with pytest.raises(ValueError, match=rf"recipe.yaml: {where}, a path of this machine.*relative path"):
        portable(tmp_path, recipe)


def test_without_the_variable_every_absolute_path_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"a is '/data/x'.*set HF_CMAL_DATA \(now None\)"):
        portable(tmp_path, {"a": "/data/x"}, None)


def test_a_list_is_no_recipe(tmp_path):
    with pytest.raises(ValueError, match=r"recipe.yaml is no recipe: it holds a list"):
        portable(tmp_path, ["stage"])
