"""The README.md of a Hub repository, written from the result JSON of an evaluation.

Every number on the card, in its table and in its model-index, is read from the result; what was not measured
is not on the card. It does not evaluate. Whether the Hub accepts the card is asked of the Hub
(`huggingface_hub.ModelCard(text).validate()`), which needs the network.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

# Key in the result -> (metric id of the Hub, name on the card, key of the signature), in the table's order.
METRICS = {
    "bleu": ("bleu", "BLEU", "bleu_signature"),
    "bleu_tokenised": ("bleu", "tokenised BLEU", "bleu_tokenised_signature"),
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

TRANSLATION_USAGE = """\
from transformers import pipeline

translate = pipeline("nag-translation", model="{repo_id}", trust_remote_code=True)
print(translate("{example}"))"""
CAPTIONING_USAGE = """\
from transformers import AutoModelForImageTextToText, AutoTokenizer

model = AutoModelForImageTextToText.from_pretrained("{repo_id}", trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained("{repo_id}", trust_remote_code=True)
# features: [pictures, vectors per picture, model.config.feature_size]
print(tokenizer.batch_decode(model.generate(features=features), skip_special_tokens=True))"""
# Task in the result -> (task id of the Hub, usage).
TASKS = {"translation": ("translation", TRANSLATION_USAGE), "captioning": ("image-to-text", CAPTIONING_USAGE)}


def model_card(
    result: Mapping[str, Any] | str | Path,
    *,
    repo_id: str,
    system: str,
    dataset: str,
    languages: Sequence[str],
    license: str = "apache-2.0",
    base_model: str | None = None,
    example: str = "A man is standing on a ladder.",
) -> str:
    """The text of a model card: front matter with model-index, usage, and a table of the evaluated systems.

    Args:
        result: what `evaluate` wrote (keys `task`, `split`, `systems`, ...), or the path of its JSON file.
        repo_id: "owner/name", as in the usage lines.
        system: which of the result's systems the repository holds; the others are its company in the table.
        dataset: id on the Hub ("owner/name"), or a plain name.
        languages: codes of the languages, the source's first.
        license: an identifier of the Hub.
        base_model: Hub id of the teacher, if it is there.
        example: the sentence in the usage of a translator.

    Raises:
        ValueError: unknown task or system, a system without metric, or a metric without its signature.

    Example:

    ```python
    >>> from hf_cmal import model_card, push_to_hub

    >>> card = model_card(
    ...     "recipes/toy/results/translation.json",
    ...     repo_id="me/toy-nat",
    ...     system="cmal",
    ...     dataset="toy",
    ...     languages=["en", "de"],
    ... )
    >>> push_to_hub("outputs/student", "me/toy-nat", card=card)
    ```
    """
    if not isinstance(result, Mapping):
        result = json.loads(Path(result).read_text(encoding="utf-8"))
    if result["task"] not in TASKS:
        raise ValueError(f"The result's task is {result['task']!r}; legal values: {', '.join(TASKS)}")
    if system not in result["systems"]:
        raise ValueError(f"system is {system!r}; the result has {', '.join(result['systems'])}")
    task_id, usage = TASKS[result["task"]]
    scores = result["systems"][system]
    metrics = _measured(system, scores)
    name = repo_id.split("/")[-1]
    front_matter = ModelCardData(
        model_name=name,
        language=list(languages),
        license=license,
        library_name="transformers",
        pipeline_tag=task_id,
        tags=["non-autoregressive", "cmal"],
        metrics=sorted({METRICS[key][0] for key in metrics}),
        datasets=[dataset] if "/" in dataset else None,
        base_model=base_model,
        eval_results=[
            EvalResult(
                task_type=task_id,
                dataset_type=dataset,
                dataset_name=dataset,
                dataset_split=result["split"],
                metric_type=METRICS[key][0],
                metric_name=METRICS[key][1],
                metric_value=scores[key],
                metric_args={"signature": scores[METRICS[key][2]]},
            )
            for key in metrics
        ],
    )
    return f"""---
{front_matter.to_yaml()}
---

# {name}

A non-autoregressive Transformer: it writes its whole output in one decoder call. It was trained with
counterfactuals-critical multi-agent learning (CMAL) by the package hf_cmal, which is not needed to use it.

## Use

```python
{usage.format(repo_id=repo_id, example=example)}
```

## Results

{result["rows"]} rows of {dataset}, split {result["split"]}. This repository holds **{system}**.

{_table(result, system, metrics)}

{_footnotes(result, scores, metrics)}
"""


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
