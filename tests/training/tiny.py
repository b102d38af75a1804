"""A tiny task for the tests of the trainers: word i is translated as word FIRST + (7 i) mod 40, in order.

Sources have two to five words. The vocabulary has 50 entries: eos 0, unk 1, words 2..48, pad 49. The pictures
are sequences of one-hot-like vectors for the same sentences. Everything is real and has d_model 16.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import MarianConfig, MarianMTModel, PreTrainedModel, TrainerCallback

from hf_cmal.data.collators import StudentCollator, TeacherCollator
from hf_cmal.models.nag.configuration_nag import NagConfig
from hf_cmal.models.nag.configuration_nag_teacher import NagTeacherConfig
from hf_cmal.models.nag.modeling_nag import NagForCaptioning, NagForTranslation
from hf_cmal.models.nag.modeling_nag_teacher import NagTeacherForCaptioning
from hf_cmal.training.arguments import CmalTrainingArguments, XeTrainingArguments
from hf_cmal.training.sequence_trainer import SequenceTrainer

EOS, UNK, FIRST, PAD, VOCABULARY = 0, 1, 2, 49, 50
FEATURE_SIZE, NUM_AGENTS = 6, 7

SHAPE = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 16,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    # wide enough that the words of a fresh model differ visibly
    "init_std": 0.2,
}
MARIAN = {"decoder_start_token_id": PAD, "forced_eos_token_id": EOS, "bos_token_id": None}


def teacher(dropout: float = 0.0) -> MarianMTModel:
    torch.manual_seed(0)
    return MarianMTModel(MarianConfig(**SHAPE, **MARIAN, decoder_vocab_size=VOCABULARY, dropout=dropout))


def captioning_teacher(dropout: float = 0.0) -> NagTeacherForCaptioning:
    torch.manual_seed(0)
    config = NagTeacherConfig(**SHAPE, feature_size=FEATURE_SIZE, decoder_start_token_id=PAD, dropout=dropout)
    return NagTeacherForCaptioning(config)


def translator(dropout: float = 0.0, **options: Any) -> NagForTranslation:
    """A student of predicted length."""
    torch.manual_seed(0)
    options = {"max_length_offset": 3, "max_target_length": 12, "dropout": dropout, **options}
    return NagForTranslation(NagConfig(**SHAPE, **options))


def captioner(dropout: float = 0.0) -> NagForCaptioning:
    """A student with a fixed number of agents."""
    torch.manual_seed(0)
    config = NagConfig(
        **SHAPE, feature_size=FEATURE_SIZE, length_mode="fixed", num_agents=NUM_AGENTS, dropout=dropout
    )
    return NagForCaptioning(config)


MODELS = {
    "teacher": teacher,
    "captioning_teacher": captioning_teacher,
    "translator": translator,
    "captioner": captioner,
}


def words(ids: list[int]) -> str:
    return " ".join(f"w{i}" for i in ids)


def decode(sentences: Any) -> list[str]:
    return [words([int(i) for i in ids]) for ids in sentences]


def sentence_pairs(num_rows: int, *, seed: int = 0) -> list[tuple[list[int], list[int]]]:
    """Sources and targets; a target is as long as its source, or one word longer (the last one twice)."""
    generator = np.random.default_rng(seed)
    pairs = []
    for row in range(num_rows):
        source = generator.choice(40, size=generator.integers(2, 6), replace=False).tolist()
        target = [FIRST + (7 * i) % 40 for i in source]
        pairs.append(([FIRST + i for i in source], target + target[-1:] * (row % 2)))
    return pairs


def make_rows(model: PreTrainedModel, num_rows: int, *, seed: int = 0) -> Dataset:
    """Encoded rows as `hf_cmal.data.encoding` makes them, for this kind of model."""
    rows = []
    label_eos = model.config.model_type != "cmal_nag" or model.config.length_mode == "fixed"
    for number, (source, target) in enumerate(sentence_pairs(num_rows, seed=seed)):
        row = {
            "source": words(source),
            "references": [words(target)],
            "reference_ids": [target],
            "labels": [*target, *([EOS] if label_eos else [])],
            "image_id": f"picture {number}",
        }
        if reads_features(model):
            bits = [[float(word >> bit & 1) for bit in range(FEATURE_SIZE)] for word in source]
            rows.append(row | {"features": bits})
        else:
            rows.append(row | {"input_ids": [*source, EOS]})
    return Dataset.from_list(rows)


def reads_features(model: PreTrainedModel) -> bool:
    return model.config.model_type == "cmal_nag_teacher" or (
        model.config.model_type == "cmal_nag" and model.config.feature_size is not None
    )


def collator(model: PreTrainedModel) -> TeacherCollator | StudentCollator:
    if model.config.model_type != "cmal_nag":
        return TeacherCollator(pad_token_id=PAD, decoder_start_token_id=PAD)
    fixed = model.config.length_mode == "fixed"
    return StudentCollator(pad_token_id=PAD, num_agents=model.config.num_agents if fixed else None)


def make_trainer(
    trainer_class: type[SequenceTrainer],
    model: PreTrainedModel,
    rows: Dataset,
    folder: str | Path,
    *,
    trainer_options: dict[str, Any] | None = None,
    **options: Any,
) -> SequenceTrainer:
    """A trainer on the CPU that logs every step, neither evaluates nor saves unless `options` say so."""
    arguments_class = (
        CmalTrainingArguments if trainer_class.__name__ == "CmalTrainer" else XeTrainingArguments
    )
    arguments = arguments_class(
        output_dir=str(folder),
        **{
            "use_cpu": True,
            "disable_tqdm": True,
            "save_strategy": "no",
            "logging_steps": 1,
            "per_device_train_batch_size": 4,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
            **options,
        },
    )
    return trainer_class(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=collator(model),
        **trainer_options or {},
    )


class Gradients(TrainerCallback):
    """Keeps a copy of the gradients of the last optimizer step, as the optimizer saw them."""

    def __init__(self) -> None:
        self.of: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = kwargs["model"]
        self.of = {
            name.removeprefix("module."): parameter.grad.clone()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }


def gradients_of_one_step(
    trainer_class: type[SequenceTrainer], model: PreTrainedModel, rows: Dataset, folder: Any, **options: Any
) -> dict[str, torch.Tensor]:
    """The gradients of the first optimizer step, not clipped."""
    trainer = make_trainer(trainer_class, model, rows, folder, max_steps=1, max_grad_norm=0.0, **options)
    gradients = Gradients()
    trainer.add_callback(gradients)
    trainer.train()
    return gradients.of


def largest_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """Between two sets of gradients or weights, relative to the largest entry of `one`."""
    assert one.keys() == other.keys()
    scale = max(float(value.abs().max()) for value in one.values())
    return max(float((one[name] - other[name]).abs().max()) for name in one) / scale
