"""The NAG Transformer: it reads a source once and writes all words at once (CMAL Secs. 3.1, 3.3 and 4.1).

A post-norm Transformer with Marian's parameter names, so that the weights of a MarianMT teacher are copied
over by name. Three changes make it non-autoregressive: the decoder reads sinusoidal positions only, nothing
is causal, and the number of agents (positions) is fixed or predicted from the source (Sec. 6.1.2). The
attention and the layers can be causal and cached as well: the captioning teacher is built of them. Rewards
and sampling are not here.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.cache_utils import EncoderDecoderCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from .configuration_nag import NagConfig
from .generation_nag import NagGenerationConfig, NagGenerationMixin
from .sequences_nag import length_mask

IGNORED_LABEL = -100


@dataclass
class NagModelOutput(ModelOutput):
    """What [`NagModel`] returns.

    Args:
        last_hidden_state: states of the agents after the last decoder layer, [B, N, D].
        length_logits: scores of the length offsets -m..m, [B, 2m+1]; None in the fixed mode.
        agent_mask: bool, True where there is an agent, [B, N].
        encoder_last_hidden_state: states of the source, [B, L, D].
    """

    last_hidden_state: Tensor | None = None
    length_logits: Tensor | None = None
    agent_mask: Tensor | None = None
    encoder_last_hidden_state: Tensor | None = None


@dataclass
class NagOutput(ModelOutput):
    """What [`NagForTranslation`] and [`NagForCaptioning`] return.

    Args:
        loss: scalar, mean word cross-entropy plus the weighted mean length loss; None without labels.
        logits: raw scores of the words (nothing suppressed), [B, N, V].
        length_logits: scores of the length offsets -m..m, [B, 2m+1]; None in the fixed mode.
        agent_mask: bool, True where there is an agent, [B, N].
        encoder_last_hidden_state: states of the source, [B, L, D].
    """

    loss: Tensor | None = None
    logits: Tensor | None = None
    length_logits: Tensor | None = None
    agent_mask: Tensor | None = None
    encoder_last_hidden_state: Tensor | None = None


class NagSinusoidalPositions(nn.Module):
    """Sinusoidal positional encodings in Marian's layout: all sines, then all cosines. Fixed, never saved."""

    def __init__(self, num_positions: int, dim: int) -> None:
        super().__init__()
        self.num_positions = num_positions
        self.dim = dim
        self.register_buffer("weight", self.build(), persistent=False)

    def build(self) -> Tensor:
        """Column c of either half turns with frequency 10000^(-2c/D); shape [positions, D]."""
        half = (self.dim + 1) // 2
        position = torch.arange(self.num_positions, dtype=torch.float64, device="cpu").unsqueeze(1)
        column = torch.arange(half, dtype=torch.float64, device="cpu")
        angle = position / 10000.0 ** (2 * column / self.dim)
        # an odd width has one sine more than cosines
        return torch.cat([angle.sin(), angle[:, : self.dim // 2].cos()], dim=1).to(torch.get_default_dtype())

    def forward(self, length: int, start: int = 0) -> Tensor:
        """The encodings of positions start..start+length-1; shape [length, D]."""
        if start + length > self.num_positions:
            raise ValueError(
                f"{start + length} positions asked for, but max_position_embeddings={self.num_positions}. "
                "Cut the sequence, or build the model with a larger max_position_embeddings."
            )
        return self.weight[start : start + length]


def attendable(mask: Tensor) -> Tensor:
    """The keys that queries look at: the real ones, or all where a row has none.

    A softmax over no key is 0/0. A fully padded row therefore attends to its padding; the mask hides what
    comes out. bool or 0/1, [B, L] -> bool, [B, L].
    """
    mask = mask.bool()
    return mask | ~mask.any(dim=-1, keepdim=True)


def eager_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """Attention written out; query, key, value [B, heads, T, D/heads] -> [B, T, heads, D/heads], weights.

    The softmax runs in float32: in fp16 a score below a large negative mask overflows.
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    output = torch.matmul(weights, value)  # Eq. (1)
    return output.transpose(1, 2).contiguous(), weights


class NagAttention(nn.Module):
    """Multi-head attention of CMAL Eq. (1), with Marian's parameter names.

    Keys and values come from the queries' own sequence, or from `key_value_states` (inter-attention). With a
    cache, earlier keys and values are kept; that needs `layer_idx`, and only teachers use it.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        num_heads: int,
        *,
        is_causal: bool = False,
        layer_idx: int | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.head_dim = config.d_model // num_heads
        self.scaling = self.head_dim**-0.5
        self.dropout = config.attention_dropout
        # read by the sdpa kernel, which takes a module without this attribute for a causal one
        self.is_causal = is_causal
        self.layer_idx = layer_idx
        self.k_proj = nn.Linear(config.d_model, config.d_model)
        self.v_proj = nn.Linear(config.d_model, config.d_model)
        self.q_proj = nn.Linear(config.d_model, config.d_model)
        self.out_proj = nn.Linear(config.d_model, config.d_model)

    def _split_heads(self, states: Tensor) -> Tensor:
        return states.view(*states.shape[:-1], -1, self.head_dim).transpose(1, 2)

    def _keys_and_values(
        self, states: Tensor, cache: EncoderDecoderCache | None, is_cross: bool
    ) -> tuple[Tensor, Tensor]:
        if cache is not None and is_cross and cache.is_updated.get(self.layer_idx):
            layer = cache.cross_attention_cache.layers[self.layer_idx]
            return layer.keys, layer.values
        key, value = self._split_heads(self.k_proj(states)), self._split_heads(self.v_proj(states))
        if cache is not None:
            own_cache = cache.cross_attention_cache if is_cross else cache.self_attention_cache
            key, value = own_cache.update(key, value, self.layer_idx)
            if is_cross:
                cache.is_updated[self.layer_idx] = True
        return key, value

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        key_value_states: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
    ) -> Tensor:
        """hidden_states [B, T, D], key_value_states [B, L, D] or None -> [B, T, D]."""
        is_cross = key_value_states is not None
        query = self._split_heads(self.q_proj(hidden_states))
        key, value = self._keys_and_values(key_value_states if is_cross else hidden_states, cache, is_cross)
        attention: Callable[..., tuple[Tensor, Tensor | None]] = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        dropout = self.dropout if self.training else 0.0
        output, _ = attention(self, query, key, value, attention_mask, scaling=self.scaling, dropout=dropout)
        return self.out_proj(output.reshape(*hidden_states.shape[:-1], -1))


class NagEncoderLayer(GradientCheckpointingLayer):
    """Self-attention and feed-forward network, each followed by dropout, residual and layer norm."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.activation_dropout = nn.Dropout(config.activation_dropout)
        self.activation_fn = ACT2FN[config.activation_function]
        self.self_attn = NagAttention(config, config.encoder_attention_heads)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = nn.Linear(config.d_model, config.encoder_ffn_dim)
        self.fc2 = nn.Linear(config.encoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)

    def forward(self, hidden_states: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """[B, L, D] -> [B, L, D]; `attention_mask` as made by transformers' mask functions."""
        update = self.self_attn(hidden_states, attention_mask)
        hidden_states = self.self_attn_layer_norm(hidden_states + self.dropout(update))
        update = self.fc2(self.activation_dropout(self.activation_fn(self.fc1(hidden_states))))  # Eq. (2)
        return self.final_layer_norm(hidden_states + self.dropout(update))


class NagDecoderLayer(GradientCheckpointingLayer):
    """Self-attention, inter-attention, feed-forward; each followed by dropout, residual and layer norm.

    The agents talk to one another in `self_attn` and observe the source in `encoder_attn` (CMAL Sec. 4.2,
    State). A teacher passes `is_causal=True` and a cache.
    """

    def __init__(
        self, config: PreTrainedConfig, *, is_causal: bool = False, layer_idx: int | None = None
    ) -> None:
        super().__init__()
        heads = config.decoder_attention_heads
        self.dropout = nn.Dropout(config.dropout)
        self.activation_dropout = nn.Dropout(config.activation_dropout)
        self.activation_fn = ACT2FN[config.activation_function]
        self.self_attn = NagAttention(config, heads, is_causal=is_causal, layer_idx=layer_idx)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.encoder_attn = NagAttention(config, heads, layer_idx=layer_idx)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = nn.Linear(config.d_model, config.decoder_ffn_dim)
        self.fc2 = nn.Linear(config.decoder_ffn_dim, config.d_model)
        self.final_layer_norm = nn.LayerNorm(config.d_model)

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None,
        encoder_hidden_states: Tensor,
        encoder_attention_mask: Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
    ) -> Tensor:
        """[B, N, D] and the source [B, L, D] -> [B, N, D]."""
        update = self.self_attn(hidden_states, attention_mask, cache=cache)
        hidden_states = self.self_attn_layer_norm(hidden_states + self.dropout(update))
        update = self.encoder_attn(hidden_states, encoder_attention_mask, encoder_hidden_states, cache=cache)
        hidden_states = self.encoder_attn_layer_norm(hidden_states + self.dropout(update))
        update = self.fc2(self.activation_dropout(self.activation_fn(self.fc1(hidden_states))))  # Eq. (2)
        return self.final_layer_norm(hidden_states + self.dropout(update))


class NagEncoder(nn.Module):
    """Turns a source into context: token ids with positions, or feature vectors without (CMAL Sec. 4.1).

    Teacher and student share this class, so a teacher's encoder is copied by name. `config` needs the fields
    of [`NagConfig`] that describe the encoder.
    """

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        self.config = config
        self.dropout = nn.Dropout(config.dropout)
        self.embed_scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        if config.feature_size is None:
            self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
            self.embed_positions = NagSinusoidalPositions(config.max_position_embeddings, config.d_model)
        else:
            self.embed_features = nn.Linear(config.feature_size, config.d_model)
        self.layers = nn.ModuleList([NagEncoderLayer(config) for _ in range(config.encoder_layers)])

    @property
    def main_input_name(self) -> str:
        return "input_ids" if self.config.feature_size is None else "features"

    def _embed(self, input_ids: Tensor | None, features: Tensor | None) -> Tensor:
        if self.config.feature_size is None:
            if input_ids is None or features is not None:
                raise ValueError(
                    "feature_size=None: this encoder reads input_ids (and attention_mask), not features."
                )
            embedded = self.embed_tokens(input_ids) * self.embed_scale
            return embedded + self.embed_positions(input_ids.shape[1]).to(embedded.dtype)
        if features is None or input_ids is not None:
            raise ValueError(
                f"feature_size={self.config.feature_size}: this encoder reads features (and feature_mask), "
                "not input_ids."
            )
        if features.shape[-1] != self.config.feature_size:
            raise ValueError(
                f"features are {features.shape[-1]} wide, but feature_size={self.config.feature_size}."
            )
        return nn.functional.relu(self.embed_features(features.to(self.embed_features.weight.dtype)))

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        features: Tensor | None = None,
        feature_mask: Tensor | None = None,
    ) -> BaseModelOutput:
        """input_ids and attention_mask [B, L]; or features [B, L, feature_size] and feature_mask [B, L].

        A mask that is None: all are real. Returns `last_hidden_state` [B, L, D]. Errors: ValueError if the
        inputs do not fit the configuration or are longer than max_position_embeddings.
        """
        hidden_states = self.dropout(self._embed(input_ids, features))
        mask = attention_mask if self.config.feature_size is None else feature_mask
        layer_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=hidden_states,
            attention_mask=None if mask is None else attendable(mask),
        )
        for layer in self.layers:
            hidden_states = layer(hidden_states, layer_mask)
        return BaseModelOutput(last_hidden_state=hidden_states)


