"""A trained folder becomes the folder that is published: small, complete, with nothing of its machine in it.

Weights are rounded to half precision and load as float32; the default settings of decoding are those that the
named system was measured with; the card and the licence say what it is. It trains, measures and uploads
nothing: `push_to_hub` sends the folder as it is.
"""

import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_cmal.evaluation.loading import is_student, load_model, load_tokenizer
from hf_cmal.hub.card_facts import read_card_facts
from hf_cmal.hub.licences import APACHE_2, License, license_text
from hf_cmal.hub.model_card import EXAMPLE, model_card, read_result
from hf_cmal.hub.portable_recipe import DATA_VARIABLE, read_portable_recipe
from hf_cmal.hub.training_data import TrainingData, training_data

logger = logging.getLogger(__name__)

MAX_BYTES = 20_000_000
RECIPE = "recipe.yaml"
# Names of all files that a release can hold; a folder that holds others is never replaced.
RELEASED = (
    "README.md", "LICENSE", RECIPE, "config.json", "generation_config.json", "*.safetensors",
    "*.safetensors.index.json", "*_nag.py", "*_nag_teacher.py", "tokenizer*.json", "special_tokens_map.json",
    "added_tokens.json", "vocab.json", "merges.txt", "*.spm", ".gitattributes",
)  # fmt: skip
# How the tokenizer was opened here; of no meaning in another place.
OPENED_HERE = ("is_local", "local_files_only", "name_or_path")


