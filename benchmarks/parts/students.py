"""Students of the paper's two tasks with a made-up batch: random weights, but a policy like a trained one's.

A trained policy is fairly certain, prefers frequent words and often says what a reference says; what
sampling and rewards cost depends on it. So the word scores of random weights are spread until the entropy is
as wanted, frequent words get a bias, and the references are made of the words that the student finds
likeliest, some of them replaced.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from parts.problems import mean_entropy
from parts.zipf import zipf_sentences, zipf_shares
from torch import Tensor

from hf_cmal.data.collators import StudentCollator
from hf_cmal.models.nag.configuration_nag import NagConfig
from hf_cmal.models.nag.modeling_nag import NagForCaptioning, NagForTranslation
from hf_cmal.rewards import DocumentFrequencies, Reward, get_reward
from hf_cmal.training.sequence_trainer import model_inputs

Student = NagForCaptioning | NagForTranslation

EOS, FIRST = 0, 1
ENTROPY = 1.0  # nats per agent
CAPTION_LENGTH = 11.0  # words with the eos, of sampled captions on average
REPLACED = 0.2  # of the likeliest words, in a reference
NUM_REFERENCES = 5
FEATURE_SIZE = 2048
NEVER = -1e4  # a bias, finite so that 0 * log 0 never comes up


@dataclass(frozen=True)
class Shape:
    """Sizes of a model and a batch; the defaults are Transformer-Base."""

    vocab_size: int
    batch_size: int
    source_length: int
    target_length: int
    num_images: int = 0  # that document frequencies are counted on
    d_model: int = 512
    layers: int = 6
    heads: int = 8
    ffn_dim: int = 2048

    def config(self, **options: Any) -> NagConfig:
        return NagConfig(
            vocab_size=self.vocab_size, d_model=self.d_model, pad_token_id=self.vocab_size - 1,
            eos_token_id=EOS, encoder_layers=self.layers, decoder_layers=self.layers,
            encoder_attention_heads=self.heads, decoder_attention_heads=self.heads,
            encoder_ffn_dim=self.ffn_dim, decoder_ffn_dim=self.ffn_dim, **options,
        )  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """A student with a batch and its reward.

    Attributes:
        batch: as the collator gives it.
        reward: unbound.
        entropy: of the policy on this batch without dropout, in nats per agent.
    """

    student: Student
    batch: dict[str, Any]
    reward: Reward
    entropy: float


def captioning(shape: Shape, *, seed: int = 0) -> Setting:
    """N = `target_length` agents look at `source_length` grid features; CIDEr-D with five references."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    student = NagForCaptioning(
        shape.config(length_mode="fixed", num_agents=shape.target_length, feature_size=FEATURE_SIZE)
    )
    size = (shape.batch_size, shape.source_length, FEATURE_SIZE)
    features = list(generator.standard_normal(size, dtype=np.float32))
    collate = StudentCollator(pad_token_id=shape.vocab_size - 1, num_agents=shape.target_length)
    rows = [{"features": grid, "labels": [EOS], "reference_ids": [[FIRST]]} for grid in features]
    scores = sharpen(student, collate(rows))
    likeliest = scores[..., FIRST:].argmax(-1) + FIRST
    longest = shape.target_length - 1
    for row, words in zip(rows, likeliest.tolist(), strict=True):
        lengths = np.minimum(generator.integers(8, 13, NUM_REFERENCES), longest)
        references = [_reworded(words[:length], shape.vocab_size, generator) for length in lengths]
        row |= {"labels": [*references[0], EOS], "reference_ids": references}
    captions = zipf_sentences(
        generator, num_sentences=NUM_REFERENCES * shape.num_images, num_words=shape.vocab_size - 2,
        lengths=(8, 12),
    )  # fmt: skip
    shifted = [[word + FIRST for word in caption] for caption in captions]
    starts = range(0, len(shifted), NUM_REFERENCES)
    images = [shifted[start : start + NUM_REFERENCES] for start in starts]
    images += [row["reference_ids"] for row in rows]
    frequencies = DocumentFrequencies.from_references(images, eos_token_id=EOS)
    reward = get_reward("cider-d", document_frequencies=frequencies)
    return Setting(student, collate(rows), reward, mean_entropy(scores.log_softmax(-1)))