class NagDecoder(nn.Module):
    """N agents that start as sinusoidal positions, talk to each other and observe the source (Sec. 4.1)."""

    def __init__(self, config: NagConfig) -> None:
        super().__init__()
        self.config = config
        self.dropout = nn.Dropout(config.dropout)
        self.embed_positions = NagSinusoidalPositions(config.max_position_embeddings, config.d_model)
        self.layers = nn.ModuleList([NagDecoderLayer(config) for _ in range(config.decoder_layers)])

    def forward(
        self,
        num_agents: int,
        agent_mask: Tensor | None,
        encoder_hidden_states: Tensor,
        encoder_attention_mask: Tensor | None = None,
        word_embeddings: Tensor | None = None,
    ) -> Tensor:
        """The agents' final states, [B, N, D].

        Args:
            num_agents: N.
            agent_mask: bool, [B, N]; no agent attends to the False ones. None: all are real.
            encoder_hidden_states: the source, [B, L, D].
            encoder_attention_mask: bool or 0/1, [B, L]. None: all are real.
            word_embeddings: added to the positions, [B, N, D]; only in training by glancing.
        """
        positions = self.embed_positions(num_agents).to(encoder_hidden_states.dtype)
        inputs = positions.expand(encoder_hidden_states.shape[0], -1, -1)
        if word_embeddings is not None:
            inputs = inputs + word_embeddings.to(inputs.dtype)
        hidden_states = self.dropout(inputs)
        self_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=hidden_states,
            attention_mask=None if agent_mask is None else attendable(agent_mask),
        )
        source_mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=hidden_states,
            attention_mask=None if encoder_attention_mask is None else attendable(encoder_attention_mask),
            encoder_hidden_states=encoder_hidden_states,
        )
        for layer in self.layers:
            hidden_states = layer(hidden_states, self_mask, encoder_hidden_states, source_mask)
        return hidden_states


