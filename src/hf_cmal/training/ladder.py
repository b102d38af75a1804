"""A ladder: the numbered recipes of a folder, run one after the other.

Each stage is what `hf_cmal.training.stages` does with one recipe. A ladder that was interrupted goes on in
the stage where it stopped: the finished ones before it find their work done.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from hf_cmal.training.recipe import Recipe, load_recipe
from hf_cmal.training.stages import run_stage


def ladder_paths(folder: str | Path) -> list[Path]:
    """The recipes of a folder whose names begin with a number, in order.

    Raises:
        FileNotFoundError: there is none.
    """
    paths = sorted(Path(folder).glob("[0-9]*.yaml"))
    if not paths:
        raise FileNotFoundError(
            f"no numbered recipes in {folder}; those of the project are in recipes/ of a clone"
        )
    return paths


def run_ladder(
    folder: str | Path,
    overrides: Sequence[str] = (),
    *,
    announce: Callable[[Path], None] | None = None,
) -> Recipe:
    """Runs every stage of a ladder with the same overrides.

    All recipes are read before the first is run, so that a mistake in the last costs no hours.

    Args:
        folder: of the recipes.
        overrides: `key=value`, given to every stage.
        announce: called with the path of each recipe before it is run.

    Returns:
        The last recipe, whose folder holds the result if it evaluates.

    Raises:
        FileNotFoundError, ValueError: as `load_recipe` and `run_stage`.
    """
    recipes = [(path, load_recipe(path, overrides)) for path in ladder_paths(folder)]
    for path, recipe in recipes:
        if announce is not None:
            announce(path)
        run_stage(recipe)
    return recipe
