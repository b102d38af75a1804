"""The README.md of a Hub repository, written from the result JSON of an evaluation.

Every number on the card, in its table and in its model-index, is read from the result; what was not measured
is not on the card. The prose is in `card_sections.py`. It does not evaluate. Whether the Hub accepts the card
is asked of the Hub (`huggingface_hub.ModelCard(text).validate()`), which needs the network.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from hf_cmal.hub import card_sections
from hf_cmal.hub.licences import APACHE_2, License
from hf_cmal.hub.training_data import TrainingData, training_data

# Key in the result -> (metric id of the Hub, name on the card, key of the signature), in the table's order.
METRICS = {
    "bleu": ("bleu", "BLEU", "bleu_signature"),
    "bleu_tokenised": ("bleu", "tokenised BLEU", "bleu_tokenised_signature"),
    "gleu": ("google_bleu", "GLEU", "gleu_signature"),
    "chrf": ("chrf", "chrF", "chrf_signature"),
    "cider": ("cider", "CIDEr", "cider_signature"),
    "bleu_1": ("bleu", "BLEU-1", "bleu_signature"),
    "bleu_2": ("bleu", "BLEU-2", "bleu_signature"),
    "bleu_3": ("bleu", "BLEU-3", "bleu_signature"),
    "bleu_4": ("bleu", "BLEU-4", "bleu_signature"),
    "rouge_l": ("rouge", "ROUGE-L", "rouge_l_signature"),
}
# Columns of the table without a signature: the line below it says how the times were measured.
LATENCY = {"latency_ms": "latency (ms)", "speedup": "speed-up"}

# Task in the result -> task id of the Hub.
TASKS = {"translation": "translation", "captioning": "image-to-text"}
TAGS = {"student": "non-autoregressive", "teacher": "autoregressive"}
EXAMPLE = "A man is standing on a ladder."


def model_card(
    result: Mapping[str, Any] | str | Path,
    *,
    repo_id: str,
    system: str,
    dataset: str | TrainingData,
    languages: Sequence[str],
    license: License = APACHE_2,
    domain: str | None = None,
    base_model: str | None = None,
    example: str = EXAMPLE,
    recipe: Mapping[str, Any] | None = None,
    files: str | None = None,
    notes: str | None = None,
) -> str:
    """The text of a model card: front matter with model-index, usage, and a table of the evaluated systems.

    Args:
        result: what `evaluate` wrote (keys `task`, `split`, `systems`, ...), or the path of its JSON file.
        repo_id: "owner/name", or a path of the folder, as in the usage lines.
        system: which of the result's systems the repository holds; the others are its company in the table.
        dataset: a name of `TRAINING_DATA`, or what a data set that is not in it has to say.
        languages: codes of the languages, the source's first.
        license: of the weights.
        domain: kind of text that the model was trained on, a few words, e.g. "image descriptions".
        base_model: Hub id of the teacher, if it is there.
        example: the sentence in the usage of a translator.
        recipe: resolved recipe of the stage that trained the model; None leaves out what only it knows.
        files: what the folder holds and how it is stored; None: no such section.
        notes: whatever else has to be said; None: no such section.

    Raises:
        ValueError: unknown task, system, data set or stage, a system without metric, or a metric without its
            signature.

    Example:

    ```python
    >>> from hf_cmal import model_card, push_to_hub

    >>> card = model_card(
    ...     "recipes/toy/translation/results/seed1.json",
    ...     repo_id="me/toy-nat",
    ...     system="nat_cmal_ca",
    ...     dataset="toy",
    ...     languages=["en", "de"],
    ... )
    >>> push_to_hub("outputs/student", "me/toy-nat", card=card)
    ```
    """
    result = read_result(result, system)
    task, scores, data = result["task"], result["systems"][system], training_data(dataset)
    if recipe is not None and recipe.get("stage") not in card_sections.STAGES:
        raise ValueError(
            f"The recipe's stage is {recipe.get('stage')!r}; a stage that trains a model is one of "
            f"{', '.join(card_sections.STAGES)}"
        )
    metrics = _measured(system, scores)
    name = repo_id.rstrip("/").split("/")[-1]
    front_matter = ModelCardData(
        model_name=name,
        language=list(languages),
        license=license.identifier,
        license_name=license.name,
        license_link="LICENSE" if license.name else None,
        library_name="transformers",
        pipeline_tag=TASKS[task],
        tags=[TAGS[scores["kind"]], "hf_cmal", *(["cmal"] if recipe and recipe["stage"] == "cmal" else [])],
        metrics=sorted({METRICS[key][0] for key in metrics}),
        datasets=[data.identifier] if "/" in data.identifier else None,
        base_model=base_model,
        domain=domain,
        eval_results=[
            EvalResult(
                task_type=TASKS[task],
                dataset_type=data.identifier,
                dataset_name=data.name,
                dataset_split=result["split"],
                metric_type=METRICS[key][0],
                metric_name=METRICS[key][1],
                metric_value=scores[key],
                metric_args={"signature": scores[METRICS[key][2]]},
            )
            for key in metrics
        ],
    )
    results = "\n\n".join(
        [
            f"{result['rows']} rows of {data.name}, split {result['split']}. "
            f"This repository holds **{system}**.",
            _table(result, system, metrics),
            _footnotes(result, scores, metrics),
        ]
    )
    sections = {
        "Use": card_sections.usage(task, scores["kind"], repo_id=repo_id, example=example),
        "Results": results,
        "Intended use and limits": card_sections.limits(
            task, scores, license=license, data=data, domain=domain
        ),
        "How it was trained": card_sections.training(recipe, data),
        "Files": files,
        "Notes": notes,
        "Licence": card_sections.licence(license, data),
        "Citation": card_sections.citation(data),
    }
    parts = [f"# {name}", card_sections.introduction(task, scores["kind"], languages, domain)]
    parts += [f"## {heading}\n\n{text}" for heading, text in sections.items() if text]
    return f"---\n{front_matter.to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n"


def read_result(result: Mapping[str, Any] | str | Path, system: str) -> Mapping[str, Any]:
    """The result of an evaluation, from its file or as it is, with `system` among its systems.

    Raises:
        ValueError: unknown task or system, or a system that does not say what it is.
    """
    if not isinstance(result, Mapping):
        result = json.loads(Path(result).read_text(encoding="utf-8"))
    if result.get("task") not in TASKS:
        raise ValueError(f"The result's task is {result.get('task')!r}; legal values: {', '.join(TASKS)}")
    if system not in result["systems"]:
        raise ValueError(f"system is {system!r}; the result has {', '.join(result['systems'])}")
    kind = result["systems"][system].get("kind")
    if kind not in TAGS:
        raise ValueError(
            f"The kind of {system!r} is {kind!r}; legal values: {', '.join(TAGS)}. `hf-cmal evaluate` writes "
            "it: run it again"
        )
    return result


def _measured(system: str, scores: Mapping[str, Any]) -> list[str]:
    metrics = [key for key in METRICS if key in scores]
    if not metrics:
        raise ValueError(f"The result has none of the metrics {', '.join(METRICS)} for {system!r}.")
    unsigned = sorted({METRICS[key][2] for key in metrics} - scores.keys())
    if unsigned:
        raise ValueError(
            f"{system!r} has scores without {', '.join(unsigned)}; a score means little without it."
        )
    return metrics


def _table(result: Mapping[str, Any], system: str, metrics: Sequence[str]) -> str:
    latency = [key for key in LATENCY if key in result["systems"][system]]
    titles = [METRICS[key][1] for key in metrics] + [LATENCY[key] for key in latency]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for name, scores in result["systems"].items():
        cells = [f"{scores[key]:.4g}" for key in (*metrics, *latency)]
        lines.append(f"| {f'**{name}**' if name == system else name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _footnotes(result: Mapping[str, Any], scores: Mapping[str, Any], metrics: Sequence[str]) -> str:
    # Several metrics can share a signature, as BLEU-1 to BLEU-4 do.
    signatures = dict.fromkeys(METRICS[key][2] for key in metrics)
    lines = [f"- {key.removesuffix('_signature')}: `{scores[key]}`" for key in signatures]
    if "latency" in result:
        facts = result["latency"]
        lines.append(
            f"- latency: batch {facts['batch_size']}, {facts['dtype']}, {facts['device']}, "
            f"{facts['threads']} threads, mean over {facts['inputs']} inputs; speed-up over "
            f"{facts['rival']}, in the same run, on "
            f"{result['hardware']['accelerator'] or result['hardware']['processor']}"
        )
    return "\n".join(lines)
