"""The stages of a ladder: train a teacher, distil, train a student word by word, then by CMAL.

Each stage is a function of a checked recipe and writes into `recipe.output_dir`; a stage that was
interrupted goes on where it stopped when it is started again with the same recipe. Measuring is
`hf_cmal.evaluation`'s.
"""

import json
import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import PartialState
from datasets import Dataset, concatenate_datasets
from transformers import (
    AutoTokenizer,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from hf_cmal.data.columns import FEATURES, INPUT_IDS, REFERENCE_IDS, REFERENCES, SOURCE
from hf_cmal.data.encoding import one_row_per_reference
from hf_cmal.data.skipped import collect_skipped
from hf_cmal.data.statistics import list_lengths
from hf_cmal.data.tokenizer import train_tokenizer
from hf_cmal.evaluation.evaluate import evaluate_systems
from hf_cmal.evaluation.loading import check_positions, load_model, load_tokenizer
from hf_cmal.evaluation.scoring import score_tokens
from hf_cmal.models.nag.modeling_nag import NagForCaptioning, NagForTranslation
from hf_cmal.rewards.document_frequencies import DocumentFrequencies
from hf_cmal.tasks import Task, get_task
from hf_cmal.training.checkpoints import last_complete_checkpoint
from hf_cmal.training.cmal_trainer import CmalTrainer
from hf_cmal.training.distillation import distill
from hf_cmal.training.document_frequencies import DOCUMENT_FREQUENCIES, count_document_frequencies
from hf_cmal.training.pseudo_targets import load_pseudo_targets
from hf_cmal.training.recipe import RESOLVED_RECIPE, TRAINING_ARGUMENTS, Recipe, load_recipe, save_recipe
from hf_cmal.training.sequence_trainer import SequenceTrainer
from hf_cmal.training.stage_report import read_stage_reports, write_stage_report
from hf_cmal.training.weight_init import init_student_from_teacher, student_config_from_teacher
from hf_cmal.training.xe_trainer import XeTrainer

logger = logging.getLogger(__name__)

TOKENIZER = "tokenizer"
# What makes two training runs different ones; how they are measured does not.
DECISIVE = (
    "stage", "task", "seed", "data", "model", "teacher", "student",
    "pseudo_targets", "weight_init", "training",
)  # fmt: skip
STUDENTS = {"translation": NagForTranslation, "captioning": NagForCaptioning}


def run_stage(recipe: Recipe) -> None:
    """Runs the stage that the recipe names.

    Raises:
        ValueError: a training stage's folder holds a run of another recipe; the message names the difference.
        FileNotFoundError: the recipe names document frequencies that are not there; the message names the
            command that makes them.
    """
    if named := recipe.training.get("document_frequencies"):
        DocumentFrequencies.load(named)  # a file that cannot be read is found before anything else is done
    state = _processes(recipe)
    if recipe.stage in TRAINING_ARGUMENTS:
        with state.main_process_first():
            _claim_folder(recipe)
    start = time.perf_counter()
    with collect_skipped() as skipped:
        STAGE_FUNCTIONS[recipe.stage](recipe)
    if state.is_main_process:
        seconds = time.perf_counter() - start
        write_stage_report(recipe.output_dir, stage=recipe.stage, seconds=seconds, skipped=skipped)


def train_teacher(recipe: Recipe) -> None:
    """Learns the vocabulary and trains the teacher word by word on every reference."""
    task, splits = _open(recipe)
    with _processes(recipe).main_process_first():
        tokenizer = _tokenizer(recipe, task, splits["train"])
    set_seed(recipe.seed)
    teacher = task.build_teacher(recipe.model, recipe.data, tokenizer)
    train = task.encode(one_row_per_reference(splits["train"]), tokenizer, recipe.data, role="teacher")
    _train(
        XeTrainer, recipe, task, teacher, tokenizer, train, splits["validation"], role="teacher",
        collate=task.collator(teacher, role="teacher"),
    )  # fmt: skip


def distill_targets(recipe: Recipe) -> None:
    """Lets the teacher write a sentence for every training input, unlabeled ones included (Sec. 4.6)."""
    task, splits = _open(recipe)
    teacher, tokenizer = _load(recipe.teacher, "teacher", task)
    rows = _labeled_and_unlabeled(splits)
    encoded = task.encode(rows, tokenizer, recipe.data, role="teacher", allow_unlabeled=True)
    assert recipe.teacher is not None  # checked by _load
    limit = recipe.data.max_target_length + 1
    sources = list_lengths(encoded, INPUT_IDS) if INPUT_IDS in encoded.column_names else []
    # it may write up to the limit, though no target of the data is as long
    check_positions(recipe.teacher, teacher, max([limit, *sources]))
    collate = task.collator(teacher, role="teacher")
    collate.with_labels = False
    state = _processes(recipe)
    report = distill(
        teacher.to(state.device),
        tokenizer,
        encoded,
        collate=collate,
        output_dir=recipe.output_dir,
        num_beams=recipe.distillation.num_beams,
        batch_size=recipe.distillation.batch_size,
        max_length=limit,
        source_column=SOURCE if SOURCE in rows.column_names else FEATURES,
        dtype=torch.bfloat16 if recipe.distillation.bf16 else None,
        process_index=state.process_index,
        num_processes=state.num_processes,
    )
    logger.info("distillation: %s", report)
    state.wait_for_everyone()
    if state.is_main_process:
        save_recipe(recipe, recipe.output_dir)


def train_student_xe(recipe: Recipe) -> None:
    """Trains a student word by word on pseudo-targets, or on the references where the recipe names none."""
    task, splits = _open(recipe)
    teacher, tokenizer = _load(recipe.teacher, "teacher", task)
    set_seed(recipe.seed)
    student = _new_student(recipe, task, teacher)
    if recipe.pseudo_targets is None:
        rows = one_row_per_reference(splits["train"])
    else:
        rows = load_pseudo_targets(recipe.pseudo_targets, _labeled_and_unlabeled(splits))
    num_agents = student.config.num_agents if task.length_mode == "fixed" else None
    train = task.encode(rows, tokenizer, recipe.data, role="student", num_agents=num_agents)
    _train(
        XeTrainer, recipe, task, student, tokenizer, train, splits["validation"], role="student",
        collate=task.collator(student, role="student"),
    )  # fmt: skip


def train_cmal(recipe: Recipe) -> None:
    """Trains a student by CMAL on the real references (Sec. 4.6: never on pseudo-targets)."""
    task, splits = _open(recipe)
    student, tokenizer = _load(recipe.student, "student", task)
    set_seed(recipe.seed)
    fixed = task.length_mode == "fixed"
    train = _encode_for_cmal(recipe, task, splits["train"], student, tokenizer)
    _train(
        CmalTrainer, recipe, task, student, tokenizer, train, splits["validation"], role="student",
        collate=task.collator(student, role="student", length_from="labels" if fixed else "first_reference"),
        decode=lambda ids: tokenizer.batch_decode(ids, skip_special_tokens=True),
    )  # fmt: skip


def recipe_document_frequencies(recipe: Recipe) -> DocumentFrequencies:
    """Counts what CIDEr-D needs as the recipe's own stage does: same rows, vocabulary and eos.

    Raises:
        ValueError: the recipe is of another stage than cmal.
    """
    if recipe.stage != "cmal":
        raise ValueError(
            f"the recipe is of stage {recipe.stage!r}; give one of stage 'cmal', whose student and training "
            "references the frequencies are for, e.g. 05_cmal.yaml"
        )
    task, splits = _open(recipe)
    student, tokenizer = _load(recipe.student, "student", task)
    train = _encode_for_cmal(recipe, task, splits["train"], student, tokenizer)
    return count_document_frequencies(train[REFERENCE_IDS], student.config, tokenizer)


def evaluate(recipe: Recipe) -> None:
    """Decodes, scores and times the systems of `recipe.evaluation`; writes a result JSON.

    One process does it: others would only disturb its latencies.
    """
    if not _processes(recipe).is_main_process:
        return
    task, splits = _open(recipe)
    split, legal = recipe.evaluation.split, [name for name in splits if name != "unlabeled"]
    if split not in legal:
        raise ValueError(f"evaluation.split is {split!r}; legal values: {', '.join(legal)}")
    result, examples = evaluate_systems(
        recipe.evaluation, task=task, data=recipe.data, rows=splits[split],
        device=_processes(recipe).device,
    )  # fmt: skip
    folder = save_recipe(recipe, recipe.output_dir).parent
    result = {"seed": recipe.seed, **result, "stages": read_stage_reports(recipe.root)}
    for name, content in (("result", result), ("examples", examples)):
        (folder / f"{name}.json").write_text(
            json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )


STAGE_FUNCTIONS: dict[str, Callable[[Recipe], None]] = {
    "teacher_xe": train_teacher,
    "distill": distill_targets,
    "student_xe": train_student_xe,
    "cmal": train_cmal,
    "evaluate": evaluate,
}


def _train(
    trainer_class: type[SequenceTrainer],
    recipe: Recipe,
    task: Task,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    train: Dataset,
    validation: Dataset,
    *,
    role: str,
    collate: Callable[..., Any],
    **trainer_options: Any,
) -> None:
    if recipe.validation_rows is not None:
        validation = validation.select(range(min(recipe.validation_rows, len(validation))))
    num_agents = model.config.num_agents if role == "student" and task.length_mode == "fixed" else None
    options: dict[str, Any] = {
        # bf16 on a machine without an accelerator is refused unless the CPU is asked for
        "use_cpu": not torch.accelerator.is_available(),
        **recipe.training,
        "output_dir": recipe.output_dir,
        "seed": recipe.seed,
    }
    checkpoint = last_complete_checkpoint(recipe.output_dir)
    if recipe.stage == "cmal":
        options.setdefault("reward", task.default_reward)
        kept = Path(recipe.output_dir) / DOCUMENT_FREQUENCIES
        # a run that goes on has the frequencies that it began with
        if options.get("document_frequencies") is None and checkpoint is not None and kept.is_file():
            options["document_frequencies"] = str(kept)
    arguments = TRAINING_ARGUMENTS[recipe.stage](**options)
    trainer = trainer_class(
        model=model,
        args=arguments,
        train_dataset=train,
        eval_dataset=task.encode(validation, tokenizer, recipe.data, role=role, num_agents=num_agents),
        data_collator=collate,
        processing_class=tokenizer,
        compute_metrics=_metrics_function(task, tokenizer, validation),
        **trainer_options,
    )
    trainer.train(resume_from_checkpoint=checkpoint)
    with trainer.averaged_weights():
        trainer.save_model()
    trainer.save_state()


def _encode_for_cmal(
    recipe: Recipe, task: Task, rows: Dataset, student: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> Dataset:
    num_agents = student.config.num_agents if task.length_mode == "fixed" else None
    return task.encode(rows, tokenizer, recipe.data, role="student", num_agents=num_agents)


def _metrics_function(
    task: Task, tokenizer: PreTrainedTokenizerBase, validation: Dataset
) -> Callable[[EvalPrediction], dict[str, float]]:
    references = validation[REFERENCES]

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        scores = score_tokens(
            task, tokenizer, prediction.predictions, references, labels=prediction.label_ids
        )
        return {name: value for name, value in scores.items() if isinstance(value, float)}

    return compute_metrics


def _claim_folder(recipe: Recipe) -> None:
    """Leaves the recipe in its folder; what another recipe trained there is not continued nor replaced."""
    folder = Path(recipe.output_dir)
    if (folder / RESOLVED_RECIPE).is_file():
        earlier = load_recipe(folder / RESOLVED_RECIPE)
        changed = [name for name in DECISIVE if getattr(earlier, name) != getattr(recipe, name)]
        if not changed:
            last_complete_checkpoint(folder, remove_torn=True)
            return
        if last_complete_checkpoint(folder) is not None or (folder / "config.json").is_file():
            name = changed[0]
            raise ValueError(
                f"{folder} holds a model of a recipe with {name} = {getattr(earlier, name)!r}, now it is "
                f"{getattr(recipe, name)!r}; choose another output_dir, or delete the folder to start over"
            )
        shutil.rmtree(folder / TOKENIZER, ignore_errors=True)  # learned for the other recipe
    save_recipe(recipe, folder)


def _processes(recipe: Recipe) -> PartialState:
    """The processes that run this stage. On CPUs it has to be said, or each takes itself for the only one."""
    return PartialState(cpu=recipe.training.get("use_cpu", not torch.accelerator.is_available()))


def _open(recipe: Recipe) -> tuple[Task, dict[str, Dataset]]:
    task = get_task(recipe.task)
    return task, task.load(recipe.data)


def _tokenizer(recipe: Recipe, task: Task, train: Dataset) -> PreTrainedTokenizerBase:
    """Learned once, by the first process; found again when the stage is resumed."""
    folder = Path(recipe.output_dir) / TOKENIZER
    if not folder.is_dir():
        tokenizer = train_tokenizer(
            task.texts(train), vocab_size=recipe.data.vocab_size, model_max_length=recipe.data.longest
        )
        unfinished = folder.with_name(f"{TOKENIZER}.part")
        tokenizer.save_pretrained(unfinished)
        os.replace(unfinished, folder)
    return AutoTokenizer.from_pretrained(folder)


def _labeled_and_unlabeled(splits: dict[str, Dataset]) -> Dataset:
    if "unlabeled" not in splits:
        return splits["train"]
    columns = [name for name in splits["train"].column_names if name in splits["unlabeled"].column_names]
    return concatenate_datasets(
        [splits["train"].select_columns(columns), splits["unlabeled"].select_columns(columns)]
    )


def _load(
    folder: str | None, role: Literal["teacher", "student"], task: Task
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    model = load_model(folder, role, task=task.name)
    assert folder is not None  # checked by load_model
    return model, load_tokenizer(folder)


def _new_student(recipe: Recipe, task: Task, teacher: PreTrainedModel) -> PreTrainedModel:
    options: dict[str, Any] = {"length_mode": task.length_mode}
    if task.length_mode == "fixed":
        options["num_agents"] = recipe.model.num_agents
    else:
        options["max_target_length"] = recipe.data.max_target_length
        options["max_length_offset"] = recipe.model.max_length_offset
    if recipe.model.student_dropout is not None:
        options["dropout"] = recipe.model.student_dropout
    if recipe.weight_init:
        return init_student_from_teacher(teacher, **options)
    return STUDENTS[task.name](student_config_from_teacher(teacher.config, **options))
