"""Saves one small checkpoint of each kind, and says what it must answer wherever it is loaded."""

from pathlib import Path
from typing import Any

import torch

import hf_cmal
from tests.models.tiny_text import EOS, PAD, VOCABULARY, tiny_tokenizer

SEED = 0
TEXTS = ["a man", "a dog on a ladder", "mann"]
SIZES = {
    "vocab_size": len(VOCABULARY),
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 32,
    "init_std": 1.0,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
}

# For a process without hf_cmal: what the three checkpoints answer, loaded from folders or from the Hub.
ANSWERS = """
import json, torch
from transformers import AutoModelForImageTextToText, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

def features():
    return torch.arange(2 * 3 * 4).reshape(2, 3, 4).sin()

def answers(translator, student, teacher):
    model = AutoModelForSeq2SeqLM.from_pretrained(translator, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(translator, trust_remote_code=True)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    inferred = pipeline(model=translator, trust_remote_code=True, device="cpu")
    named = pipeline("nag-translation", model=translator, trust_remote_code=True, device="cpu")
    captioners = [
        AutoModelForImageTextToText.from_pretrained(name, trust_remote_code=True) for name in (student,
        teacher)
    ]
    return {
        "tokens": model.generate(**batch).tolist(),
        "inferred": inferred(TEXTS),
        "named": named(TEXTS, batch_size=2, remove_consecutive_duplicates=True),
        "captions": captioners[0].generate(features=features()).tolist(),
        "beam": captioners[1].generate(features=features(), num_beams=3, max_new_tokens=6).tolist(),
        "classes": [type(loaded).__name__ for loaded in (model, *captioners)],
    }

try:
    import hf_cmal
except ModuleNotFoundError:
    pass
else:
    raise AssertionError("hf_cmal is importable, so this process proves nothing")
"""


def features() -> torch.Tensor:
    return torch.arange(2 * 3 * 4).reshape(2, 3, 4).sin()


def save_checkpoints(folder: Path) -> dict[str, Any]:
    """Writes folder/{translator,student,teacher} and returns the answers of the models in this process."""
    # Drawn so that the pictures get different captions.
    torch.manual_seed(SEED)
    tokenizer = tiny_tokenizer()
    translator = hf_cmal.NagForTranslation(
        hf_cmal.NagConfig(**SIZES, max_target_length=8, max_length_offset=3)
    ).eval()
    student = hf_cmal.NagForCaptioning(
        hf_cmal.NagConfig(**SIZES, feature_size=4, length_mode="fixed", num_agents=6)
    ).eval()
    teacher = hf_cmal.NagTeacherForCaptioning(hf_cmal.NagTeacherConfig(**SIZES, feature_size=4)).eval()
    for name, model in {"translator": translator, "student": student, "teacher": teacher}.items():
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    tokens = translator.generate(**batch)
    shortened = translator.generate(**batch, remove_consecutive_duplicates=True)
    return {
        "tokens": tokens.tolist(),
        "inferred": _records(tokenizer, tokens),
        "named": _records(tokenizer, shortened),
        "captions": student.generate(features=features()).tolist(),
        "beam": teacher.generate(features=features(), num_beams=3, max_new_tokens=6).tolist(),
        "classes": ["NagForTranslation", "NagForCaptioning", "NagTeacherForCaptioning"],
    }


def _records(tokenizer: Any, tokens: torch.Tensor) -> list[dict[str, str]]:
    return [{"translation_text": text} for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]
