"""Document frequencies of CIDEr-D (Vedantam et al. 2015): in how many images an n-gram occurs.

Counted on token ids of the training references, eos included where it counts as a word, and kept in one file
of safetensors: twelve bytes an n-gram, nothing to unpickle. The file says what it was counted with, because
counts of another vocabulary or eos mean nothing. How they weigh n-grams is `cider.py`'s.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from hf_cmal.rewards.ngrams import build_trie
from hf_cmal.rewards.references import pack_references
from hf_cmal.rewards.tables import EMPTY, DocumentTable

MAX_ORDER = 4
FORMAT, VERSION = "hf_cmal.document_frequencies", "1"
ARRAYS = ("parents", "words", "counts")
NONE = "none"  # in the file, where metadata are strings


@dataclass(frozen=True, kw_only=True)
class DocumentFrequencies:
    """How many documents (the references of one image) contain an n-gram of order 1 to 4. Made by
    `from_references` or `load`.

    Attributes:
        keys, children: the trie of all n-grams, see `ngrams.py`.
        counts: int64 [nodes], documents that contain a node's n-gram.
        num_documents: number of images.
        eos_token_id: the word that was counted at the end of every reference; None where none was.
        name: where they come from, for the signature.
        vocabulary: `vocabulary_fingerprint` of the token ids; None where it is not known.
    """

    keys: NDArray[np.int64] = field(repr=False)
    children: NDArray[np.int32] = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)
    num_documents: int
    eos_token_id: int | None
    name: str
    vocabulary: str | None = None

    @property
    def num_ngrams(self) -> int:
        return len(self.counts) - 1  # without the root

    @classmethod
    def from_references(
        cls,
        references: Sequence[Sequence[Sequence[int]]],
        *,
        eos_token_id: int | None,
        count_eos: bool = True,
        name: str = "train",
        vocabulary: str | None = None,
    ) -> "DocumentFrequencies":
        """Counts n-grams.

        Args:
            references: per image a list of references, each a list of token ids without eos.
            eos_token_id: appended to each reference where `count_eos`; ends a reference where it stands in
            one. count_eos: must agree with the reward's option. name: appears in the reward's signature,
            `df:train(29000)`. vocabulary: fingerprint of the tokenizer that made the ids, if there is one.

        Raises:
            ValueError: no images, an image without reference, or an empty reference.
        """
        if len(references) == 0:
            raise ValueError("document frequencies of no image: give the references of the training images")
        packed = pack_references(references, eos_token_id=eos_token_id, count_eos=count_eos)
        roots = np.zeros_like(packed.input_of)
        keys, children, counts = build_trie(
            packed.words, packed.offsets, roots, packed.input_of, 1, MAX_ORDER
        )
        return cls(
            keys=keys,
            children=children,
            counts=counts,
            num_documents=packed.num_inputs,
            eos_token_id=eos_token_id if count_eos else None,
            name=name,
            vocabulary=vocabulary,
        )

    def table(self) -> DocumentTable:
        """The same as inverse frequencies, log(images / documents); an n-gram that was never seen counts as
        seen once.
        """
        unseen = float(np.log(self.num_documents))
        return DocumentTable(self.keys, self.children, unseen - np.log(np.maximum(self.counts, 1)), unseen)

    def check_counted_with(self, *, eos_token_id: int | None, vocabulary: str | None, where: str) -> None:
        """Raises ValueError unless they were counted with this eos and vocabulary; `where` begins the
        message. A vocabulary that is not known on either side is not compared.
        """
        if self.eos_token_id != eos_token_id:
            raise ValueError(
                f"{where} was counted with {_eos(self.eos_token_id)}, but this model writes "
                f"{_eos(eos_token_id)}; {_make(where)}"
            )
        if None not in (self.vocabulary, vocabulary) and self.vocabulary != vocabulary:
            raise ValueError(
                f"{where} was counted with another vocabulary ({self.vocabulary}) than this model's "
                f"({vocabulary}), so its token ids are other words; {_make(where)}"
            )

    def save(self, path: str | Path) -> Path:
        """Writes one file, whole or not at all: for each n-gram its beginning (the number of an n-gram before
        it), its last word and its count.

        Args:
            path: a file, e.g. `document_frequencies.safetensors`; its folder is made.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        filled = self.keys != EMPTY
        keys = self.keys[filled][np.argsort(self.children[filled])]  # of the nodes 1, 2, ...
        arrays = {"parents": keys >> 32, "words": (keys & 0xFFFFFFFF) - 1, "counts": self.counts[1:]}
        metadata = {
            "format": FORMAT,
            "version": VERSION,
            "num_documents": str(self.num_documents),
            "eos_token_id": NONE if self.eos_token_id is None else str(self.eos_token_id),
            "name": self.name,
            "vocabulary": NONE if self.vocabulary is None else self.vocabulary,
        }
        unfinished = path.with_name(f"{path.name}.part")
        save_file({name: array.astype(np.int32) for name, array in arrays.items()}, unfinished, metadata)
        os.replace(unfinished, path)
        return path

    @classmethod
    def load(cls, path: str | Path) -> "DocumentFrequencies":
        """Reads what `save` wrote.

        Raises:
            FileNotFoundError: no such file; the message names the command that makes it.
            ValueError: another kind of file, a torn one, or one of another version.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there are no document frequencies at {path}; {_make(path)}")
        try:
            with safe_open(path, framework="np") as file:
                metadata = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}
        except SafetensorError as error:
            raise ValueError(
                f"{path} is no file of document frequencies, or not a whole one ({error}); {_make(path)}"
            ) from error
        if metadata.get("format") != FORMAT:
            raise ValueError(f"{path} holds something else than document frequencies; {_make(path)}")
        if metadata["version"] != VERSION:
            raise ValueError(
                f"{path} has version {metadata['version']} of the format, this hf_cmal reads version "
                f"{VERSION}; {_make(path)}"
            )
        parents, words, counts = (arrays[name].astype(np.int64) for name in ARRAYS)
        each = np.arange(len(words) + 1)
        if (parents >= each[1:]).any() or min(parents.min(initial=0), words.min(initial=0)) < 0:
            raise ValueError(f"{path} holds an n-gram without its beginning; {_make(path)}")
        # Every n-gram is a sentence of one word that starts at the node of its beginning, so it becomes the
        # node of its own number again.
        keys, children, again = build_trie(words, each, parents, np.zeros_like(parents), 1, 1)
        if len(again) != len(counts) + 1:
            raise ValueError(f"{path} holds an n-gram twice; {_make(path)}")
        eos, vocabulary = metadata["eos_token_id"], metadata["vocabulary"]
        return cls(
            keys=keys,
            children=children,
            counts=np.concatenate([[0], counts]),
            num_documents=int(metadata["num_documents"]),
            eos_token_id=None if eos == NONE else int(eos),
            name=metadata["name"],
            vocabulary=None if vocabulary == NONE else vocabulary,
        )


def vocabulary_fingerprint(vocabulary: Mapping[str, int]) -> str:
    """Sixteen hexadecimal digits that differ where a word, or its id, does.

    Args:
        vocabulary: words to ids, e.g. `tokenizer.get_vocab()`.
    """
    listed = json.dumps(sorted(vocabulary.items()), ensure_ascii=True)
    return hashlib.sha256(listed.encode()).hexdigest()[:16]


def _eos(eos_token_id: int | None) -> str:
    return "no eos" if eos_token_id is None else f"eos {eos_token_id}"


def _make(path: str | Path) -> str:
    return f"make it with `hf-cmal document-frequencies RECIPE --output {path}`"
