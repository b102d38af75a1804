"""A recipe is a YAML file that says all about one stage; this file reads it strictly and runs the stage.

`base: other.yaml` (one level) holds what the stages of a ladder share, `key=value` words override single
values, and `${...}` interpolates. An unknown key is an error that lists the legal ones. The resolved recipe
is saved beside what it made. The stages themselves are in `stages.py`.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from hf_cmal.evaluation.evaluate import EvaluationOptions
from hf_cmal.tasks import ModelOptions, get_task
from hf_cmal.training.arguments import CmalTrainingArguments, XeTrainingArguments
from hf_cmal.training.document_frequencies import check_document_frequencies

RESOLVED_RECIPE = "recipe.yaml"
TRAINING_ARGUMENTS = {
    "teacher_xe": XeTrainingArguments,
    "student_xe": XeTrainingArguments,
    "cmal": CmalTrainingArguments,
}
STAGES = (*TRAINING_ARGUMENTS, "distill", "evaluate")


@dataclass(frozen=True)
class DistillationOptions:
    """How the teacher writes pseudo-targets (Sec. 4.6); beams are 3 in Sec. 5.1.2, 4 in Sec. 6.1.2."""

    num_beams: int = 4
    batch_size: int = 32
    bf16: bool = False

    def __post_init__(self) -> None:
        for name in ("num_beams", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"distillation.{name} is {getattr(self, name)}; give 1 or more")


@dataclass(frozen=True)
class Recipe:
    """One stage.

    Attributes:
        stage: one of `STAGES`.
        task: a name of `hf_cmal.tasks.TASKS`.
        root: a folder for the recipe's own use in `${root}/...`.
        output_dir: where the stage writes.
        data: options of the task, see `TranslationData` and `CaptioningData`.
        model: shape of the teacher and its student.
        teacher: folder of the teacher (stages distill and student_xe).
        student: folder of the student that CMAL starts from.
        pseudo_targets: folder that distillation filled; None trains the student on the references.
        weight_init: start the student from the teacher's weights (Sec. 5.1.2), else from random ones.
        validation_rows: rows of the validation split used while training; None: all.
        training: options of `XeTrainingArguments` or `CmalTrainingArguments`.
        expected: what a run of the recipe gave, or "not run".
    """

    stage: str
    task: str
    output_dir: str
    root: str = "outputs"
    seed: int = 1
    data: Any = None
    model: ModelOptions = field(default_factory=ModelOptions)
    teacher: str | None = None
    student: str | None = None
    pseudo_targets: str | None = None
    weight_init: bool = True
    validation_rows: int | None = None
    training: dict[str, Any] = field(default_factory=dict)
    distillation: DistillationOptions = field(default_factory=DistillationOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    expected: str = "not run"


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a recipe with its base and `key=value` overrides.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an unknown stage, task or key, a value of the wrong type, or none where the recipe has
            `???`; the message names the file, the key and the legal values.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no recipe at {path}; the recipes that come with the project are in recipes/"
        )
    try:
        merged = OmegaConf.merge(_with_base(path), _dotlist(overrides))
        if missing := sorted(OmegaConf.missing_keys(merged)):
            words = " ".join(f"{key}=..." for key in missing)
            raise ValueError(f"{path}: {' and '.join(missing)} must be given; add {words}")
        OmegaConf.resolve(merged)
        plain = OmegaConf.to_container(merged)
    except (OmegaConfBaseException, YAMLError) as error:
        raise ValueError(f"{path}: {error}") from error
    assert isinstance(plain, dict)
    return parse_recipe(plain, where=str(path))


def parse_recipe(plain: dict[str, Any], *, where: str) -> Recipe:
    """A resolved dictionary to a checked `Recipe`; `where` begins every error message."""
    stage, task = plain.get("stage"), plain.get("task")
    if stage not in STAGES:
        raise ValueError(f"{where}: stage is {stage!r}; legal values: {', '.join(STAGES)}")
    if not isinstance(task, str):
        raise ValueError(f"{where}: task is {task!r}; give a name of a task, e.g. translation")
    parts = dict(plain)
    data = _parse(get_task(task).data_options, parts.pop("data", None) or {}, where=f"{where}: data")
    training = parts.pop("training", None) or {}
    if not isinstance(training, dict):
        raise ValueError(f"{where}: training is {training!r}; give keys with values")
    training = {
        key: "no" if value is False and key.endswith("_strategy") else value  # YAML reads a bare no as False
        for key, value in training.items()
    }
    if stage in TRAINING_ARGUMENTS:
        _check_keys(training, _field_names(TRAINING_ARGUMENTS[stage]), where=f"{where}: training")
        _check_numbers(training, TRAINING_ARGUMENTS[stage], where=f"{where}: training")
    elif training:
        raise ValueError(
            f"{where}: stage {stage} trains nothing, but training has {', '.join(training)}; remove it"
        )
    if stage == "cmal":
        check_document_frequencies(
            training.get("document_frequencies"),
            reward=training.get("reward", get_task(task).default_reward),
            where=f"{where}: training.",
        )
    recipe: Recipe = _parse(Recipe, parts, where=where)
    return dataclasses.replace(recipe, data=data, training=training)


def _with_base(path: Path) -> DictConfig:
    recipe = _load_yaml(path)
    if "base" not in recipe:
        return recipe
    base_path = path.parent / recipe.pop("base")
    if not base_path.is_file():
        raise FileNotFoundError(f"{path}: base is {str(base_path)!r}, which does not exist")
    base = _load_yaml(base_path)
    if "base" in base:
        raise ValueError(f"{base_path} is a base and names a base itself; one level is allowed")
    merged = OmegaConf.merge(base, recipe)
    assert isinstance(merged, DictConfig)
    return merged


def _load_yaml(path: Path) -> DictConfig:
    loaded = OmegaConf.load(path)
    if not isinstance(loaded, DictConfig):
        raise ValueError(f"{path} is no recipe: it holds a list, not keys with values")
    return loaded


def _dotlist(overrides: Sequence[str]) -> DictConfig:
    for word in overrides:
        if "=" not in word:
            raise ValueError(
                f"override {word!r} has no '='; write key=value, e.g. training.num_train_epochs=1"
            )
    return OmegaConf.from_dotlist(list(overrides))


def _parse(kind: Any, values: dict[str, Any], *, where: str) -> Any:
    """Values into a dataclass, strictly: unknown keys and wrong types are errors."""
    if not isinstance(values, dict):
        raise ValueError(f"{where} is {values!r}; give keys with values: {', '.join(_field_names(kind))}")
    _check_keys_of(kind, values, where=where)
    for part in dataclasses.fields(kind):
        if get_origin(part.type) is tuple and isinstance(value := values.get(part.name), str):
            raise ValueError(f"{where}.{part.name} is {value!r}; give a list, e.g. [first,second]")
    try:
        parsed = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(kind), values))
    except OmegaConfBaseException as error:
        raise ValueError(f"{where}: {error}") from error
    frozen = {
        name: tuple(value) for name in _field_names(kind) if isinstance(value := getattr(parsed, name), list)
    }
    return dataclasses.replace(parsed, **frozen)  # type: ignore[type-var]


def _field_names(kind: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(kind) if f.init]


def _check_keys_of(kind: Any, values: Any, *, where: str) -> None:
    """Checks the keys of a dataclass, and of the dataclasses that it or a table in it holds."""
    if not isinstance(values, dict):
        return  # a wrong type, which OmegaConf names
    _check_keys(values, _field_names(kind), where=where)
    for part in dataclasses.fields(kind):
        inner = values.get(part.name)
        if dataclasses.is_dataclass(part.type):
            _check_keys_of(part.type, inner, where=f"{where}: {part.name}")
        row = get_args(part.type)[-1:]
        if isinstance(inner, dict) and row and dataclasses.is_dataclass(row[0]):
            for name, item in inner.items():
                _check_keys_of(row[0], item, where=f"{where}: {part.name}.{name}")


def _check_keys(values: dict[str, Any], legal: Sequence[str], *, where: str) -> None:
    unknown = [key for key in values if key not in legal]
    if unknown:
        raise ValueError(
            f"{where}: unknown key {', '.join(map(repr, unknown))}; legal keys: {', '.join(legal)}"
        )


def _check_numbers(values: dict[str, Any], kind: Any, *, where: str) -> None:
    """The Trainer checks names and strategies itself, but lets any value pass for a number or a switch."""
    hints = get_type_hints(kind)
    for key, value in values.items():
        is_union = get_origin(hints[key]) in (Union, UnionType)
        types = set(get_args(hints[key])) if is_union else {hints[key]}
        if not types <= {int, float, bool, NoneType}:
            continue
        legal = types | {int} if float in types else types
        if type(value) not in legal:
            names = " or ".join(sorted(one.__name__ for one in types - {NoneType}))
            raise ValueError(f"{where}.{key} is {value!r}; give a value of type {names}")


def save_recipe(recipe: Recipe, folder: str | Path) -> Path:
    """Writes the resolved recipe into a folder, as YAML that `load_recipe` reads back to the same recipe."""
    path = Path(folder) / RESOLVED_RECIPE
    path.parent.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(OmegaConf.create(_plain(dataclasses.asdict(recipe))), path)
    return path


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
