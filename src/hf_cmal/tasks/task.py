"""What a task is: the wiring of one kind of input to models, encoding, scores and a default reward.

A new task is one file like `translation.py` and one line in `TASKS`. A task holds functions and names, no
state; it neither trains nor measures time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

Role = Literal["teacher", "student"]


@dataclass(frozen=True)
class ModelOptions:
    """The shape of a teacher, and so of its student; Transformer-Base by default (Secs. 5.1.2 and 6.1.2)."""

    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    attention_heads: int = 8
    ffn_dim: int = 2048
    dropout: float = 0.1
    student_dropout: float | None = None  # None: the teacher's
    activation_function: str = "relu"
    scale_embedding: bool = True
    num_agents: int = 16  # fixed-N mode, Sec. 5.1.2
    max_length_offset: int = 32  # predicted-length mode: classes -32..32


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        data_options: dataclass that the `data:` part of a recipe is parsed into.
        load: options -> {"train", "validation", "test", and "unlabeled" if there is any}, rows as
            `data.columns`.
        texts: a split -> the sentences a tokenizer is trained on.
        build_teacher: (model options, data options, tokenizer) -> a new autoregressive teacher.
        encode: (rows, tokenizer, data options, role, num_agents) -> rows with model inputs, labels,
            reference_ids.
        collator: (model, role, length_from) -> what makes a batch of encoded rows.
        scores: (hypotheses, references) -> numbers and their signatures.
        length_mode: of the student, "predicted" (Sec. 6.1.2) or "fixed" (Sec. 5.1.2).
        main_score: the key of `scores` that tables lead with.
        default_reward: name in `hf_cmal.rewards.REWARDS` (Secs. 5.1.2 and 6.1.2).
    """

    name: str
    data_options: type
    load: Callable[[Any], dict[str, Dataset]]
    texts: Callable[[Dataset], list[str]]
    build_teacher: Callable[[ModelOptions, Any, PreTrainedTokenizerBase], PreTrainedModel]
    encode: Callable[..., Dataset]
    collator: Callable[..., Callable[[list[dict[str, Any]]], dict[str, Any]]]
    scores: Callable[[Sequence[str], Sequence[Sequence[str]]], Mapping[str, float | str]]
    length_mode: Literal["predicted", "fixed"]
    main_score: str
    default_reward: str
