"""The options of the captioning teacher, AIC in CMAL Sec. 5.1.2: the student's Transformer without agents.

It has a model type of its own: under the student's, a teacher's folder would load as a student without a
complaint. The defaults are Transformer-Base. Settings of decoding live in generation_config.json, never here.
"""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig


@strict
class NagTeacherConfig(PreTrainedConfig):
    r"""Configuration of [`NagTeacherForCaptioning`].

    Args:
        vocab_size: number of words V.
        feature_size: width of one input feature vector; 2048 for bottom-up region features.
        d_model: width D of the hidden states.
        encoder_layers, decoder_layers: number of blocks.
        encoder_attention_heads, decoder_attention_heads: heads per attention; must divide `d_model`.
        encoder_ffn_dim, decoder_ffn_dim: width inside the feed-forward networks.
        dropout, attention_dropout, activation_dropout: probabilities of dropping, as in Marian.
        activation_function: non-linearity of the feed-forward networks.
        scale_embedding: multiply the word embeddings by sqrt(d_model).
        max_position_embeddings: the longest caption, in tokens.
        init_std: standard deviation of freshly drawn weights.
        pad_token_id: fills up short rows; never generated.
        eos_token_id: ends a caption.
        bos_token_id: None if the tokenizer has none; never generated.
        decoder_start_token_id: what the decoder reads before the first word; None stands for `pad_token_id`,
            as in Marian.
        tie_word_embeddings: one matrix for the words read and the words written.

    Errors:
        ValueError if a value is not legal; the message names the legal ones. ValueError if the dictionary to
        load is that of another model type.
    """

    model_type = "cmal_nag_teacher"
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }
    keys_to_ignore_at_inference = ["cache", "encoder_last_hidden_state"]

    vocab_size: int = 40000
    feature_size: int = 2048
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    encoder_attention_heads: int = 8
    decoder_attention_heads: int = 8
    encoder_ffn_dim: int = 2048
    decoder_ffn_dim: int = 2048
    dropout: float | int = 0.1
    attention_dropout: float | int = 0.0
    activation_dropout: float | int = 0.0
    activation_function: str = "relu"
    scale_embedding: bool = True
    max_position_embeddings: int = 512
    init_std: float = 0.02
    pad_token_id: int | None = 39999
    eos_token_id: int | None = 0
    bos_token_id: int | None = None
    decoder_start_token_id: int | None = None
    tie_word_embeddings: bool = True
    is_encoder_decoder: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.pad_token_id
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            if getattr(self, name) < 1 or self.d_model % getattr(self, name) != 0:
                raise ValueError(f"{name}={getattr(self, name)} must divide d_model={self.d_model}.")
        for name in ("pad_token_id", "eos_token_id"):
            if getattr(self, name) is None:
                raise ValueError(
                    f"{name} must be set: captions of a batch differ in length, and each has an end."
                )
        for name in ("pad_token_id", "eos_token_id", "bos_token_id", "decoder_start_token_id"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < self.vocab_size:
                raise ValueError(f"{name}={value} must lie in 0..{self.vocab_size - 1} (vocab_size - 1).")
        if self.pad_token_id == self.eos_token_id:
            raise ValueError(
                f"pad_token_id and eos_token_id are both {self.pad_token_id}; padding is never generated, "
                "eos must be."
            )
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> "NagTeacherConfig":
        model_type = config_dict.get("model_type", cls.model_type)
        if model_type != cls.model_type:
            # transformers would only warn and then read a student's weights into a teacher
            raise ValueError(
                f"This is the configuration of a {model_type!r} model, not of a {cls.model_type!r} teacher. "
                "Load it with its own class."
            )
        return super().from_dict(config_dict, **kwargs)
