"""What the README.md of a model's folder says about it in a few words: its name, its domain, its licence.

It reads the front matter only, of any model's card; it opens no model and asks no Hub.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub.repocard import metadata_load
from yaml import YAMLError


@dataclass(frozen=True)
class CardFacts:
    """What a card tells; None where it is silent.

    Attributes:
        name: of the model, from the model-index.
        domain: kind of text that it was trained on, e.g. "image descriptions".
        license: identifier of the Hub, or the `license_name` where that is "other".
    """

    name: str | None = None
    domain: str | None = None
    license: str | None = None


def read_card_facts(folder: str | Path) -> CardFacts:
    """Reads the card of a folder.

    A folder without a card, a Hub id, or a card that is not written as cards are gives no facts instead of an
    error: a model translates just as well without them.

    Example:

    ```python
    >>> from hf_cmal.hub.card_facts import read_card_facts

    >>> read_card_facts("outputs/student")
    CardFacts(name=None, domain=None, license=None)
    ```
    """
    path = Path(folder) / "README.md"
    try:
        front_matter = metadata_load(path) or {}
    except (OSError, ValueError, YAMLError):  # ValueError: front matter that is a list, or no UTF-8
        return CardFacts()
    license = _text(front_matter.get("license"))
    return CardFacts(
        name=_name(front_matter.get("model-index")),
        domain=_text(front_matter.get("domain")),
        license=(_text(front_matter.get("license_name")) or license) if license == "other" else license,
    )


def _name(model_index: Any) -> str | None:
    match model_index:
        case [{"name": name}, *_]:
            return _text(name)
    return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
