"""Decoding in one pass: every agent says its likeliest word (CMAL Sec. 4.2, Action).

`generate` runs the encoder once and the decoder once, whatever the options: several target lengths are
decoded as one larger batch (`num_length_candidates`), and the postprocessing of Sec. 6.2
(`remove_consecutive_duplicates`) works on the words. There is no beam, no sampling, no cache. Settings are
kept in generation_config.json.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerationConfig
from transformers.modeling_outputs import BaseModelOutput
from transformers.utils import ModelOutput

from .sequences_nag import alive_mask, left_pack, length_mask, repeats_mask

# What generate() reads from a generation config or from its keywords.
OPTIONS = (
    "max_length",
    "max_new_tokens",
    "num_length_candidates",
    "output_scores",
    "pad_token_id",
    "remove_consecutive_duplicates",
    "return_dict_in_generate",
)
# Options of autoregressive decoding that have one legal value here; checked by NagGenerationConfig.validate.
ONE_PASS_ONLY = {"num_beams": 1, "do_sample": False, "num_return_sequences": 1}
# What a trainer or a script written for autoregressive models hands over, and one pass has no use for.
WITHOUT_EFFECT = ("labels", "target_lengths", "synced_gpus", "use_cache")


class NagGenerationConfig(GenerationConfig):
    """Settings of one-pass decoding, saved as generation_config.json.

    Args:
        remove_consecutive_duplicates: keep one of each run of identical neighbouring tokens ("postprocess" in
            the paper's tables). Off by default: it also shortens a wanted "very very".
        num_length_candidates: 2b+1 target lengths around the predicted one (-b..b) are decoded as one batch;
            the sentence with the best mean token log-probability wins. Predicted mode only; odd.
        max_length: cap on the number of agents: longer predictions are clamped to it, and in the fixed mode
            the sentence is cut there. `max_new_tokens` means the same and wins over it.
        return_dict_in_generate: return a [`NagGenerateOutput`] instead of token ids.
        output_scores: fill its `token_scores` and `sequences_scores`.

    The other fields of [`GenerationConfig`] are for autoregressive decoding and have no effect, except that
    num_beams, do_sample and num_return_sequences must keep their one-pass values (1, False, 1).

    Errors:
        ValueError on an unknown field (a typo must not pass silently) or an illegal value.
    """

    def __init__(self, **kwargs: Any) -> None:
        self.remove_consecutive_duplicates: bool = kwargs.pop("remove_consecutive_duplicates", False)
        self.num_length_candidates: int = kwargs.pop("num_length_candidates", 1)
        unknown = set(kwargs) - set(vars(GenerationConfig())) - {"_commit_hash", "_original_object_hash"}
        if unknown:
            raise ValueError(
                f"Unknown generation settings {sorted(unknown)}; "
                f"one-pass decoding reads {', '.join(OPTIONS)}."
            )
        super().__init__(**kwargs)

    @classmethod
    def from_model_config(cls, model_config: Any) -> "NagGenerationConfig":
        """The settings of a fresh model: its special tokens; as `max_length` the most agents it can have."""
        fixed = model_config.length_mode == "fixed"
        return cls(
            pad_token_id=model_config.pad_token_id,
            eos_token_id=model_config.eos_token_id,
            bos_token_id=model_config.bos_token_id,
            max_length=model_config.num_agents if fixed else model_config.max_target_length,
        )

    def validate(self, strict: bool = False, user_set_attributes: set[str] | None = None) -> None:
        candidates = self.num_length_candidates
        if type(candidates) is not int or candidates < 1 or candidates % 2 == 0:
            raise ValueError(
                "num_length_candidates must be odd (1, 3, 5, ...: b lengths on either side), "
                f"got {candidates!r}."
            )
        if not isinstance(self.remove_consecutive_duplicates, bool):
            raise ValueError(
                "remove_consecutive_duplicates must be True or False, "
                f"got {self.remove_consecutive_duplicates!r}."
            )
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, got {self.max_length}.")
        for name, legal in ONE_PASS_ONLY.items():
            if getattr(self, name) not in (None, legal):
                raise ValueError(
                    f"{name}={getattr(self, name)} is not possible: a NAG decodes in one pass and keeps the "
                    f"likeliest word of each agent. Set {name}={legal}; num_length_candidates searches over "
                    "lengths."
                )
        super().validate(strict=strict, user_set_attributes=user_set_attributes)


@dataclass
class NagGenerateOutput(ModelOutput):
    """What `generate` returns with `return_dict_in_generate=True`.

    Args:
        sequences: token ids, [B, N], filled up with pad_token_id. Fixed mode: the eos is kept.
        sequences_scores: mean log-probability (nats) of the tokens before duplicates are removed, [B]; this
            ranks the length candidates. None without `output_scores`.
        token_scores: log-probability of each token of `sequences`, [B, N], 0 at padding. None without
            `output_scores`.
        target_lengths: number of agents whose words belong to the sentence before duplicates are removed,
            [B]: the length decoded in the predicted mode, up to and with the first eos in the fixed mode.
    """

    sequences: Tensor | None = None
    sequences_scores: Tensor | None = None
    token_scores: Tensor | None = None
    target_lengths: Tensor | None = None


def candidate_lengths(lengths: Tensor, num_candidates: int, max_length: int) -> Tensor:
    """The lengths -b..b around each length, kept within 1..max_length; [B] -> [B, 2b+1]."""
    reach = num_candidates // 2
    offsets = torch.arange(-reach, reach + 1, device=lengths.device)
    return (lengths.unsqueeze(-1) + offsets).clamp(1, max_length)


class NagGenerationMixin:
    """`generate` for models with an encoder, a NAG decoder and a word head."""

    @torch.no_grad()
    def generate(
        self, inputs: Tensor | None = None, generation_config: GenerationConfig | None = None, **kwargs: Any
    ) -> Tensor | NagGenerateOutput:
        """Decodes a batch with one encoder call and one decoder call.

        The model stays in the mode it is in: call `model.eval()` first, or dropout acts while decoding.

        Args:
            inputs: the source, input_ids [B, L] or features [B, L, feature_size]; or give it by its name.
            generation_config: replaces `self.generation_config`.
            kwargs: `attention_mask` or `feature_mask`, [B, L]; `encoder_outputs`; and any setting of
                [`NagGenerationConfig`], for this call. labels, target_lengths, synced_gpus and use_cache are
                accepted and have no effect, so that a trainer's batch can be handed over whole.

        Returns:
            token ids [B, N], filled up with the pad token (fixed mode: eos kept, then pad); or a
            [`NagGenerateOutput`].

        Errors:
            TypeError on an unknown keyword; ValueError on an illegal setting, e.g. num_beams=4.

        Example:
            >>> model.generate(**tokenizer(["A dog runs."], return_tensors="pt"))  # doctest: +SKIP
        """
        source, encoder_outputs, overrides = self._sort_keywords(inputs, kwargs)
        options = self._settings(generation_config, overrides)
        pad_token_id = self.config.pad_token_id if options.pad_token_id is None else options.pad_token_id
        mask = source.get("attention_mask" if self.config.feature_size is None else "feature_mask")
        states = (self.model.encoder(**source) if encoder_outputs is None else encoder_outputs)[0]

        if self.config.length_mode == "fixed":
            logits = self._decode(states, mask, self.config.num_agents, None)
            tokens, scores = pick_words(logits, options.output_scores)
            alive = alive_mask(tokens, tokens.new_ones(1, dtype=torch.bool), self.config.eos_token_id)
            limit = options.max_new_tokens or options.max_length or self.config.num_agents
            tokens, alive = tokens[:, :limit], alive[:, :limit]
            scores = None if scores is None else scores[:, :limit]
        else:
            tokens, alive, scores = self._decode_predicted_lengths(states, mask, options)
        return finish(tokens, alive, scores, options, pad_token_id)

    def _decode(self, states: Tensor, mask: Tensor | None, num_agents: int, agents: Tensor | None) -> Tensor:
        hidden_states = self.model.decoder(num_agents, agents, states, mask)
        return self.suppress_tokens(self.lm_head(hidden_states) + self.final_logits_bias)

    def _decode_predicted_lengths(
        self, states: Tensor, mask: Tensor | None, options: NagGenerationConfig
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        length_logits = self.model.predict_length_logits(states, mask)
        source_lengths = self.model.count_source(states, mask)
        lengths = self.model.predict_target_lengths(length_logits, source_lengths)
        longest = self.config.max_target_length
        limit = min(options.max_new_tokens or options.max_length or longest, longest)
        batch, count = len(lengths), options.num_length_candidates
        lengths = candidate_lengths(lengths, count, limit).flatten()
        if count > 1:
            states = states.repeat_interleave(count, dim=0)
            mask = None if mask is None else mask.repeat_interleave(count, dim=0)
        num_agents = int(lengths.max())
        agents = length_mask(lengths, num_agents)
        # with one row every agent is real, and attention without a mask is faster
        logits = self._decode(states, mask, num_agents, agents if len(lengths) > 1 else None)
        tokens, scores = pick_words(logits, options.output_scores or count > 1)
        if count > 1:
            best = mean_score(scores, agents).view(batch, count).argmax(dim=-1)
            best = best + torch.arange(batch, device=best.device) * count
            num_agents = int(lengths[best].max())
            tokens, agents, scores = (values[best, :num_agents] for values in (tokens, agents, scores))
        return tokens, agents, scores

    def _sort_keywords(
        self, inputs: Tensor | None, kwargs: dict[str, Any]
    ) -> tuple[dict[str, Tensor], BaseModelOutput | None, dict[str, Any]]:
        """Splits generate's keywords into the source, the encoder's outputs and settings."""
        reads_tokens = self.config.feature_size is None
        names = ("input_ids", "attention_mask") if reads_tokens else ("features", "feature_mask")
        legal = {*names, "encoder_outputs", *OPTIONS, *ONE_PASS_ONLY, *WITHOUT_EFFECT}
        unknown = kwargs.keys() - legal
        if unknown:
            raise TypeError(
                f"generate() got unknown keywords {sorted(unknown)}; legal are {', '.join(sorted(legal))}."
            )
        source = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        encoder_outputs = kwargs.get("encoder_outputs")
        if inputs is not None:
            if names[0] in source:
                raise ValueError(f"The source was given twice, as the first argument and as {names[0]}.")
            source[names[0]] = inputs
        if names[0] not in source and encoder_outputs is None:
            raise ValueError(f"generate() needs a source: {names[0]} (or encoder_outputs).")
        settings = kwargs.keys() & {*OPTIONS, *ONE_PASS_ONLY}
        overrides = {name: kwargs[name] for name in settings if kwargs[name] is not None}
        return source, encoder_outputs, overrides

    def _settings(
        self, generation_config: GenerationConfig | None, overrides: dict[str, Any]
    ) -> NagGenerationConfig:
        options = self.generation_config if generation_config is None else generation_config
        if not isinstance(options, NagGenerationConfig):
            # a plain GenerationConfig, as Seq2SeqTrainer makes one; its typos are found here
            options = NagGenerationConfig.from_dict(options.to_dict())
        if overrides:
            options = copy.deepcopy(options)
            options.update(**overrides)
        if options.num_length_candidates > 1 and self.config.length_mode == "fixed":
            raise ValueError(
                f"num_length_candidates={options.num_length_candidates} needs length_mode='predicted'; with "
                f"length_mode='fixed' all {self.config.num_agents} agents speak and eos ends the sentence. "
                "Set it to 1."
            )
        return options

    def adjust_generation_fn(
        self,
        generation_config: GenerationConfig | None,
        from_auto_class: bool,
        from_pipeline: str | None,
        pretrained_model_name_or_path: str | None,
        *,
        trust_remote_code: bool | None = None,
        **repo_loading_kwargs: Any,
    ) -> None:
        """Called by from_pretrained: reads generation_config.json as a NagGenerationConfig."""
        if generation_config is not None:
            self.generation_config = NagGenerationConfig.from_dict(generation_config.to_dict())
        elif pretrained_model_name_or_path is not None:
            try:
                self.generation_config = NagGenerationConfig.from_pretrained(
                    pretrained_model_name_or_path,
                    _from_auto=from_auto_class,
                    _from_pipeline=from_pipeline,
                    **repo_loading_kwargs,
                )
            except OSError:
                # a folder without the file keeps the settings made from the model's configuration
                pass


def pick_words(logits: Tensor, with_scores: bool | None) -> tuple[Tensor, Tensor | None]:
    """Each agent's likeliest word and, if asked for, its log-probability; [B, N, V] -> twice [B, N]."""
    if not with_scores:
        return logits.argmax(dim=-1), None
    scores, tokens = logits.float().log_softmax(dim=-1).max(dim=-1)
    return tokens, scores


def mean_score(scores: Tensor, alive: Tensor) -> Tensor:
    """Mean log-probability of the alive agents' words; [B, N], [B, N] -> [B]."""
    return scores.masked_fill(~alive, 0.0).sum(dim=-1) / alive.sum(dim=-1)


def finish(
    tokens: Tensor,
    alive: Tensor,
    scores: Tensor | None,
    options: NagGenerationConfig,
    pad_token_id: int,
) -> Tensor | NagGenerateOutput:
    """Pads, removes repeated tokens if asked to, and packs the result."""
    keep = alive
    if options.remove_consecutive_duplicates:
        keep = alive & ~repeats_mask(tokens, alive)
        sequences = left_pack(tokens, keep, fill=pad_token_id)
    else:
        sequences = tokens.masked_fill(~alive, pad_token_id)
    if not options.return_dict_in_generate:
        return sequences
    if not options.output_scores:
        scores = None
    return NagGenerateOutput(
        sequences=sequences,
        sequences_scores=None if scores is None else mean_score(scores, alive),
        token_scores=None if scores is None else left_pack(scores, keep, fill=0.0),
        target_lengths=alive.sum(dim=-1),
    )
