"""Non-autoregressive sequence generation trained from rewards (CMAL), for Hugging Face Transformers.

Importing it makes its models known to transformers' Auto classes and its pipelines to `pipeline()`, so that
saved folders load without `trust_remote_code`. That takes torch and transformers and nothing else: the other
public names are imported when they are first used, and inference pulls in no training dependency.
"""

from importlib import import_module, metadata
from typing import Any

from transformers import AutoConfig, AutoModel, AutoModelForImageTextToText, AutoModelForSeq2SeqLM
from transformers.pipelines import PIPELINE_REGISTRY

from hf_cmal.models.nag.configuration_nag import NagConfig
from hf_cmal.models.nag.configuration_nag_teacher import NagTeacherConfig
from hf_cmal.models.nag.modeling_nag import NagForCaptioning, NagForTranslation, NagModel
from hf_cmal.models.nag.modeling_nag_teacher import NagTeacherForCaptioning
from hf_cmal.models.nag.pipeline_nag import NagTranslationPipeline

# Public name -> the module that holds it.
_LAZY = {
    "NagGenerationConfig": "hf_cmal.models.nag.generation_nag",
    # data
    "load_parallel_text": "hf_cmal.data.parallel_text",
    "load_translation_dataset": "hf_cmal.data.parallel_text",
    "load_unlabeled_text": "hf_cmal.data.parallel_text",
    "train_tokenizer": "hf_cmal.data.tokenizer",
    "encode_translation": "hf_cmal.data.encoding",
    "encode_captions": "hf_cmal.data.encoding",
    "StudentCollator": "hf_cmal.data.collators",
    "TeacherCollator": "hf_cmal.data.collators",
    # the spine
    "Edits": "hf_cmal.sampling",
    "Proposals": "hf_cmal.sampling",
    "sample_actions": "hf_cmal.sampling",
    "ESTIMATORS": "hf_cmal.estimators",
    "get_estimator": "hf_cmal.estimators",
    "REWARDS": "hf_cmal.rewards",
    "get_reward": "hf_cmal.rewards",
    # training
    "CmalTrainer": "hf_cmal.training.cmal_trainer",
    "CmalTrainingArguments": "hf_cmal.training.arguments",
    "XeTrainingArguments": "hf_cmal.training.arguments",
    "XeTrainer": "hf_cmal.training.xe_trainer",
    "distill": "hf_cmal.training.distillation",
    "init_student_from_teacher": "hf_cmal.training.weight_init",
    "load_recipe": "hf_cmal.training.recipe",
    "run_stage": "hf_cmal.training.stages",
    # the Hub
    "model_card": "hf_cmal.hub.model_card",
    "push_to_hub": "hf_cmal.hub.push",
}

__all__ = [
    "NagConfig",
    "NagModel",
    "NagForTranslation",
    "NagForCaptioning",
    "NagTeacherConfig",
    "NagTeacherForCaptioning",
    "NagTranslationPipeline",
    *_LAZY,
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("hf-cmal")
    if name not in _LAZY:
        raise AttributeError(
            f"module 'hf_cmal' has no attribute {name!r}; public names: {', '.join(__all__)}"
        )
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


AutoConfig.register("cmal_nag", NagConfig)
AutoConfig.register("cmal_nag_teacher", NagTeacherConfig)
AutoModel.register(NagConfig, NagModel)
AutoModelForSeq2SeqLM.register(NagConfig, NagForTranslation)
AutoModelForImageTextToText.register(NagConfig, NagForCaptioning)
AutoModelForImageTextToText.register(NagTeacherConfig, NagTeacherForCaptioning)

# What `save_pretrained` writes into the folder's `auto_map`, so that it also loads where hf_cmal is absent.
NagConfig.register_for_auto_class()
NagTeacherConfig.register_for_auto_class()
NagModel.register_for_auto_class("AutoModel")
NagForTranslation.register_for_auto_class("AutoModelForSeq2SeqLM")
NagForCaptioning.register_for_auto_class("AutoModelForImageTextToText")
NagTeacherForCaptioning.register_for_auto_class("AutoModelForImageTextToText")

PIPELINE_REGISTRY.register_pipeline(
    "nag-translation", pipeline_class=NagTranslationPipeline, pt_model=AutoModelForSeq2SeqLM, type="text"
)
