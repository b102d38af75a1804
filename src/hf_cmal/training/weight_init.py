"""Weight-init: a student that begins with the weights of its autoregressive teacher (Sec. 5.1.2).

The student's parameters have the teacher's names, so this is a copy by name; what the teacher does not have
(the length predictor) is drawn at random. Teachers are MarianMT models, OPUS-MT checkpoints included, and the
captioning teacher of this package. Nothing here trains. The student's tokenizer is the teacher's, unchanged;
saving it beside the student is up to the caller.
"""

import os
from typing import Any, Literal

import torch
from transformers import AutoConfig, MarianMTModel, PreTrainedConfig, PreTrainedModel

from hf_cmal.models.nag.configuration_nag import NagConfig
from hf_cmal.models.nag.modeling_nag import NagForCaptioning, NagForTranslation
from hf_cmal.models.nag.modeling_nag_teacher import NagTeacherForCaptioning

# model_type of the teacher -> the classes of teacher and student.
TEACHERS: dict[str, tuple[type[PreTrainedModel], type[NagForTranslation] | type[NagForCaptioning]]] = {
    "marian": (MarianMTModel, NagForTranslation),
    "cmal_nag_teacher": (NagTeacherForCaptioning, NagForCaptioning),
}
# Fields that mean the same in the teacher's config and in the student's.
_INHERITED = (
    "vocab_size", "d_model", "encoder_layers", "decoder_layers", "encoder_attention_heads",
    "decoder_attention_heads", "encoder_ffn_dim", "decoder_ffn_dim", "dropout", "attention_dropout",
    "activation_dropout", "activation_function", "scale_embedding", "max_position_embeddings", "init_std",
    "pad_token_id", "eos_token_id", "bos_token_id",
)  # fmt: skip
# Tensors of a teacher that a student can lack: the student's decoder reads no words, positions are computed.
_TEACHER_ONLY = frozenset(
    {
        "model.shared.weight",
        "model.decoder.embed_tokens.weight",
        "model.encoder.embed_positions.weight",
        "model.decoder.embed_positions.weight",
    }
)
_LENGTH_PREDICTOR = frozenset({"model.length_predictor.weight", "model.length_predictor.bias"})
_LOGITS_BIAS = "final_logits_bias"


def init_student_from_teacher(
    teacher: PreTrainedModel | str | os.PathLike[str],
    *,
    length_mode: Literal["predicted", "fixed"] | None = None,
    num_agents: int = 16,
    max_target_length: int | None = None,
    max_length_offset: int = 128,
    **options: Any,
) -> NagForTranslation | NagForCaptioning:
    """The student of a teacher, with every weight that both have copied (Sec. 5.1.2, "weight-init").

    Args:
        teacher: a MarianMT model or a captioning teacher, or the folder or Hub name of one.
        length_mode, num_agents, max_target_length, max_length_offset, options: of the student's config, see
            [`student_config_from_teacher`].

    Returns:
        A [`NagForTranslation`] or [`NagForCaptioning`] in float32, on the teacher's device, in eval mode.
        Its length predictor is drawn at random (from torch's global generator).

    Raises:
        ValueError: the teacher is a student, or of a model type without weight-init; or a tensor is missing,
            is left over or has another shape (the message lists them).

    Example:

        >>> student = init_student_from_teacher("Helsinki-NLP/opus-mt-en-de")
    """
    if not isinstance(teacher, PreTrainedModel):
        teacher_class, _ = _classes(AutoConfig.from_pretrained(teacher))
        teacher = teacher_class.from_pretrained(teacher)
    _, student_class = _classes(teacher.config)
    config = student_config_from_teacher(
        teacher.config,
        length_mode=length_mode,
        num_agents=num_agents,
        max_target_length=max_target_length,
        max_length_offset=max_length_offset,
        **options,
    )
    student = student_class(config)
    _copy_weights(teacher, student)
    return student.to(teacher.device).eval()


