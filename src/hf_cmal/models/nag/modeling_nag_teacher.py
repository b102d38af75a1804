"""The autoregressive captioning teacher: AIC of CMAL Sec. 5.1.2, the factorisation of Sec. 3.2.

The student's encoder and layers with three differences: the decoder reads the words so far, is causal, and
keeps its keys and values while generating. Parameters have the student's names, so weight-init is a copy by
name. The teacher of
translation needs no class of ours: it is transformers' MarianMTModel.
"""

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils.generic import can_return_tuple

from .configuration_nag_teacher import NagTeacherConfig
from .modeling_nag import (
    IGNORED_LABEL,
    NagDecoderLayer,
    NagEncoder,
    NagSinusoidalPositions,
    attendable,
    word_loss,
)


class NagTeacherEncoder(NagEncoder):
    """The student's encoder, called as transformers' `generate` calls encoders."""

    @can_return_tuple
    def forward(
        self,
        features: Tensor,
        feature_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutput:
        """features [B, L, feature_size] and feature_mask [B, L] (None: all real) -> states [B, L, D]."""
        if output_attentions or output_hidden_states:
            raise ValueError(
                "Attentions and hidden states are not recorded; call generate without asking for them."
            )
        return super().forward(features=features, feature_mask=feature_mask)


class NagTeacherDecoder(nn.Module):
    """Reads the words so far, each position seeing none that come after it, and observes the source."""

    def __init__(self, config: NagTeacherConfig) -> None:
        super().__init__()
        self.config = config
        self.dropout = nn.Dropout(config.dropout)
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
        self.embed_positions = NagSinusoidalPositions(config.max_position_embeddings, config.d_model)
        self.layers = nn.ModuleList(
            [
                NagDecoderLayer(config, is_causal=True, layer_idx=index)
                for index in range(config.decoder_layers)
            ]
        )

    def forward(
        self,
        decoder_input_ids: Tensor,
        encoder_hidden_states: Tensor,
        feature_mask: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """Words [B, T] (those after the cached ones) and source [B, L, D] -> states [B, T, D]."""
        own_cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
        num_cached = 0 if own_cache is None else own_cache.get_seq_length()
        embedded = self.embed_tokens(decoder_input_ids) * self.embed_scale
        positions = self.embed_positions(decoder_input_ids.shape[1], num_cached).to(embedded.dtype)
        hidden_states = self.dropout(embedded + positions)
        # Padding lies to the right of a caption, so no word ever sees it: causality is the only mask.
        causal_mask = create_causal_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=None, cache=own_cache
        )
        source_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=hidden_states,
            attention_mask=None if feature_mask is None else attendable(feature_mask),
            encoder_hidden_states=encoder_hidden_states,
        )
        for layer in self.layers:
            hidden_states = layer(hidden_states, causal_mask, encoder_hidden_states, source_mask, cache=cache)
        return hidden_states


class NagTeacherPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialising of the teacher."""

    config: NagTeacherConfig
    base_model_prefix = "model"
    main_input_name = "features"
    supports_gradient_checkpointing = True
    # the loss is a mean over the batch at hand, whatever else the optimizer step holds
    accepts_loss_kwargs = False
    _supports_sdpa = True
    _no_split_modules = ["NagEncoderLayer", "NagDecoderLayer"]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, NagSinusoidalPositions):
            init.copy_(module.weight, module.build())


class NagTeacherModel(NagTeacherPreTrainedModel):
    """Encoder and causal decoder, without the choice of words."""

    _tied_weights_keys = {"decoder.embed_tokens.weight": "shared.weight"}

    def __init__(self, config: NagTeacherConfig) -> None:
        super().__init__(config)
        self._tied_weights_keys = {}
        if config.tie_word_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
            self._tied_weights_keys = {"decoder.embed_tokens.weight": "shared.weight"}
        self.encoder = NagTeacherEncoder(config)
        self.decoder = NagTeacherDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.decoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.decoder.embed_tokens = value
        if self.config.tie_word_embeddings:
            self.shared = value

    def get_encoder(self, modality: str | None = None) -> NagTeacherEncoder:
        return self.encoder


class NagTeacherForCaptioning(NagTeacherPreTrainedModel, GenerationMixin):
    """Writes a caption of feature vectors word by word.

    `generate` is transformers' own: greedy, sampling and beam search, with a cache of keys and values.

    Example:

    ```python
    >>> import torch
    >>> from hf_cmal import NagTeacherConfig, NagTeacherForCaptioning

    >>> config = NagTeacherConfig(vocab_size=30, pad_token_id=29, feature_size=8, d_model=16)
    >>> teacher = NagTeacherForCaptioning(config)
    >>> teacher.generate(features=torch.randn(2, 5, 8), num_beams=3, max_new_tokens=16).shape[0]
    2
    ```
    """

    _tied_weights_keys = {
        "lm_head.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
    }

    def __init__(self, config: NagTeacherConfig) -> None:
        super().__init__(config)
        self._tied_weights_keys = {}
        if config.tie_word_embeddings:
            self._tied_weights_keys = {
                "lm_head.weight": "model.shared.weight",
                "model.decoder.embed_tokens.weight": "model.shared.weight",
            }
        self.model = NagTeacherModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        # generate fills ended captions up with pad; a pad that was chosen as a word could not be told from it
        forbidden = {config.pad_token_id, config.bos_token_id, config.decoder_start_token_id}
        self.generation_config.suppress_tokens = sorted(forbidden - {None, config.eos_token_id})
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.model.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model.set_input_embeddings(value)

    def get_output_embeddings(self) -> nn.Module:
        return self.lm_head

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.lm_head = value

    def get_encoder(self, modality: str | None = None) -> NagTeacherEncoder:
        return self.model.encoder

    @can_return_tuple
    def forward(
        self,
        features: Tensor | None = None,
        feature_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        labels: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        cache: Cache | None = None,
        use_cache: bool | None = None,
    ) -> Seq2SeqLMOutput:
        """Scores the next word at every position.

        Args:
            features: [B, L, feature_size]; not needed beside `encoder_outputs`.
            feature_mask: bool or 0/1, [B, L], True = real. None: all are real.
            decoder_input_ids: words so far, [B, T], starting with `decoder_start_token_id`. None: made of
                `labels`.
            labels: words to be written, eos included, [B, T], -100 ignored.
            encoder_outputs: what the encoder returned for these features.
            cache: keys and values of the words before `decoder_input_ids`.
            use_cache: return a cache; never done together with labels.

        Returns:
            Seq2SeqLMOutput: `loss` (mean cross-entropy over the labels that count; None without labels),
            `logits` [B, T, V], `cache`, `encoder_last_hidden_state` [B, L, D].
        """
        if decoder_input_ids is None:
            if labels is None:
                raise ValueError("Give decoder_input_ids or labels; to write a caption, call generate.")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        if encoder_outputs is None:
            encoder_outputs = self.model.encoder(features, feature_mask)
        if use_cache and labels is None and cache is None:
            cache = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache(config=self.config))
        states = self.model.decoder(decoder_input_ids, encoder_outputs[0], feature_mask, cache)
        logits = self.lm_head(states)  # Eq. (3): row i scores word i given the words before it and the source
        return Seq2SeqLMOutput(
            loss=None if labels is None else word_loss(logits, labels),
            logits=logits,
            cache=cache,
            encoder_last_hidden_state=encoder_outputs[0],
        )

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Labels moved to the right behind the start token, -100 turned into pad; [B, T] -> [B, T]."""
        start = labels.new_full((labels.shape[0], 1), self.config.decoder_start_token_id)
        shifted = torch.cat([start, labels[:, :-1]], dim=1)
        return shifted.masked_fill(shifted == IGNORED_LABEL, self.config.pad_token_id)
