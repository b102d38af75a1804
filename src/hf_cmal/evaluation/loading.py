"""Opens a folder as the model it holds: a teacher or a student, of either task, always in float32.

What is missing or of the wrong kind is an error of one line that names the folder.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from transformers import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import hf_cmal  # noqa: F401  (registers the package's models with the Auto classes)
from hf_cmal.models.nag.configuration_nag import NagConfig
from hf_cmal.models.nag.configuration_nag_teacher import NagTeacherConfig


def is_student(model: PreTrainedModel) -> bool:
    return bool(model.config.model_type == NagConfig.model_type)


def load_model(
    folder: str | None,
    role: Literal["teacher", "student"] | None = None,
    *,
    task: str | None = None,
) -> PreTrainedModel:
    """The model of a folder.

    Args:
        role: what it has to be; None takes either.
        task: "translation" or "captioning", what it has to do; None takes either.

    Raises:
        ValueError: no folder was named, or it holds the other kind of model; the message says which.
        OSError: there is no such folder, or no model in it that can be opened.
    """
    if folder is None:
        raise ValueError(f"the recipe names no {role}; add `{role}: FOLDER`")
    config = _opened(folder, "model", lambda: AutoConfig.from_pretrained(folder))
    student = config.model_type == NagConfig.model_type
    if role == "student" and not student:
        raise ValueError(
            f"{folder} holds a teacher ({config.model_type}), not a student; stage student_xe makes one"
        )
    if role == "teacher" and student:
        raise ValueError(
            f"{folder} holds a student ({config.model_type}), not a teacher; give the teacher's folder"
        )
    reads_features = config.model_type == NagTeacherConfig.model_type or (
        student and config.feature_size is not None
    )
    if task is not None and reads_features != (task == "captioning"):
        holds = "a captioning model, which reads features," if reads_features else "a model that reads text"
        raise ValueError(f"{folder} holds {holds} but the task is {task}; give the folder of another model")
    kind, known = (
        (AutoModelForImageTextToText, MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING)
        if reads_features
        else (AutoModelForSeq2SeqLM, MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING)
    )
    if type(config) not in known:
        raise ValueError(
            f"{folder} holds a model of type {config.model_type!r}, which writes no sequence from another; "
            "give a MarianMT model or one that this package has trained"
        )
    model: PreTrainedModel = _opened(
        folder, "model", lambda: kind.from_pretrained(folder, dtype=torch.float32)
    )
    return model


def check_positions(folder: str, model: PreTrainedModel, longest: int) -> None:
    """Raises ValueError if a sequence of `longest` tokens has more positions than the model knows."""
    known = model.config.to_dict().get("max_position_embeddings")  # absent where positions are relative
    if known is not None and longest > known:
        raise ValueError(
            f"{folder} knows {known} positions, but sequences may have {longest} tokens; set "
            f"data.max_source_length and data.max_target_length to at most {known - 1}, as it was trained"
        )


def load_tokenizer(folder: str) -> PreTrainedTokenizerBase:
    """The tokenizer saved beside a model.

    Raises:
        OSError: there is no such folder, or no tokenizer in it that can be opened.
    """
    tokenizer: PreTrainedTokenizerBase = _opened(
        folder, "tokenizer", lambda: AutoTokenizer.from_pretrained(folder)
    )
    return tokenizer


def _opened(folder: str, what: str, load: Callable[[], Any]) -> Any:
    """What `load` gives; where it fails, one line instead of Hugging Face's paragraphs about the Hub."""
    try:
        return load()
    except (OSError, ValueError, SafetensorError) as error:
        if not Path(folder).exists():
            raise FileNotFoundError(
                f"there is no folder {folder!r}, and no {what} of that name could be fetched from the Hub"
            ) from error
        reason = str(error).partition("\n")[0].strip()
        raise OSError(f"{folder!r} holds no {what} that can be opened: {reason}") from error
