"""Where CIDEr-D's document frequencies come from in a training: a file that is named, or the references.

What a recipe or the arguments say about them is checked here. Frequencies that a training counts are kept
beside its model, so that a run which goes on has those it began with; they should not be published, for the
n-grams of a corpus give away its sentences. How they are counted and stored is the rewards' affair.
"""

from collections.abc import Sequence
from typing import Any

from transformers import PretrainedConfig, PreTrainedTokenizerBase

from hf_cmal.rewards.document_frequencies import DocumentFrequencies, vocabulary_fingerprint
from hf_cmal.rewards.mixture import parse_mixture

DOCUMENT_FREQUENCIES = "document_frequencies.safetensors"


def needs_document_frequencies(reward: str) -> bool:
    """Whether a reward, by its name, is cider-d or has it as a part."""
    return any(name == "cider-d" for _, name in parse_mixture(reward))


def check_document_frequencies(path: Any, *, reward: str, where: str = "") -> None:
    """Checks the option before anything is loaded; whether there is such a file is not looked at.

    Args:
        path: of the file, or None.
        reward: by its name.
        where: begins the message.

    Raises:
        ValueError: no path, or the reward has no use for the file.
    """
    if path is None:
        return
    if not isinstance(path, str) or not path:
        raise ValueError(f"{where}document_frequencies is {path!r}; give the path of a file, or null")
    if not needs_document_frequencies(reward):
        raise ValueError(
            f"{where}document_frequencies is {path!r}, but the reward {reward!r} has none; remove it, or "
            "choose the reward cider-d"
        )


def counted_eos(config: PretrainedConfig) -> int | None:
    """The eos that is a word of a student's sentences; None where the number of agents ends them."""
    eos: int | None = config.eos_token_id if config.length_mode == "fixed" else None
    return eos


def count_document_frequencies(
    reference_ids: Sequence[Sequence[Sequence[int]]], config: PretrainedConfig, tokenizer: Any
) -> DocumentFrequencies:
    """Counts n-grams as CIDEr-D wants them in the training of a student.

    Args:
        reference_ids: of the encoded training rows.
        config: of the student.
        tokenizer: whose vocabulary the counts are tied to; None, or what is no tokenizer, ties them to none.
    """
    return DocumentFrequencies.from_references(
        reference_ids, eos_token_id=counted_eos(config), vocabulary=_fingerprint(tokenizer)
    )


def load_document_frequencies(path: str, config: PretrainedConfig, tokenizer: Any) -> DocumentFrequencies:
    """Reads a file for the training of a student.

    Raises:
        FileNotFoundError, ValueError: as `DocumentFrequencies.load`, or they were counted with another eos or
            vocabulary than the student's.
    """
    frequencies = DocumentFrequencies.load(path)
    frequencies.check_counted_with(
        eos_token_id=counted_eos(config), vocabulary=_fingerprint(tokenizer), where=path
    )
    return frequencies


def _fingerprint(tokenizer: Any) -> str | None:
    if not isinstance(tokenizer, PreTrainedTokenizerBase):
        return None
    return vocabulary_fingerprint(tokenizer.get_vocab())
