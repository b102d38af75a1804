"""Translation: text in, text out; MarianMTModel teaches, NagForTranslation learns with a predicted length
(Sec. 6)."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from datasets import Dataset
from transformers import (
    GenerationConfig,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_cmal.data.collators import StudentCollator, TeacherCollator
from hf_cmal.data.columns import REFERENCES, SOURCE
from hf_cmal.data.encoding import encode_translation
from hf_cmal.data.parallel_text import load_parallel_text, load_translation_dataset, load_unlabeled_text
from hf_cmal.data.skipped import SkippedDataWarning
from hf_cmal.data.toy import toy_translation
from hf_cmal.metrics.bleu import translation_scores
from hf_cmal.rewards.base import package_version
from hf_cmal.rewards.text import word_gleu
from hf_cmal.tasks.task import ModelOptions, Role, Task

SPLITS = ("train", "validation", "test")
MOST_HELD_OUT = 500  # pairs for a split that is not given, at most a twentieth of the training pairs


@dataclass(frozen=True)
class TranslationData:
    """Where sentence pairs come from: the toy world, or two text files per split (gz or plain).

    Attributes:
        toy_rows: rows of (train, validation, test, unlabeled) drawn from the toy world; empty: text files
            are read.
        train, validation, test: [source file, target file, further target files ...] of each split. Where
            validation or test is empty, a part of the training pairs is held out for it.
        unlabeled: file of source sentences without translation, for Sec. 4.6.
        dataset, dataset_name: instead of files, an id or folder that `datasets` loads, and its configuration.
        source_column, target_column: languages (or columns) of that dataset.
        max_train_rows: only the first so many training pairs.
        vocab_size: of the shared BPE vocabulary that the teacher's stage learns (Sec. 6.1.1: 40k).
    """

    toy_rows: tuple[int, ...] = ()
    toy_seed: int = 0
    train: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    test: tuple[str, ...] = ()
    unlabeled: str | None = None
    dataset: str | None = None
    dataset_name: str | None = None
    source_column: str = "en"
    target_column: str = "de"
    max_train_rows: int | None = None
    vocab_size: int = 40_000
    max_source_length: int = 128
    max_target_length: int = 128

    @property
    def longest(self) -> int:
        """The longest sequence of either side, in tokens."""
        return max(self.max_source_length, self.max_target_length)


def load(data: TranslationData) -> dict[str, Dataset]:
    """The splits of a recipe's data."""
    if data.toy_rows:
        return _load_toy(data)
    splits = {name: _read_split(data, name) for name in SPLITS if name == "train" or _is_given(data, name)}
    for name in SPLITS:
        if name not in splits:
            splits["train"], splits[name] = _hold_out(splits["train"], name)
    if data.max_train_rows is not None and data.max_train_rows < len(splits["train"]):
        warnings.warn(
            f"max_train_rows={data.max_train_rows}: the other {len(splits['train']) - data.max_train_rows} "
            "training pairs are left out",
            SkippedDataWarning,
            stacklevel=2,
        )
        splits["train"] = splits["train"].select(range(data.max_train_rows))
    if data.unlabeled is not None:
        splits["unlabeled"] = load_unlabeled_text(data.unlabeled)
    return splits


def _is_given(data: TranslationData, split: str) -> bool:
    return data.dataset is not None or bool(getattr(data, split))


def _read_split(data: TranslationData, split: str) -> Dataset:
    if data.dataset is not None:
        return load_translation_dataset(
            data.dataset,
            split=split,
            source_column=data.source_column,
            target_column=data.target_column,
            name=data.dataset_name,
        )
    files = getattr(data, split)
    if len(files) < 2:
        raise ValueError(
            f"data.{split} is {list(files)}; give [source file, target file], a dataset, "
            "or toy_rows for the toy world"
        )
    return load_parallel_text(files[0], list(files[1:]))


def _hold_out(train: Dataset, split: str) -> tuple[Dataset, Dataset]:
    """The same rows at every stage: they depend on the number of pairs alone."""
    rows = min(MOST_HELD_OUT, len(train) // 20)
    if rows < 1:
        raise ValueError(
            f"data.{split} is empty and {len(train)} training pairs are too few to hold some out; give "
            f"data.{split}=[source file, target file]"
        )
    warnings.warn(
        f"data.{split} is empty: {rows} of {len(train)} training pairs are held out for it",
        SkippedDataWarning,
        stacklevel=3,
    )
    parts = train.train_test_split(test_size=rows, seed=0)
    return parts["train"], parts["test"]


def _load_toy(data: TranslationData) -> dict[str, Dataset]:
    if len(data.toy_rows) not in (3, 4) or min(data.toy_rows[:3]) < 1:
        raise ValueError(
            f"data.toy_rows is {list(data.toy_rows)}; give the rows of train, validation, test "
            "and, if wanted, unlabeled"
        )
    names = (*SPLITS, "unlabeled")
    return {
        name: toy_translation(rows, seed=data.toy_seed, split=name, labeled=name != "unlabeled")
        for name, rows in zip(names, data.toy_rows, strict=False)
        if rows > 0
    }


def texts(split: Dataset) -> list[str]:
    """Sources and references: the vocabulary is shared (Sec. 6.1.1)."""
    return [*split[SOURCE], *(text for references in split[REFERENCES] for text in references)]


def build_teacher(
    model: ModelOptions, data: TranslationData, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    """A new MarianMTModel with the vocabulary of `tokenizer`, decoding with beam 4 (Sec. 6.1.2)."""
    config = MarianConfig(
        vocab_size=len(tokenizer),
        decoder_vocab_size=len(tokenizer),
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
        max_position_embeddings=data.longest + 1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=tokenizer.eos_token_id,
        share_encoder_decoder_embeddings=True,
    )
    teacher = MarianMTModel(config)
    teacher.generation_config = GenerationConfig(
        num_beams=4,
        max_length=data.max_target_length + 1,
        bad_words_ids=[[tokenizer.pad_token_id]],
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.pad_token_id,
        forced_eos_token_id=tokenizer.eos_token_id,
    )
    return teacher


def encode(
    rows: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    data: TranslationData,
    *,
    role: Role,
    num_agents: int | None = None,
    allow_unlabeled: bool = False,
) -> Dataset:
    """Rows with input_ids, labels (with eos for the teacher only) and reference_ids."""
    return encode_translation(
        rows,
        tokenizer,
        max_source_length=data.max_source_length,
        max_target_length=data.max_target_length,
        label_eos=role == "teacher",
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
    return StudentCollator(pad_token_id=config.pad_token_id, length_from=length_from)


def scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float | str]:
    """sacreBLEU's scores, and the mean sentence GLEU on words: what CMAL raises, in [0, 100]."""
    gleu = word_gleu([None] * len(hypotheses), hypotheses, references=[list(group) for group in references])
    return {
        **translation_scores(hypotheses, references),
        "gleu": 100 * fmean(gleu),
        "gleu_signature": f"gleu|n:1-4|unit:words|mean:sentences|v:{package_version()}",
    }


TRANSLATION = Task(
    name="translation",
    data_options=TranslationData,
    load=load,
    texts=texts,
    build_teacher=build_teacher,
    encode=encode,
    collator=collator,
    scores=scores,
    length_mode="predicted",
    main_score="bleu",
    default_reward="gleu",
)
