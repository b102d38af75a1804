"""Tiny real students for the tests of the models."""

from typing import Any

import torch

from hf_cmal.models.nag.configuration_nag import NagConfig
from hf_cmal.models.nag.modeling_nag import NagForCaptioning, NagForTranslation

EOS, PAD, VOCABULARY = 0, 29, 30

TINY = {
    "vocab_size": VOCABULARY,
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 24,
    "max_length_offset": 3,
    "dropout": 0.1,
    # wide enough that the logits of a fresh model differ visibly
    "init_std": 0.4,
}


def tiny_translator(**options: Any) -> NagForTranslation:
    """A student on tokens in the predicted mode, unless `options` say otherwise; in eval mode."""
    torch.manual_seed(0)
    return NagForTranslation(NagConfig(**{**TINY, **options})).eval()


def tiny_captioner(**options: Any) -> NagForCaptioning:
    """A student on vectors of width 6 with five agents, unless `options` say otherwise; in eval mode."""
    torch.manual_seed(0)
    fixed = {"feature_size": 6, "length_mode": "fixed", "num_agents": 5}
    return NagForCaptioning(NagConfig(**{**TINY, **fixed, **options})).eval()


def source_batch() -> dict[str, torch.Tensor]:
    """Two sources, of five and three tokens."""
    return {
        "input_ids": torch.tensor([[3, 7, 5, 11, EOS], [4, 8, EOS, PAD, PAD]]),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
    }


def feature_batch() -> dict[str, torch.Tensor]:
    """Two pictures, of four and two vectors."""
    features = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(1))
    return {"features": features, "feature_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])}