def translation(shape: Shape, *, seed: int = 0) -> Setting:
    """Sentences of `target_length` words from about as many source words; GLEU with one reference."""
    torch.manual_seed(seed)
    generator = np.random.default_rng(seed)
    student = NagForTranslation(shape.config(length_mode="predicted"))
    spread = shape.source_length // 8
    sources = zipf_sentences(
        generator, num_sentences=shape.batch_size, num_words=shape.vocab_size - 2,
        lengths=(shape.source_length - spread, shape.source_length + spread),
    )  # fmt: skip
    blank = [FIRST] * shape.target_length
    rows: list[dict[str, Any]] = [
        {"input_ids": [word + FIRST for word in source], "labels": blank, "reference_ids": [blank]}
        for source in sources
    ]
    collate = StudentCollator(pad_token_id=shape.vocab_size - 1, length_from="first_reference")
    scores = sharpen(student, collate(rows))
    likeliest = scores[..., FIRST:].argmax(-1) + FIRST
    for row, words in zip(rows, likeliest.tolist(), strict=True):
        reference = _reworded(words, shape.vocab_size, generator)
        row |= {"labels": reference, "reference_ids": [reference]}
    return Setting(student, collate(rows), get_reward("gleu"), mean_entropy(scores[:8].log_softmax(-1)))


@torch.no_grad()
def sharpen(student: Student, batch: dict[str, Any]) -> Tensor:
    """Makes the policy as certain as `ENTROPY` says, and captions as long as `CAPTION_LENGTH` says, both with
    dropout, as in training.

    Returns:
        the scores of the words [B, N, V] without dropout, -inf for suppressed words.
    """
    config = student.config
    states = student.train().model(**model_inputs(batch)).last_hidden_state
    raw = states[: max(1, 200 // states.shape[1])] @ student.lm_head.weight.T
    bias = torch.full((config.vocab_size,), NEVER)
    bias[FIRST:-1] = torch.from_numpy(zipf_shares(config.vocab_size - FIRST - 1)).log().float()
    scale = _bisect(lambda scale: mean_entropy((scale * raw + bias).log_softmax(-1)) > ENTROPY, 0.5, 200.0)
    if config.length_mode == "fixed":
        scores = scale * raw + bias
        scores[..., EOS] -= NEVER
        bias[EOS] = _bisect(lambda score: _mean_length(scores, score) > CAPTION_LENGTH, -50.0, 50.0)
    student.lm_head.weight.mul_(scale)
    if config.feature_size is None:  # the source's embeddings are the same matrix: they stay as they were
        student.model.encoder.embed_scale /= scale
    student.final_logits_bias.copy_(bias)
    states = student.eval().model(**model_inputs(batch)).last_hidden_state
    return student.suppress_tokens(states @ student.lm_head.weight.T + bias)


def _mean_length(scores: Tensor, eos_bias: float) -> float:
    """Agents up to and with the first eos, where `eos_bias` is added to its score."""
    scores = scores.clone()
    scores[..., EOS] += eos_bias
    goes_on = 1.0 - scores.softmax(-1)[..., :-1, EOS]
    return float(1.0 + torch.cumprod(goes_on, -1).sum(-1).mean())


def _bisect(too_small: Callable[[float], bool], low: float, high: float) -> float:
    """The number where `too_small` turns from true to false."""
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if too_small(middle) else (low, middle)
    return high


def _reworded(words: Sequence[int], vocab_size: int, generator: np.random.Generator) -> list[int]:
    """The words with some replaced by words drawn by frequency."""
    shares = zipf_shares(vocab_size - FIRST - 1)
    drawn = generator.choice(len(shares), size=len(words), p=shares) + FIRST
    replaced = generator.random(len(words)) < REPLACED
    return np.where(replaced, drawn, np.asarray(words)).tolist()
