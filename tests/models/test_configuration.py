"""NagConfig: illegal values are refused with the legal ones named, and nothing is lost on the way to disk."""

from typing import Any

import pytest
from transformers import MarianConfig

from hf_cmal.models.nag.configuration_nag import NagConfig


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"length_mode": "guessed"}, "predicted.*fixed.*guessed"),
        ({"encoder_attention_heads": 7}, "encoder_attention_heads=7 must divide d_model=512"),
        ({"decoder_attention_heads": 5}, "decoder_attention_heads=5 must divide d_model=512"),
        ({"encoder_layers": 0}, "encoder_layers must be at least 1"),
        ({"dropout": 1.0}, r"dropout must be in \[0, 1\)"),
        ({"activation_function": "rilu"}, "activation_function must be one of .*relu.*got 'rilu'"),
        ({"feature_size": 0}, "feature_size must be None"),
        ({"pad_token_id": None}, "pad_token_id must be set"),
        ({"pad_token_id": 40000}, r"pad_token_id=40000 must lie in 0\.\.39999"),
        ({"pad_token_id": 0, "eos_token_id": 0}, "Give them two ids"),
        ({"eos_token_id": None, "length_mode": "fixed"}, "needs eos_token_id"),
        ({"num_agents": 0, "length_mode": "fixed"}, r"num_agents=0 must lie in 1\.\.512"),
        ({"num_agents": 600, "length_mode": "fixed"}, r"num_agents=600 must lie in 1\.\.512"),
        ({"max_target_length": 513}, r"max_target_length=513 must lie in 1\.\.512"),
        ({"max_length_offset": -1}, "max_length_offset must be at least 0"),
        ({"length_loss_weight": -0.1}, "length_loss_weight must be at least 0"),
    ],
)
def test_an_illegal_value_is_refused_and_the_legal_ones_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        NagConfig(**options)


def test_a_value_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(Exception, match="num_agents"):
        NagConfig(num_agents="sixteen")


def test_defaults_are_transformer_base_and_the_papers_settings() -> None:
    config = NagConfig()
    # Transformer-Base (Sec. 6.1.2): 6 layers, d 512, 8 heads, 2048 inside
    assert (config.encoder_layers, config.decoder_layers) == (6, 6)
    assert (config.d_model, config.encoder_ffn_dim, config.decoder_ffn_dim) == (512, 2048, 2048)
    assert (config.encoder_attention_heads, config.decoder_attention_heads) == (8, 8)
    # ReLU (Eq. (2)), N = 16 (Sec. 5.1.2)
    assert config.activation_function == "relu"
    assert config.num_agents == 16
    assert config.length_mode == "predicted"


def test_the_target_may_be_as_long_as_there_are_positions_unless_said_otherwise() -> None:
    assert NagConfig(max_position_embeddings=64).max_target_length == 64
    assert NagConfig(max_position_embeddings=64, max_target_length=40).max_target_length == 40


def test_the_number_of_agents_is_not_limited_by_an_unused_fixed_mode() -> None:
    # N=16 is the default of the fixed mode; a small predicted model need not change it
    assert NagConfig(max_position_embeddings=8).num_agents == 16


def test_saved_and_loaded_configurations_are_equal(tmp_path: Any) -> None:
    config = NagConfig(length_mode="fixed", num_agents=5, feature_size=12, activation_function="swish")
    config.save_pretrained(tmp_path)
    loaded = NagConfig.from_pretrained(tmp_path)
    assert loaded.to_dict() == config.to_dict()
    assert loaded.to_dict() != NagConfig().to_dict()


def test_the_configuration_of_another_model_is_refused(tmp_path: Any) -> None:
    MarianConfig().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'marian' model.*init_student_from_teacher"):
        NagConfig.from_pretrained(tmp_path)


def test_decoding_settings_do_not_get_into_the_model_configuration() -> None:
    saved = NagConfig(max_length=33, num_beams=4).to_dict()
    assert "max_length" not in saved
    assert "num_beams" not in saved
