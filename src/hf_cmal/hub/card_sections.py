"""The prose of a model card: what the model is, how to use it, its limits, its training, its licence.

A section is a string without its heading; what is not known is not in it. The numbers that it quotes are
those of the evaluated system. The front matter and the table are `model_card.py`'s.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from hf_cmal.hub.licences import License
from hf_cmal.hub.training_data import TrainingData

STUDENT_TRANSLATES = """\
from transformers import pipeline

translate = pipeline("nag-translation", model={repo_id}, trust_remote_code=True)
print(translate({example}))"""
TEACHER_TRANSLATES = """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained({repo_id})
model = AutoModelForSeq2SeqLM.from_pretrained({repo_id})
inputs = tokenizer([{example}], return_tensors="pt", truncation=True)
print(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True))"""
CAPTIONS = """\
import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

model = AutoModelForImageTextToText.from_pretrained({repo_id}, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained({repo_id}, trust_remote_code=True)
features = torch.zeros(1, 49, model.config.feature_size)  # put the vectors of a picture here
print(tokenizer.batch_decode(model.generate(features=features), skip_special_tokens=True))"""
# (task, kind of the system) -> code that runs as it stands.
USAGE = {
    ("translation", "student"): STUDENT_TRANSLATES,
    ("translation", "teacher"): TEACHER_TRANSLATES,
    ("captioning", "student"): CAPTIONS,
    ("captioning", "teacher"): CAPTIONS,
}

KINDS = {
    "student": "A non-autoregressive Transformer: it writes its whole output in one decoder call.",
    "teacher": "An autoregressive Transformer, the teacher of non-autoregressive students: it writes word by "
    "word.",
}
# Stage of the recipe -> how the model was trained.
STAGES = {
    "teacher_xe": "It was trained word by word (cross-entropy) on the sentences of the data set.",
    "student_xe": "It was trained word by word (cross-entropy) on {targets}.",
    "cmal": "After word-by-word training it was trained with counterfactuals-critical multi-agent learning "
    "(CMAL): every position of the output is an agent, and all are rewarded for the whole sentence.",
}
CMAL_ESTIMATOR = "counterfactual"
OTHER_ESTIMATOR = "The gradient was estimated by `{estimator}`, in place of CMAL's counterfactual baselines."

CMAL_CITATION = """\
@article{guo2021fast,
  title   = {Fast Sequence Generation with Multi-Agent Reinforcement Learning},
  author  = {Guo, Longteng and Liu, Jing and Zhu, Xinxin and Lu, Hanqing},
  journal = {arXiv preprint arXiv:2101.09698},
  year    = {2021}
}"""


def introduction(task: str, kind: str, languages: Sequence[str], domain: str | None) -> str:
    does = {
        "translation": f"It translates {' to '.join(languages)}",
        "captioning": "It describes pictures, given as feature vectors",
    }[task]
    return f"{KINDS[kind]} {does}{f' and was trained on {domain}' if domain else ''}."


def usage(task: str, kind: str, *, repo_id: str, example: str) -> str:
    """The snippet and what it takes to run it."""
    # a string of JSON is one of Python too
    code = USAGE[task, kind].format(
        repo_id=json.dumps(repo_id, ensure_ascii=False), example=json.dumps(example, ensure_ascii=False)
    )
    remote = (
        "The folder is a plain MarianMT model, without code of its own."
        if (task, kind) == ("translation", "teacher")
        else "`trust_remote_code=True` runs the code files of this folder."
    )
    parts = [
        f"```python\n{code}\n```",
        f"`{repo_id}` stands for this repository: its id on the Hub, or the path of the folder on your "
        f"machine. {remote} It takes torch and transformers 5.24 or newer; hf_cmal need not be installed.",
    ]
    if task == "translation":
        parts += [
            "With hf_cmal installed, also from a shell:",
            f"```bash\nhf-cmal translate --model {shlex.quote(repo_id)} {shlex.quote(example)}\n```",
        ]
    return "\n\n".join(parts)


def limits(
    task: str, scores: Mapping[str, Any], *, license: License, data: TrainingData, domain: str | None
) -> str:
    """Bullets: what for, what it has not seen, how often it repeats itself."""
    bullets = [license.use, f"{f'Domain: {domain}. ' if domain else ''}{data.limits}"]
    if "repetition_rate" in scores:
        repeats = (
            f"Repetition: {100 * scores['repetition_rate']:.1f} % of the tokens that it wrote for the split "
            "above equal the token before them."
        )
        bullets.append(
            f"{repeats} That was counted before `remove_consecutive_duplicates`, which takes repetitions "
            "out, wanted ones included."
            if scores["kind"] == "student"
            else repeats
        )
    if task == "translation":
        bullets.append("Text longer than the training sentences is cut: split it into sentences.")
    return "\n".join(f"- {bullet}" for bullet in bullets)


def training(recipe: Mapping[str, Any] | None, data: TrainingData) -> str:
    """From the resolved recipe of the model's last stage, if it is there, and the ladder of its data."""
    parts = []
    if recipe is not None:
        targets = "its teacher's outputs" if recipe.get("pseudo_targets") else "the sentences of the data set"
        estimator = (recipe.get("training") or {}).get("estimator", CMAL_ESTIMATOR)
        other = "" if estimator == CMAL_ESTIMATOR else f" {OTHER_ESTIMATOR.format(estimator=estimator)}"
        parts.append(
            STAGES[recipe["stage"]].format(targets=targets)
            + other
            + " `recipe.yaml` in this folder is the recipe of that stage, with all settings and the seed."
        )
    parts.append(f"Data: {data.name}, {data.attribution}.")
    if data.command is not None:
        parts.append(
            "In a clone of hf_cmal this trains and measures all stages; recipes/README.md says where it "
            f"looks for the data:\n\n```bash\n{data.command}\n```"
        )
    return "\n\n".join(parts)


def licence(license: License, data: TrainingData) -> str:
    name = license.name or license.identifier
    return (
        f"Code: Apache-2.0. Weights: {name}; see `LICENSE`. They are derived from {data.name}. {data.terms}"
        if license.name
        else f"Code and weights: {name}. Trained on {data.name}. {data.terms}"
    )


def citation(data: TrainingData) -> str:
    entries = [CMAL_CITATION] if data.citation is None else [CMAL_CITATION, data.citation]
    return "```bibtex\n" + "\n".join(entries) + "\n```"
