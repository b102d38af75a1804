"""A recipe that trained on one machine, written so that it holds on every other.

Its data files move under `${oc.env:HF_CMAL_DATA}`, as in the recipes of the project. What else names a place
on one machine is an error: nobody else could run the recipe, and where it ran is nobody else's business.
"""

import os
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from omegaconf import OmegaConf

DATA_VARIABLE = "HF_CMAL_DATA"


def read_portable_recipe(path: Path, *, data_folder: str | None) -> dict[str, Any]:
    """The recipe in a file, without a path of this machine.

    Args:
        data_folder: value of HF_CMAL_DATA; None where it is not set.

    Raises:
        ValueError: an absolute path that does not lie under `data_folder`; the message names its key.
    """
    recipe = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    if not isinstance(recipe, dict):
        raise ValueError(f"{path} is no recipe: it holds a list, not keys with values")
    return {str(key): _portable(value, data_folder, f"{path}: {key}") for key, value in recipe.items()}


def _portable(value: Any, data_folder: str | None, where: str) -> Any:
    if isinstance(value, Mapping):
        return {key: _portable(item, data_folder, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [_portable(item, data_folder, f"{where}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, str) or not _is_absolute(value):
        return value
    if data_folder:
        # not resolved: a link inside the data folder is as good as what it points to
        inside = Path(os.path.relpath(value, data_folder))
        if ".." not in inside.parts:
            return f"${{oc.env:{DATA_VARIABLE}}}/{inside.as_posix()}"
    raise ValueError(
        f"{where} is {value!r}, a path of this machine. If it is data, set {DATA_VARIABLE} (now "
        f"{data_folder!r}) to the folder that holds it; else write a relative path into the recipe, e.g. "
        "outputs/..."
    )


def _is_absolute(value: str) -> bool:
    return os.path.isabs(value) or PureWindowsPath(value).is_absolute()