def write_release(
    folder: str | Path,
    output: str | Path,
    *,
    result: Mapping[str, Any] | str | Path,
    system: str,
    dataset: str | TrainingData,
    languages: Sequence[str],
    license: License,
    domain: str,
    base_model: str | None = None,
    example: str = EXAMPLE,
    notes: str | None = None,
    repo_id: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Path:
    """Writes `output`, laid out as the Hub repository that it becomes, and opens it to see that it decodes.

    `output` appears when it is complete. An earlier release there is replaced; anything else is left alone.

    Args:
        folder: of a trained model, as a training stage leaves it, or an earlier release.
        output: folder to write, e.g. "model_cards/nag-multi30k-en-de"; its name is the model's name.
        result: what `evaluate` wrote, or the path of its JSON file.
        system: which of the result's systems this is; its settings become the defaults of the release.
        dataset: a name of `TRAINING_DATA`, or what a data set that is not in it has to say.
        languages: codes of the languages, the source's first.
        license: `APACHE_2` or `NON_COMMERCIAL_RESEARCH` of `hub.licences`, or another.
        domain: kind of text that the model was trained on, a few words, e.g. "image descriptions".
        base_model: Hub id of the teacher, if it is there.
        example: a sentence of the domain, in no data set, for the card and for the check.
        notes: whatever else the card has to say.
        repo_id: how the card's code names the model; None: `output`'s last two parts, e.g.
            "model_cards/nag-multi30k-en-de", which the code finds when it is run in the clone.
        max_bytes: what the weights may have on disk.

    Raises:
        FileNotFoundError: there is no `folder`.
        FileExistsError: `output` holds something else than a release.
        OSError: `folder` holds no model or no tokenizer that can be opened.
        ValueError: an argument that cannot be used, a system that is not the folder's model, a weight that
            half precision cannot hold, a path of this machine in the recipe, or weights above `max_bytes`.

    Example:

    ```python
    >>> from hf_cmal.hub.licences import NON_COMMERCIAL_RESEARCH
    >>> from hf_cmal.hub.release import write_release

    >>> write_release(
    ...     "outputs/multi30k/05_cmal",
    ...     "model_cards/nag-multi30k-en-de",
    ...     result="recipes/multi30k/results/seed1.json",
    ...     system="nat_cmal_postprocess",
    ...     dataset="bentrevett/multi30k",
    ...     languages=["en", "de"],
    ...     license=NON_COMMERCIAL_RESEARCH,
    ...     domain="image descriptions",
    ... )
    PosixPath('model_cards/nag-multi30k-en-de')
    ```
    """
    folder, output = Path(folder), Path(output)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(folder)!r}; give one that a training stage wrote")
    if not domain.strip() or "\n" in domain:
        raise ValueError(f"domain is {domain!r}; give a few words on one line, e.g. 'image descriptions'")
    _check_output(output)
    result, data = read_result(result, system), training_data(dataset)
    if data.non_commercial and license == APACHE_2:
        raise ValueError(
            f"license is {license.identifier}, but {data.name} may not be used so: {data.terms} Give "
            "non-commercial-research"
        )
    scores = result["systems"][system]
    recipe = (
        read_portable_recipe(folder / RECIPE, data_folder=os.environ.get(DATA_VARIABLE))
        if (folder / RECIPE).is_file()
        else None
    )
    place = output.resolve()
    card = {
        "repo_id": repo_id or f"{place.parent.name}/{place.name}",
        "system": system, "dataset": data, "languages": languages, "license": license, "domain": domain,
        "base_model": base_model, "example": example, "recipe": recipe, "notes": notes,
    }  # fmt: skip
    model_card(result, **card)  # whatever is wrong with it is found before anything is written
    model = load_model(str(folder), task=result["task"])
    tokenizer = load_tokenizer(str(folder))
    _check_is(system, scores, model, folder)
    settings = _use_settings(model, scores)
    changed = round_to_half(model)

    part = place.with_name(f".{place.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a run that was killed
    part.mkdir(parents=True)
    try:
        size = _save(model, tokenizer, part, max_bytes=max_bytes)
        files = _describe_files(scores, settings, size, system=system, changed=changed)
        (part / "README.md").write_text(model_card(result, **card, files=files), encoding="utf-8")
        (part / "LICENSE").write_text(license_text(license, data), encoding="utf-8")
        if recipe is not None:
            OmegaConf.save(OmegaConf.create(recipe), part / RECIPE)
        _check_decodes(part, type(model), result["task"], example)
        _put_in_place(part, place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    logger.info("%s: %d bytes of weights, defaults %s", output, size, settings)
    return output


def round_to_half(model: PreTrainedModel) -> bool:
    """Rounds all weights of a float32 model to float16, in place; says whether that changed any.

    Raises:
        ValueError: a weight is no number, or beyond float16's largest, 65504; the message names its tensor.
    """
    changed = False
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point():
            continue
        rounded = tensor.half()
        # an infinity that is wanted, e.g. of a word that is never written, stays one
        lost = ~rounded.isfinite() & ~tensor.isinf()
        if lost.any():
            raise ValueError(
                f"{name} holds {tensor[lost][0].item():g}, which half precision cannot store (its largest "
                "number is 65504); the training has diverged: release an earlier checkpoint, or train with a "
                "smaller learning rate"
            )
        changed |= not torch.equal(rounded.float(), tensor)
    model.half()  # in place, so that tied weights stay one tensor
    return changed


def _check_output(output: Path) -> None:
    if not output.exists():
        return
    if not output.is_dir():
        raise FileExistsError(f"output {str(output)!r} is a file; give a folder")
    names = sorted(path.name + "/" * path.is_dir() for path in output.iterdir())
    others = [name for name in names if not any(fnmatch(name, pattern) for pattern in RELEASED)]
    if others:
        raise FileExistsError(
            f"{str(output)!r} holds {others[0]!r}, which no release holds; give another output, or remove it"
        )
    if names and read_card_facts(output).domain is None:
        raise FileExistsError(
            f"{str(output)!r} holds {', '.join(names)} but no card of a release; give another output, or "
            "empty it"
        )


def _check_is(system: str, scores: Mapping[str, Any], model: PreTrainedModel, folder: Path) -> None:
    """As far as it can be seen, the folder's model is the one that was measured."""
    measured = ("parameters", "num_beams", "remove_consecutive_duplicates")
    missing = [key for key in measured if key not in scores]
    if missing:
        raise ValueError(
            f"The result lacks {', '.join(missing)} of {system!r}; `hf-cmal evaluate` writes them: run it "
            "again"
        )
    kind = "student" if is_student(model) else "teacher"
    if (kind, model.num_parameters()) != (scores["kind"], scores["parameters"]):
        raise ValueError(
            f"system {system!r} is a {scores['kind']} of {scores['parameters']} parameters, but "
            f"{str(folder)!r} holds a {kind} of {model.num_parameters()}; give the folder that was measured, "
            "or the system that it is"
        )


def _use_settings(model: PreTrainedModel, scores: Mapping[str, Any]) -> dict[str, Any]:
    """Makes what the system was measured with the model's default."""
    settings = (
        {"remove_consecutive_duplicates": scores["remove_consecutive_duplicates"]}
        if is_student(model)
        else {"num_beams": scores["num_beams"], "do_sample": False}
    )
    model.generation_config.update(**settings)
    return settings


def _save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, part: Path, *, max_bytes: int) -> int:
    """Writes model and tokenizer; returns the bytes of the weights."""
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    # half precision is for the disk: on a CPU it computes more slowly than float32
    _edit_json(part / "config.json", lambda config: {**config, "dtype": "float32"})
    _edit_json(
        part / "tokenizer_config.json",
        lambda config: {key: value for key, value in config.items() if key not in OPENED_HERE},
    )
    size = sum(path.stat().st_size for path in part.glob("*.safetensors"))
    if size > max_bytes:
        raise ValueError(
            f"the weights are {size} bytes in half precision, more than max_bytes={max_bytes}; raise "
            "max_bytes if the file may be in every clone, push the trained folder to the Hub instead, or "
            "train a smaller model"
        )
    return size


def _edit_json(path: Path, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    content = edit(json.loads(path.read_text(encoding="utf-8")))
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _describe_files(
    scores: Mapping[str, Any], settings: Mapping[str, Any], size: int, *, system: str, changed: bool
) -> str:
    weights = (
        f"- `model.safetensors`: {scores['parameters']:,} parameters, {size / 1e6:.1f} MB. They are stored "
        'in half precision and load as float32 (`"dtype"` in `config.json`).'
    )
    if changed:
        weights += " The scores above are those of the weights before this rounding."
    options = ", ".join(f"{name} {json.dumps(value)}" for name, value in settings.items())
    return (
        f"{weights}\n- `generation_config.json`: a call without options decodes as **{system}** was measured "
        f"({options})."
    )


def _check_decodes(part: Path, model_class: type[PreTrainedModel], task: str, example: str) -> None:
    """Opens the release as everybody will, and decodes once."""
    model = model_class.from_pretrained(part).eval()
    dtypes = {str(tensor.dtype) for tensor in model.parameters()}
    if dtypes != {"torch.float32"}:
        raise ValueError(f"the release loads as {', '.join(sorted(dtypes))} instead of float32")
    if task == "captioning":
        model.generate(features=torch.zeros(1, 1, model.config.feature_size))
        return
    tokenizer = load_tokenizer(str(part))
    inputs = tokenizer([example], return_tensors="pt", truncation=True)
    text = tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True)
    if not text.strip():
        raise ValueError(
            f"the release translates {example!r} to an empty text; give an example of its domain, or train "
            "longer"
        )
    logger.info("%s -> %s", example, text)


def _put_in_place(part: Path, output: Path) -> None:
    """Gives the finished folder its name; an earlier release goes only when the new one stands."""
    if not output.exists():
        os.replace(part, output)
        return
    old = output.with_name(f".{output.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    os.replace(output, old)
    try:
        os.replace(part, output)
    except OSError:
        os.replace(old, output)
        raise
    shutil.rmtree(old)