class NagPreTrainedModel(PreTrainedModel):
    """Loading, saving and initialising, common to the NAG models."""

    config: NagConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    # the loss is a mean over the batch at hand, whatever else the optimizer step holds
    accepts_loss_kwargs = False
    generation_config_class = NagGenerationConfig
    _supports_sdpa = True
    _no_split_modules = ["NagEncoderLayer", "NagDecoderLayer"]

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, NagSinusoidalPositions):
            init.copy_(module.weight, module.build())
        elif isinstance(module, (NagForTranslation, NagForCaptioning)):
            init.zeros_(module.final_logits_bias)

    def suppress_tokens(self, logits: Tensor) -> Tensor:
        """Forbids the words that are no words: logits [B, N, V] -> a copy with -inf at them.

        Predicted mode: eos, bos and pad, since the number of agents says where the sentence ends. Fixed mode:
        bos and pad. The policy that is trained and the one that decodes are the same, so both call this.
        """
        forbidden = {self.config.pad_token_id, self.config.bos_token_id}
        if self.config.length_mode == "predicted":
            forbidden.add(self.config.eos_token_id)
        else:
            forbidden.discard(self.config.eos_token_id)
        allowed = logits.new_zeros(logits.shape[-1])
        allowed[sorted(forbidden - {None})] = -torch.inf
        return logits + allowed  # added, for then the gradient needs no copy of the logits

    def length_loss(self, length_logits: Tensor, source_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        """Cross-entropy of the true length offset of each input (Sec. 6.1.2), in float32; [B, 2m+1] -> [B].

        Offset = target minus source length (eos included in the source), clamped to -m..m.
        """
        limit = self.config.max_length_offset
        offsets = (target_lengths - source_lengths).clamp(-limit, limit)
        return nn.functional.cross_entropy(length_logits.float(), offsets + limit, reduction="none")


class NagModel(NagPreTrainedModel):
    """Encoder, length predictor (predicted mode only) and decoder, without the choice of words.

    In the predicted mode the number of agents is `max(target_lengths)`, or what the length predictor says
    where no target lengths are given. In the fixed mode there are always `config.num_agents`.
    """

    def __init__(self, config: NagConfig) -> None:
        super().__init__(config)
        self.main_input_name = "input_ids" if config.feature_size is None else "features"
        self._tied_weights_keys = {}
        if config.tie_word_embeddings:
            self.shared = nn.Embedding(config.vocab_size, config.d_model, config.pad_token_id)
            if config.feature_size is None:
                self._tied_weights_keys = {"encoder.embed_tokens.weight": "shared.weight"}
        self.encoder = NagEncoder(config)
        if config.length_mode == "predicted":
            self.length_predictor = nn.Linear(config.d_model, 2 * config.max_length_offset + 1)
        self.decoder = NagDecoder(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.shared if self.config.tie_word_embeddings else self.encoder.embed_tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        if self.config.tie_word_embeddings:
            self.shared = value
        if self.config.feature_size is None:
            self.encoder.embed_tokens = value

    def count_source(self, encoder_hidden_states: Tensor, source_mask: Tensor | None) -> Tensor:
        """Number of real source positions of each row, eos included; [B]."""
        if source_mask is not None:
            return source_mask.long().sum(dim=-1)
        batch, length, _ = encoder_hidden_states.shape
        return torch.full((batch,), length, device=encoder_hidden_states.device)

    def predict_length_logits(self, encoder_hidden_states: Tensor, source_mask: Tensor | None) -> Tensor:
        """Scores of the offsets -m..m from the mean of the real source states (Sec. 6.1.2); [B, 2m+1]."""
        if source_mask is None:
            pooled = encoder_hidden_states.mean(dim=1)
        else:
            # in float32: bf16 cannot count beyond 256
            weights = source_mask.float().unsqueeze(-1)
            # a fully padded row has no state to average; its sum is 0 and stays 0
            mean = (encoder_hidden_states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1)
            pooled = mean.to(encoder_hidden_states.dtype)
        return self.length_predictor(pooled)

    def predict_target_lengths(self, length_logits: Tensor, source_lengths: Tensor) -> Tensor:
        """Source length + likeliest offset, kept within 1..max_target_length; [B, 2m+1], [B] -> [B]."""
        offsets = length_logits.argmax(dim=-1) - self.config.max_length_offset
        return (source_lengths + offsets).clamp(1, self.config.max_target_length)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        features: Tensor | None = None,
        feature_mask: Tensor | None = None,
        target_lengths: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        word_embeddings: Tensor | None = None,
    ) -> NagModelOutput:
        """Runs the encoder once (or takes `encoder_outputs`) and the decoder once.

        Args:
            input_ids, attention_mask: [B, L], if the source is tokens. A mask that is None: all are real.
            features, feature_mask: [B, L, feature_size] and [B, L], if it is features.
            target_lengths: integers [B], the number of agents of each row; used in the predicted mode only.
            encoder_outputs: what the encoder returned for this source.
            word_embeddings: see [`NagDecoder`].
        """
        source_mask = attention_mask if self.config.feature_size is None else feature_mask
        if encoder_outputs is None:
            encoder_outputs = self.encoder(input_ids, attention_mask, features, feature_mask)
        encoder_hidden_states = encoder_outputs[0]
        length_logits = None
        if self.config.length_mode == "fixed":
            num_agents, agents = self.config.num_agents, None
            shape = (encoder_hidden_states.shape[0], num_agents)
            agent_mask = encoder_hidden_states.new_ones(shape, dtype=torch.bool)
        else:
            length_logits = self.predict_length_logits(encoder_hidden_states, source_mask)
            if target_lengths is None:
                source_lengths = self.count_source(encoder_hidden_states, source_mask)
                target_lengths = self.predict_target_lengths(length_logits.detach(), source_lengths)
            # a batch of empty targets still has one (masked) agent
            num_agents = max(1, int(target_lengths.max()))
            agent_mask = agents = length_mask(target_lengths, num_agents)
        return NagModelOutput(
            last_hidden_state=self.decoder(
                num_agents, agents, encoder_hidden_states, source_mask, word_embeddings
            ),
            length_logits=length_logits,
            agent_mask=agent_mask,
            encoder_last_hidden_state=encoder_hidden_states,
        )


def fit_labels(
    labels: Tensor, target_lengths: Tensor | None, config: NagConfig
) -> tuple[Tensor, Tensor | None]:
    """Brings labels to the number of agents, and finds the target lengths; [B, T] -> ([B, N], [B] or None).

    Fixed mode: cut at N or filled up with -100; lengths play no role. Predicted mode: a label per agent, so N
    is the largest target length, and the labels of a row are its first ones.
    Errors: ValueError if labels and target lengths contradict each other.
    """
    if config.length_mode == "fixed":
        missing = config.num_agents - labels.shape[1]
        if missing > 0:
            return nn.functional.pad(labels, (0, missing), value=IGNORED_LABEL), None
        return labels[:, : config.num_agents], None
    is_label = labels != IGNORED_LABEL
    if target_lengths is None:
        target_lengths = is_label.sum(dim=-1)
    fits = (is_label == length_mask(target_lengths, labels.shape[1])).all()
    longest, fits = torch.stack([target_lengths.max(), fits.to(target_lengths.dtype)]).tolist()
    if not fits or longest > labels.shape[1]:
        raise ValueError(
            "labels and target_lengths contradict each other: row b needs target_lengths[b] labels first "
            f"and {IGNORED_LABEL} after them. Got target_lengths {target_lengths.tolist()} and "
            f"{is_label.sum(dim=-1).tolist()} labels, in a tensor of shape {list(labels.shape)}."
        )
    num_agents = max(1, longest)
    if num_agents > labels.shape[1]:
        labels = nn.functional.pad(labels, (0, num_agents - labels.shape[1]), value=IGNORED_LABEL)
    return labels[:, :num_agents], target_lengths


def word_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The XE loss of CMAL Eq. (5), as a mean over the labelled agents; 0 if there is none.

    Agent i is supervised by label i, nothing is shifted. In float32. logits [B, N, V], labels [B, N].
    """
    total = nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED_LABEL, reduction="sum"
    )  # Eq. (5)
    return total / (labels != IGNORED_LABEL).sum().clamp(min=1)


def tied_weights(config: NagConfig) -> dict[str, str]:
    """Which weights of a model with a word head are one matrix: {target: source}."""
    if not config.tie_word_embeddings:
        return {}
    tied = {"lm_head.weight": "model.shared.weight"}
    if config.feature_size is None:
        tied["model.encoder.embed_tokens.weight"] = "model.shared.weight"
    return tied


def embed_revealed(words: Tensor, embeddings: Tensor, scale: float) -> Tensor:
    """Scaled vectors of the revealed words, 0 where a word is -100; [B, N], [V, D] -> [B, N, D]."""
    is_word = words != IGNORED_LABEL
    vectors = nn.functional.embedding(words.clamp(min=0), embeddings) * scale
    return vectors * is_word.unsqueeze(-1)


def say_words(
    model: "NagForTranslation | NagForCaptioning",
    source: dict[str, Tensor | None],
    labels: Tensor | None,
    target_lengths: Tensor | None,
    encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None,
    revealed_words: Tensor | None,
) -> NagOutput:
    """The forward pass of both heads: states of the agents -> logits, and the loss if there are labels."""
    if labels is not None:
        labels, target_lengths = fit_labels(labels, target_lengths, model.config)
    word_embeddings = None
    if revealed_words is not None:
        scale = model.model.encoder.embed_scale
        word_embeddings = embed_revealed(revealed_words, model.lm_head.weight, scale)
    outputs = model.model(
        **source,
        target_lengths=target_lengths,
        encoder_outputs=encoder_outputs,
        word_embeddings=word_embeddings,
    )
    # given the source no agent sees another's word: the sentence's probability is the product over the agents
    logits = model.lm_head(outputs.last_hidden_state) + model.final_logits_bias  # Eq. (4)
    loss = None
    if labels is not None:
        loss = word_loss(logits, labels)
        if outputs.length_logits is not None:
            source_mask = source["attention_mask"] if "attention_mask" in source else source["feature_mask"]
            source_lengths = model.model.count_source(outputs.encoder_last_hidden_state, source_mask)
            length_loss = model.length_loss(outputs.length_logits, source_lengths, target_lengths).mean()
            loss = loss + model.config.length_loss_weight * length_loss
    return NagOutput(
        loss=loss,
        logits=logits,
        length_logits=outputs.length_logits,
        agent_mask=outputs.agent_mask,
        encoder_last_hidden_state=outputs.encoder_last_hidden_state,
    )


class NagForTranslation(NagPreTrainedModel, NagGenerationMixin):
    """Writes a whole translation in one pass: [`NagModel`] on token ids and a choice of words per agent.

    Example:
        >>> config = NagConfig(vocab_size=50, pad_token_id=49, d_model=16, encoder_layers=1, decoder_layers=1,
        ...                    encoder_attention_heads=2, decoder_attention_heads=2)
        >>> model = NagForTranslation(config)
        >>> output = model(input_ids=torch.tensor([[5, 6, 0]]), labels=torch.tensor([[7, 8]]))
        >>> output.logits.shape
        torch.Size([1, 2, 50])
    """

    main_input_name = "input_ids"

    def __init__(self, config: NagConfig) -> None:
        super().__init__(config)
        if config.feature_size is not None:
            raise ValueError(
                f"NagForTranslation reads token ids, but feature_size={config.feature_size}. "
                "Set feature_size=None, or use NagForCaptioning."
            )
        self._tied_weights_keys = tied_weights(config)
        self.model = NagModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))
        self.post_init()

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """As in transformers; config.json also names the pipeline whose code lies in the folder."""
        self.config.custom_pipelines = {
            "nag-translation": {
                "impl": "pipeline_nag.NagTranslationPipeline",
                "pt": ["AutoModelForSeq2SeqLM"],
                "type": "text",
            }
        }
        super().save_pretrained(save_directory, *args, **kwargs)

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        target_lengths: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        revealed_words: Tensor | None = None,
    ) -> NagOutput:
        """One encoder and one decoder pass.

        Args:
            input_ids: source token ids, eos at their end, [B, L]; not needed with `encoder_outputs`.
            attention_mask: [B, L], 1 at real tokens. None: all are real.
            labels: word ids of the agents, [B, T], -100 where there is none. Predicted mode: without eos.
                Fixed mode: with eos, then -100; cut at `num_agents`. Label i supervises agent i.
            target_lengths: number of agents of each row in the predicted mode, [B]. Taken from the labels if
                None, and predicted without either.
            encoder_outputs: what `get_encoder()` returned for this source.
            revealed_words: word ids that agents may read, [B, N], -100 elsewhere; for glancing.
        """
        source = {"input_ids": input_ids, "attention_mask": attention_mask}
        return say_words(self, source, labels, target_lengths, encoder_outputs, revealed_words)


class NagForCaptioning(NagPreTrainedModel, NagGenerationMixin):
    """Writes a whole caption in one pass: [`NagModel`] on feature vectors and a choice of words per agent."""

    main_input_name = "features"

    def __init__(self, config: NagConfig) -> None:
        super().__init__(config)
        if config.feature_size is None:
            raise ValueError(
                "NagForCaptioning reads feature vectors, but feature_size=None. "
                "Set feature_size to their width, or use NagForTranslation."
            )
        self._tied_weights_keys = tied_weights(config)
        self.model = NagModel(config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        features: Tensor | None = None,
        feature_mask: Tensor | None = None,
        labels: Tensor | None = None,
        target_lengths: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        revealed_words: Tensor | None = None,
    ) -> NagOutput:
        """One encoder and one decoder pass.

        Args:
            features: grid or region vectors of a picture, [B, L, feature_size]; not needed with
                `encoder_outputs`.
            feature_mask: [B, L], 1 at real vectors. None: all are real.
            labels, target_lengths, encoder_outputs, revealed_words: as in [`NagForTranslation`].
        """
        source = {"features": features, "feature_mask": feature_mask}
        return say_words(self, source, labels, target_lengths, encoder_outputs, revealed_words)


def _carry_the_pipeline() -> None:
    """Never called. `save_pretrained` copies the files that relative imports name, wherever they stand."""
    from .pipeline_nag import NagTranslationPipeline  # noqa: F401
