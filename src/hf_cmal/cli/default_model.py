"""Which translator a command uses, and the line that names it.

The folder is the one that was asked for, else the environment's, else the published one of a clone. The line
names its domain and its licence as its card gives them. No model is opened here.
"""

import os
from pathlib import Path

from hf_cmal.hub.card_facts import read_card_facts

MODEL_VARIABLE = "HF_CMAL_MODEL"
STUDENT, TEACHER = "nag-multi30k-en-de", "teacher-multi30k-en-de"
CLONE = Path(__file__).resolve().parents[3]  # where the package runs from a clone: src/hf_cmal/cli


def published(name: str) -> Path | None:
    """The folder of a published model in the clone that this package runs from; None without a clone."""
    folder = CLONE / "model_cards" / name
    return folder if (folder / "config.json").is_file() else None


def find_model(given: str | None) -> str:
    """The folder or Hub id to open.

    Raises:
        ValueError: none was given, none is in the environment, and there is no clone with one.
    """
    folder = given or os.environ.get(MODEL_VARIABLE) or published(STUDENT)
    if not folder:
        raise ValueError(
            f"no model: give --model FOLDER or a Hub id, or set {MODEL_VARIABLE} (a clone's "
            f"model_cards/{STUDENT} is found by itself); `hf-cmal run recipes/multi30k` trains one"
        )
    return str(folder)


def describe_model(folder: str) -> str:
    """One line: name, domain and licence of a model's card, as far as it has them."""
    facts = read_card_facts(folder)
    name = facts.name or Path(folder).name
    if facts.domain is None and facts.license is None:
        return f"{name} (it has no card that names its domain and licence)"
    return f"{name}, for {facts.domain or 'unnamed domain'}; licence: {facts.license or 'not named'}"
