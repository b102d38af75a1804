"""Teachers and students of both tasks, far too small to be good, saved in folders as a ladder leaves them."""

from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_cmal.data.tokenizer import train_tokenizer
from hf_cmal.tasks import ModelOptions, get_task
from hf_cmal.tasks.captioning import CaptioningData
from hf_cmal.tasks.translation import TranslationData
from hf_cmal.training.weight_init import init_student_from_teacher

TINY = ModelOptions(
    d_model=16, encoder_layers=1, decoder_layers=1, attention_heads=2, ffn_dim=16, num_agents=20,
    max_length_offset=3,
)  # fmt: skip
TRANSLATION_DATA = TranslationData(
    toy_rows=(12, 2, 10), vocab_size=450, max_source_length=48, max_target_length=48
)
CAPTIONING_DATA = CaptioningData(toy_rows=(12, 2, 10), vocab_size=450, max_target_length=20)


def save_translators(folder: Path, *, vocab_size: int = 450) -> Path:
    """`folder`/teacher and `folder`/student; a smaller vocabulary has longer sentences."""
    lengths = {
        "length_mode": "predicted",
        "max_target_length": 48,
        "max_length_offset": TINY.max_length_offset,
    }
    return _save(folder, "translation", TRANSLATION_DATA, lengths, vocab_size)


def save_captioners(folder: Path) -> Path:
    """`folder`/teacher and `folder`/student."""
    return _save(
        folder, "captioning", CAPTIONING_DATA, {"length_mode": "fixed", "num_agents": TINY.num_agents}, 450
    )


def _save(folder: Path, name: str, data: object, lengths: dict[str, object], vocab_size: int) -> Path:
    task = get_task(name)
    texts = task.texts(task.load(data)["train"])
    tokenizer = train_tokenizer(texts, vocab_size=vocab_size, model_max_length=48)
    torch.manual_seed(0)
    teacher = _livelier(task.build_teacher(TINY, data, tokenizer))
    _save_one(teacher, tokenizer, folder / "teacher")
    _save_one(_livelier(init_student_from_teacher(teacher, **lengths)), tokenizer, folder / "student")
    return folder


def _livelier(model: PreTrainedModel) -> PreTrainedModel:
    """Weights wide enough that different inputs get different sentences, and near-ties are rare."""
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.5 if "embed_tokens" in name or "shared" in name else 0.2)
    return model.eval()


def _save_one(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
