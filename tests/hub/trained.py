"""Trained folders as the stages of a ladder leave them, and the result of measuring them.

The models are tiny and random, the numbers of the result are made up: each is one of a kind, so that a number
in the wrong place is noticed.
"""

import json
from pathlib import Path
from typing import Any

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_cmal.evaluation.loading import load_model
from hf_cmal.hub.licences import NON_COMMERCIAL_RESEARCH
from hf_cmal.training.recipe import parse_recipe, save_recipe
from tests.evaluation.tiny_ladder import save_captioners, save_translators

FILES = {
    "README.md",
    "LICENSE",
    "recipe.yaml",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}
EXAMPLE = "a green star is left of a small red circle ."
SENTENCES = [EXAMPLE, "a big blue square", "two yellow triangles are above a black star ."]
TRAINING_STATE = [
    "trainer_state.json",
    "training_args.bin",
    "checkpoint-10/model.safetensors",
    "checkpoint-10/optimizer.pt",
    "tokenizer/tokenizer.json",
]
BEAMS = 3
# name -> (kind, beams, postprocessing, made-up scores)
SYSTEMS = {
    "teacher_greedy": ("teacher", 1, False, 31.0625, 0.011),
    "teacher_beam": ("teacher", BEAMS, False, 33.125, 0.012),
    "nat": ("student", 1, False, 21.25, 0.213),
    "nat_postprocess": ("student", 1, True, 24.375, 0.214),
}


def save_trained(folder: Path, *, data: Path) -> dict[str, Any]:
    """`folder`/teacher and `folder`/student, translators with a recipe of files in `data`, and a result."""
    save_translators(folder)
    for name, stage in (("teacher", "teacher_xe"), ("student", "cmal")):
        recipe = {
            "stage": stage,
            "task": "translation",
            "output_dir": f"outputs/{name}",
            "data": {"train": [str(data / "own" / "train.en"), str(data / "own" / "train.de")]},
        }
        save_recipe(parse_recipe(recipe, where="the test"), folder / name)
        _leave_training_state(folder / name)
    return _result(folder, "translation")


def save_trained_captioners(folder: Path) -> dict[str, Any]:
    """The same for captioners, without recipes."""
    save_captioners(folder)
    for name in ("teacher", "student"):
        _leave_training_state(folder / name)
    return _result(folder, "captioning")


def load(folder: Path) -> tuple[Any, Any]:
    """A student or teacher and its tokenizer."""
    return (
        AutoModelForSeq2SeqLM.from_pretrained(folder).eval(),
        AutoTokenizer.from_pretrained(folder),
    )


def options(result: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Arguments of `write_release`, some of them changed."""
    return {
        "result": result,
        "system": "nat_postprocess",
        "dataset": "bentrevett/multi30k",
        "languages": ["en", "de"],
        "license": NON_COMMERCIAL_RESEARCH,
        "domain": "coloured shapes",
        "example": EXAMPLE,
        **changes,
    }


def _leave_training_state(folder: Path) -> None:
    for name in TRAINING_STATE:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("left behind")


def _result(folder: Path, task: str) -> dict[str, Any]:
    parameters = {
        name: load_model(str(folder / name), task=task).num_parameters() for name in ("teacher", "student")
    }
    if task == "translation":
        metrics = {"bleu": 1, "gleu": 2, "chrf": 3}
    else:
        metrics = {"cider": 1, "rouge_l": 2}
    systems = {
        name: {
            "kind": kind,
            "parameters": parameters[kind],
            "num_beams": beams,
            "remove_consecutive_duplicates": postprocess,
            **{metric: score * factor for metric, factor in metrics.items()},
            **{f"{metric}_signature": f"{metric}|made up" for metric in metrics},
            "repetition_rate": repetition,
        }
        for name, (kind, beams, postprocess, score, repetition) in SYSTEMS.items()
    }
    # as it comes out of its file
    return json.loads(json.dumps({"task": task, "split": "test", "rows": 10, "systems": systems}))
