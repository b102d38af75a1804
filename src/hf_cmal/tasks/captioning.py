"""Captioning: feature vectors in, text out; the AIC model teaches, NagForCaptioning learns with N fixed
agents (Sec. 5)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from datasets import Dataset
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_cmal.data.collators import StudentCollator, TeacherCollator
from hf_cmal.data.columns import REFERENCES
from hf_cmal.data.encoding import encode_captions
from hf_cmal.data.toy import FEATURE_SIZE, toy_captions
from hf_cmal.metrics.captions import caption_scores
from hf_cmal.models.nag.configuration_nag_teacher import NagTeacherConfig
from hf_cmal.models.nag.modeling_nag_teacher import NagTeacherForCaptioning
from hf_cmal.tasks.task import ModelOptions, Role, Task

SPLITS = ("train", "validation", "test", "unlabeled")


@dataclass(frozen=True)
class CaptioningData:
    """Where feature vectors and captions come from.

    Attributes:
        toy_rows: rows of (train, validation, test, unlabeled) drawn from the toy world.
        vocab_size: of the BPE vocabulary that the teacher's stage learns (Sec. 5.1.1: 9,487 words).
        feature_size: length of a feature vector.
        max_target_length: longest caption in tokens, eos included (Sec. 5.1.2: 16).
    """

    toy_rows: tuple[int, ...] = ()
    toy_seed: int = 0
    vocab_size: int = 9_487
    feature_size: int = FEATURE_SIZE
    max_target_length: int = 16

    @property
    def longest(self) -> int:
        """The longest sequence, in tokens."""
        return self.max_target_length


def load(data: CaptioningData) -> dict[str, Dataset]:
    """The splits of a recipe's data."""
    if len(data.toy_rows) not in (3, 4) or min(data.toy_rows[:3]) < 1:
        raise ValueError(
            f"data.toy_rows is {list(data.toy_rows)}; give the rows of train, validation, test "
            "and, if wanted, unlabeled (real pictures come with the picture features)"
        )
    return {
        name: toy_captions(rows, seed=data.toy_seed, split=name, labeled=name != "unlabeled")
        for name, rows in zip(SPLITS, data.toy_rows, strict=False)
        if rows > 0
    }


def texts(split: Dataset) -> list[str]:
    return [text for references in split[REFERENCES] for text in references]


def build_teacher(
    model: ModelOptions, data: CaptioningData, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """A new captioning teacher with the vocabulary of `tokenizer`, decoding with beam 3 (Sec. 5.1.2)."""
    config = NagTeacherConfig(
        vocab_size=len(tokenizer),
        feature_size=data.feature_size,
        d_model=model.d_model,
        encoder_layers=model.encoder_layers,
        decoder_layers=model.decoder_layers,
        encoder_attention_heads=model.attention_heads,
        decoder_attention_heads=model.attention_heads,
        encoder_ffn_dim=model.ffn_dim,
        decoder_ffn_dim=model.ffn_dim,
        dropout=model.dropout,
        activation_function=model.activation_function,
        scale_embedding=model.scale_embedding,
        max_position_embeddings=max(data.max_target_length, model.num_agents) + 1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    teacher = NagTeacherForCaptioning(config)
    teacher.generation_config = GenerationConfig(
        num_beams=3,
        max_length=data.max_target_length + 1,
        bad_words_ids=[[tokenizer.pad_token_id]],
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
    )
    return teacher


def encode(
    rows: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    data: CaptioningData,
    *,
    role: Role,
    num_agents: int | None = None,
    allow_unlabeled: bool = False,
) -> Dataset:
    """Rows with labels that end in eos; for a student at most `num_agents` of them."""
    return encode_captions(
        rows,
        tokenizer,
        max_target_length=data.max_target_length,
        label_eos=True,
        num_agents=num_agents if role == "student" else None,
        allow_unlabeled=allow_unlabeled,
    )


def collator(
    model: PreTrainedModel, *, role: Role, length_from: str = "labels"
) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    """The function that makes a batch for `model`."""
    config = model.config
    if role == "teacher":
        return TeacherCollator(
            pad_token_id=config.pad_token_id, decoder_start_token_id=config.decoder_start_token_id
        )
    return StudentCollator(pad_token_id=config.pad_token_id, num_agents=config.num_agents)


CAPTIONING = Task(
    name="captioning",
    data_options=CaptioningData,
    load=load,
    texts=texts,
    build_teacher=build_teacher,
    encode=encode,
    collator=collator,
    scores=caption_scores,
    length_mode="fixed",
    main_score="cider",
    default_reward="cider-d",
)
