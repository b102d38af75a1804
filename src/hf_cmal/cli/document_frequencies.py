"""`hf-cmal document-frequencies`: counts the n-grams of a recipe's training references, into a file.

A training counts them by itself; a file is for those who want the same weights in several of them.
"""

from collections.abc import Sequence
from pathlib import Path

from hf_cmal.training.document_frequencies import DOCUMENT_FREQUENCIES
from hf_cmal.training.recipe import load_recipe
from hf_cmal.training.stages import recipe_document_frequencies


def document_frequencies(
    recipe: str | Path, overrides: Sequence[str] = (), *, output: str | None = None
) -> Path:
    """Writes the file, and says where it is and what is in it.

    Args:
        recipe: of stage cmal; its student has to be there, for the ids of the words are its vocabulary's.
        overrides: `key=value`, as for the training.
        output: file to write; by default the one that the recipe names, else one in the recipe's root.

    Raises:
        FileNotFoundError, ValueError: as `load_recipe` and `recipe_document_frequencies`.
    """
    loaded = load_recipe(recipe, overrides)
    named = loaded.training.get("document_frequencies")
    counted = recipe_document_frequencies(loaded)
    path = counted.save(output or named or Path(loaded.root) / DOCUMENT_FREQUENCIES)
    print(f"{path}: {counted.num_ngrams:,} n-grams of {counted.num_documents:,} images")
    if str(path) != named:
        print(f"train with training.document_frequencies={path}")
    return path
