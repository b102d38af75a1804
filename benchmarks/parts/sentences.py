"""The captions on which the rewards are timed: real ones where there are any, else made up by Zipf's law.

Real ones are COCO's val2017 captions with the captions that a semi-autoregressive system wrote for the same
pictures; they are read and never written out. An image has several sampled sentences, as in training: the
system's caption, and copies of it in which some words are replaced.
"""

import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from parts.zipf import zipf_sentences
from torch import Tensor

from hf_cmal.sampling import Edits

CAPTIONS = Path("coco/captions_val2017.json.gz")
HYPOTHESES = Path("peers/satic_results_on_val2017.json.gz")
REPLACED = 0.2  # of the words of a copy
TOP_K = 2


@dataclass(frozen=True)
class Corpus:
    """Images with references, and a hypothesis for each of the first of them; words are ids.

    Attributes:
        references: per image, of all images: document frequencies are counted on them.
        hypotheses: of the first images.
        words: id -> the word.
        source: where they come from.
    """

    references: list[list[list[int]]]
    hypotheses: list[list[int]]
    words: list[str]
    source: str

    def text(self, ids: list[int]) -> str:
        return " ".join(self.words[i] for i in ids)


def read_corpus(folder: Path, *, num_inputs: int) -> Corpus:
    """COCO's captions, lower-cased, without punctuation, in the order of the image ids."""
    annotations = _read(folder / CAPTIONS)["annotations"]
    written = {row["image_id"]: row["caption"] for row in _read(folder / HYPOTHESES)}
    ids: dict[str, int] = {}
    references: dict[int, list[list[int]]] = {image_id: [] for image_id in sorted(written)}
    for row in sorted(annotations, key=lambda row: row["id"]):
        references[row["image_id"]].append(_encode(row["caption"], ids))
    hypotheses = [_encode(written[image_id], ids) for image_id in list(references)[:num_inputs]]
    return Corpus(
        list(references.values()), hypotheses, list(ids),
        "COCO val2017 captions; hypotheses of a semi-autoregressive captioner",
    )  # fmt: skip


def make_corpus(*, num_images: int, num_inputs: int, seed: int = 0) -> Corpus:
    """Five references of 9 to 13 words per image; a hypothesis has about a third of its words from one."""
    generator = np.random.default_rng(seed)
    num_words = 9_000
    options: dict[str, Any] = {"num_words": num_words, "lengths": (9, 13)}
    flat = zipf_sentences(generator, num_sentences=5 * num_images, **options)
    references = [flat[5 * image : 5 * image + 5] for image in range(num_images)]
    hypotheses = zipf_sentences(generator, num_sentences=num_inputs, **options)
    for hypothesis, group in zip(hypotheses, references, strict=False):
        start = int(generator.integers(0, 5))
        hypothesis[start : start + 4] = group[0][start : start + 4]
    words = [f"w{word}" for word in range(num_words)]
    return Corpus(references, hypotheses, words, "made up: independent words by Zipf's law")


@dataclass(frozen=True)
class Batch:
    """What a reward is asked about a batch, as in a training step.

    Attributes:
        references: of B inputs.
        agent_mask: bool [B, N], as many agents as the input's hypothesis has words.
        actions: long [B, S, N].
        edits: as `Counterfactual(top_k=2, compositional_weight=0.5)` proposes them.
    """

    references: list[list[list[int]]]
    agent_mask: Tensor
    actions: Tensor
    edits: Edits

    def sentences(self) -> list[list[list[int]]]:
        """Per input its S sentences."""
        lengths = self.agent_mask.sum(-1).tolist()
        return [
            [row[:length] for row in rows]
            for rows, length in zip(self.actions.tolist(), lengths, strict=True)
        ]


def make_batches(corpus: Corpus, *, batch_size: int, num_samples: int, seed: int = 0) -> list[Batch]:
    """Samples and edits for all hypotheses. Words that replace others are drawn by their frequency in the
    references; of the two words of an agent one is a reference word of its input."""
    generator = np.random.default_rng(seed)
    frequent = np.concatenate([np.array(reference) for group in corpus.references for reference in group])
    starts = range(0, len(corpus.hypotheses), batch_size)
    return [
        _make_batch(
            corpus.hypotheses[start : start + batch_size],
            corpus.references[start : min(start + batch_size, len(corpus.hypotheses))],
            frequent,
            num_samples,
            generator,
        )
        for start in starts
    ]


def _make_batch(
    hypotheses: list[list[int]],
    references: list[list[list[int]]],
    frequent: np.ndarray,
    num_samples: int,
    generator: np.random.Generator,
) -> Batch:
    lengths = np.array([len(hypothesis) for hypothesis in hypotheses])
    shape = (len(hypotheses), int(lengths.max()))
    actions = np.zeros((shape[0], num_samples, shape[1]), np.int64)
    for rows, hypothesis in zip(actions, hypotheses, strict=True):
        rows[:, : len(hypothesis)] = hypothesis
    replaced = generator.random(actions.shape) < REPLACED
    replaced[:, 0] = False
    actions = np.where(replaced, generator.choice(frequent, actions.shape), actions)
    words = np.stack([
        [generator.choice(np.concatenate(group), shape[1]) for group in references],
        generator.choice(frequent, shape),
    ], axis=-1)  # fmt: skip
    agent_mask = torch.from_numpy(np.arange(shape[1]) < lengths[:, None])
    return Batch(
        references=references,
        agent_mask=agent_mask,
        actions=torch.from_numpy(actions),
        edits=_make_edits(torch.from_numpy(words), agent_mask, num_samples),
    )


def _make_edits(words: Tensor, agent_mask: Tensor, num_samples: int) -> Edits:
    """Edits to words [B, N, 2]; of a pair's grid the pairs (first, first) and (first, second)."""
    num_inputs, num_agents, _ = words.shape
    agents = torch.arange(num_agents)
    position = torch.cat([agents.repeat_interleave(TOP_K), agents[:-1].repeat_interleave(TOP_K)])
    width = torch.ones_like(position)
    width[num_agents * TOP_K :] = 2
    first = words[:, :-1, :1].expand(-1, -1, TOP_K)
    pairs = torch.stack([first, words[:, 1:]], dim=-1)
    all_words = torch.cat([torch.stack([words, words], dim=-1).flatten(1, 2), pairs.flatten(1, 2)], dim=1)
    exists = torch.cat(
        [agent_mask.repeat_interleave(TOP_K, -1), agent_mask[:, 1:].repeat_interleave(TOP_K, -1)], dim=-1
    )
    shape = (num_inputs, num_samples, len(position))
    return Edits(
        position=position.expand(shape),
        words=all_words[:, None].expand(*shape, 2),
        width=width.expand(shape),
        mask=exists[:, None].expand(shape),
    )


def _read(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def _encode(text: str, ids: dict[str, int]) -> list[int]:
    return [ids.setdefault(word, len(ids)) for word in re.findall(r"[a-z0-9']+", text.lower())]
