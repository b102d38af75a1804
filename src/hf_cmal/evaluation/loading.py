"""Opens a folder as the model it holds: a teacher or a student, of either task, always in float32."""

from typing import Literal

import torch
from transformers import AutoConfig, AutoModelForImageTextToText, AutoModelForSeq2SeqLM, PreTrainedModel

import hf_cmal  # noqa: F401  (registers the package's models with the Auto classes)

STUDENT_MODEL_TYPE = "cmal_nag"
CAPTIONING_TEACHER_MODEL_TYPE = "cmal_nag_teacher"


def is_student(model: PreTrainedModel) -> bool:
    return bool(model.config.model_type == STUDENT_MODEL_TYPE)


def load_model(folder: str | None, role: Literal["teacher", "student"] | None = None) -> PreTrainedModel:
    """The model of a folder.

    Args:
        role: what it has to be; None takes either.

    Raises:
        ValueError: no folder was named, or it holds the other kind of model; the message says which.
    """
    if folder is None:
        raise ValueError(f"the recipe names no {role}; add `{role}: FOLDER`")
    config = AutoConfig.from_pretrained(folder)
    student = config.model_type == STUDENT_MODEL_TYPE
    if role == "student" and not student:
        raise ValueError(
            f"{folder} holds a teacher ({config.model_type}), not a student; stage student_xe makes one"
        )
    if role == "teacher" and student:
        raise ValueError(
            f"{folder} holds a student ({config.model_type}), not a teacher; give the teacher's folder"
        )
    reads_features = config.model_type == CAPTIONING_TEACHER_MODEL_TYPE or (
        student and config.feature_size is not None
    )
    kind = AutoModelForImageTextToText if reads_features else AutoModelForSeq2SeqLM
    model: PreTrainedModel = kind.from_pretrained(folder, dtype=torch.float32)
    return model
