"""The options of a NAG student: Marian's names for the Transformer (CMAL Sec. 3.1), plus how the number of
agents is found (fixed N of Sec. 5.1.2, or predicted as in Sec. 6.1.2) and what the encoder reads (tokens or
features, Sec. 4.1).

The defaults are Transformer-Base. Settings of decoding live in generation_config.json, never here.
"""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig

LENGTH_MODES = ("predicted", "fixed")


@strict
class NagConfig(PreTrainedConfig):
    r"""Configuration of [`NagModel`], [`NagForTranslation`] and [`NagForCaptioning`].

    Args:
        vocab_size: number of words V every agent chooses from.
        d_model: width D of the hidden states.
        encoder_layers, decoder_layers: number of blocks.
        encoder_attention_heads, decoder_attention_heads: heads per attention; must divide `d_model`.
        encoder_ffn_dim, decoder_ffn_dim: width inside the feed-forward networks.
        dropout, attention_dropout, activation_dropout: probabilities of dropping, as in Marian.
        activation_function: non-linearity of the feed-forward networks ("relu" in Eq. (2), "swish" in OPUS
            models).
        scale_embedding: multiply the source embeddings by sqrt(d_model).
        max_position_embeddings: the longest source (in tokens) and the largest number of agents.
        init_std: standard deviation of freshly drawn weights.
        pad_token_id: fills up short rows; never generated.
        eos_token_id: ends a sentence in the fixed mode; never generated in the predicted mode.
        bos_token_id: never generated; None if the tokenizer has none.
        tie_word_embeddings: one matrix for source embeddings and output words.
        length_mode: "predicted" (the length predictor decides the number of agents) or "fixed" (`num_agents`
            agents, the sentence ends at the first eos).
        num_agents: N of the fixed mode; 16 in Sec. 5.1.2.
        max_target_length: the largest number of agents that the length predictor may ask for;
            None stands for `max_position_embeddings`.
        max_length_offset: m; the predictor chooses among the offsets -m..m of target minus source length.
        length_loss_weight: weight of the length loss beside the word loss.
        feature_size: width of one input feature vector, or None if the source is token ids.

    Errors:
        ValueError if a value is not legal; the message names the legal ones. ValueError if the dictionary to
        load is that of another model type (an autoregressive teacher, a Marian model).
    """

    model_type = "cmal_nag"
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    }
    keys_to_ignore_at_inference = ["length_logits", "agent_mask", "encoder_last_hidden_state"]

    vocab_size: int = 40000
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
    tie_word_embeddings: bool = True
    is_encoder_decoder: bool = True
    length_mode: str = "predicted"
    num_agents: int = 16
    max_target_length: int | None = None
    max_length_offset: int = 128
    length_loss_weight: float | int = 0.1
    feature_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.max_target_length is None:
            self.max_target_length = self.max_position_embeddings
        self._check_shapes()
        self._check_special_tokens()
        self._check_lengths()
        if __name__.startswith("hf_cmal."):
            # What a folder says of its own pipeline is for where this package is absent. Here the registered
            # task serves, which needs no trust_remote_code.
            kwargs.pop("custom_pipelines", None)
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> "NagConfig":
        model_type = config_dict.get("model_type", cls.model_type)
        if model_type != cls.model_type:
            # transformers would only warn and then read a teacher's weights into a student
            raise ValueError(
                f"This is the configuration of a {model_type!r} model, not of a {cls.model_type!r} student. "
                "Load it with its own class; hf_cmal.init_student_from_teacher makes a student of a teacher."
            )
        return super().from_dict(config_dict, **kwargs)

    def _check_shapes(self) -> None:
        for name in (
            "vocab_size",
            "d_model",
            "encoder_layers",
            "decoder_layers",
            "encoder_attention_heads",
            "decoder_attention_heads",
            "encoder_ffn_dim",
            "decoder_ffn_dim",
            "max_position_embeddings",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name in ("encoder_attention_heads", "decoder_attention_heads"):
            if self.d_model % getattr(self, name) != 0:
                raise ValueError(f"{name}={getattr(self, name)} must divide d_model={self.d_model}.")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be in [0, 1), got {getattr(self, name)}.")
        if self.activation_function not in ACT2FN:
            raise ValueError(
                f"activation_function must be one of {', '.join(sorted(ACT2FN))}; "
                f"got {self.activation_function!r}."
            )
        if self.feature_size is not None and self.feature_size < 1:
            raise ValueError(f"feature_size must be None (tokens) or at least 1, got {self.feature_size}.")

    def _check_special_tokens(self) -> None:
        for name in ("pad_token_id", "eos_token_id", "bos_token_id"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < self.vocab_size:
                raise ValueError(f"{name}={value} must lie in 0..{self.vocab_size - 1} (vocab_size - 1).")
        if self.pad_token_id is None:
            raise ValueError("pad_token_id must be set: short rows of a batch are filled up with it.")
        if self.pad_token_id == self.eos_token_id:
            raise ValueError(
                f"pad_token_id and eos_token_id are both {self.pad_token_id}, but padding is never generated "
                "and eos must be. Give them two ids."
            )

    def _check_lengths(self) -> None:
        if self.length_mode not in LENGTH_MODES:
            raise ValueError(f"length_mode must be one of {LENGTH_MODES}, got {self.length_mode!r}.")
        if self.length_mode == "fixed" and self.eos_token_id is None:
            raise ValueError("length_mode='fixed' needs eos_token_id: a sentence ends at the first eos.")
        limits = {"max_target_length": self.max_target_length}
        if self.length_mode == "fixed":
            limits["num_agents"] = self.num_agents
        for name, value in limits.items():
            if not 1 <= value <= self.max_position_embeddings:
                raise ValueError(
                    f"{name}={value} must lie in 1..{self.max_position_embeddings} (max_position_embeddings)."
                )
        if self.max_length_offset < 0:
            raise ValueError(f"max_length_offset must be at least 0, got {self.max_length_offset}.")
        if self.length_loss_weight < 0:
            raise ValueError(f"length_loss_weight must be at least 0, got {self.length_loss_weight}.")