def student_config_from_teacher(
    config: PreTrainedConfig,
    *,
    length_mode: Literal["predicted", "fixed"] | None = None,
    num_agents: int = 16,
    max_target_length: int | None = None,
    max_length_offset: int = 128,
    **options: Any,
) -> NagConfig:
    """The config of a student in its teacher's shape, for weight-init and for training from scratch.

    Args:
        config: a `MarianConfig` or a [`NagTeacherConfig`].
        length_mode: `"predicted"` (the default for translation, Sec. 6.1.2) or `"fixed"` (the default for
            captioning, Sec. 5.1.2).
        num_agents: N of the fixed mode; Sec. 5.1.2: 16.
        max_target_length: the most agents the length predictor may ask for; None: the teacher's positions.
        max_length_offset: the predictor chooses among the offsets -m..m of target minus source length.
        options: any other field of [`NagConfig`], in place of the teacher's value (`dropout=0.3`).

    Raises:
        ValueError: the config is a student's, of an unsupported model type, or one with two vocabularies.

    Example:

        >>> from_scratch = NagForTranslation(student_config_from_teacher(teacher.config))
    """
    _classes(config)
    inherited = {name: getattr(config, name) for name in _INHERITED}
    inherited["tie_word_embeddings"] = config.tie_word_embeddings
    if config.model_type == "marian":
        if config.decoder_vocab_size != config.vocab_size:
            raise ValueError(
                f"the teacher has {config.vocab_size} source words and {config.decoder_vocab_size} target "
                f"words, a student has one vocabulary for both; take a teacher with a shared one, or train "
                f"the student from scratch (NagConfig) on sentences distilled from this one"
            )
        inherited["tie_word_embeddings"] &= config.share_encoder_decoder_embeddings
    else:
        inherited["feature_size"] = config.feature_size
    default_mode = "predicted" if config.model_type == "marian" else "fixed"
    return NagConfig(
        **{
            **inherited,
            "length_mode": default_mode if length_mode is None else length_mode,
            "num_agents": num_agents,
            "max_target_length": max_target_length,
            "max_length_offset": max_length_offset,
            **options,
        }
    )


def _classes(
    config: PreTrainedConfig,
) -> tuple[type[PreTrainedModel], type[NagForTranslation] | type[NagForCaptioning]]:
    if config.model_type == NagConfig.model_type:
        raise ValueError(
            f"the teacher is itself a student (model_type {config.model_type!r}); give the autoregressive "
            f"teacher, or load the student with from_pretrained"
        )
    if config.model_type not in TEACHERS:
        raise ValueError(
            f"weight-init supports the model types {', '.join(TEACHERS)}, not {config.model_type!r}; start "
            f"the student from scratch (NagConfig) and train it on sentences distilled from this teacher"
        )
    return TEACHERS[config.model_type]


def _copy_weights(teacher: PreTrainedModel, student: NagForTranslation | NagForCaptioning) -> None:
    source, destination = teacher.state_dict(), student.state_dict()
    random = set(_LENGTH_PREDICTOR)
    if teacher.config.model_type != "marian":
        random.add(_LOGITS_BIAS)  # the captioning teacher has none, the student's is zero
    missing = sorted(destination.keys() - source.keys() - random)
    left_over = sorted(source.keys() - destination.keys() - _TEACHER_ONLY)
    common = sorted(source.keys() & destination.keys())
    reshaped = [
        f"{name} {tuple(source[name].shape)} -> {tuple(destination[name].shape)}"
        for name in common
        if source[name].shape != destination[name].shape
    ]
    if missing or left_over or reshaped:
        raise ValueError(
            f"{type(teacher).__name__} and {type(student).__name__} do not fit. Missing in the teacher: "
            f"{missing}. Missing in the student: {left_over}. Other shape: {reshaped}. Give the student the "
            f"teacher's shape, or train it from scratch (student_config_from_teacher)"
        )
    with torch.no_grad():
        for name in common:
            destination[name].copy_(source[name])
