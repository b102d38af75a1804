"""The whole road on a handful of scenes: every stage of recipes/toy, for both tasks, at the smallest size."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoModelForSeq2SeqLM, AutoTokenizer

from hf_cmal.models.nag.modeling_nag import NagForCaptioning, NagForTranslation
from hf_cmal.tasks import get_task
from hf_cmal.tasks.translation import TranslationData, load
from hf_cmal.training.distillation import load_pseudo_targets
from hf_cmal.training.recipe import Recipe, load_recipe
from hf_cmal.training.stages import _labeled_and_unlabeled, run_stage
from hf_cmal.training.xe_trainer import XeTrainer

ROOT = Path(__file__).resolve().parents[2]
TASKS = ("translation", "captioning")

# a vocabulary learned on a handful of scenes makes long sentences
pytestmark = pytest.mark.filterwarnings("ignore:.*were cut")

LABELED, UNLABELED = 16, 8
SMALL = [
    f"data.toy_rows=[{LABELED},5,6,{UNLABELED}]",
    "data.vocab_size=700",
    "model.d_model=16",
    "model.ffn_dim=32",
    "model.attention_heads=2",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "data.max_target_length=24",
]
SMALLER = {
    "teacher_xe": ["training.num_train_epochs=1", "training.max_tokens_per_batch=400"],
    "student_xe": [
        "training.num_train_epochs=2",
        "training.max_tokens_per_batch=null",
        "training.per_device_train_batch_size=4",
    ],
    "cmal": [
        "training.num_train_epochs=2",
        "training.per_device_train_batch_size=4",
        "training.num_samples=2",
        "training.eval_steps=4",
        "training.save_steps=4",
        "training.logging_steps=1",
    ],
    "distill": ["distillation.num_beams=2"],
    "evaluate": ["evaluation.latency_rows=2", "evaluation.examples=2"],
}


def small_recipe(task: str, stage: str, root: Path, *overrides: str) -> Recipe:
    path = ROOT / "recipes" / "toy" / task / f"{stage}.yaml"
    kind = load_recipe(path).stage
    return load_recipe(path, [f"root={root}", *SMALL, *SMALLER[kind], *overrides])


def stages_of(task: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / "recipes" / "toy" / task).glob("0*.yaml"))


@pytest.fixture(scope="module", params=TASKS)
def ladder(request, tmp_path_factory) -> tuple[str, Path]:
    """A task, and the folder that its ladder filled."""
    root = tmp_path_factory.mktemp(request.param)
    with pytest.warns() as caught:  # of a random teacher: sentences that reach the decoding limit
        for stage in stages_of(request.param):
            run_stage(small_recipe(request.param, stage, root))
    assert not [w for w in caught if issubclass(w.category, RuntimeWarning)]
    return request.param, root


def trainer_state(folder: Path) -> dict:
    return json.loads((folder / "trainer_state.json").read_text())


def test_every_stage_leaves_its_resolved_recipe_beside_what_it_made(ladder):
    task, root = ladder
    for stage in stages_of(task):
        assert load_recipe(root / stage / "recipe.yaml") == small_recipe(task, stage, root)


def test_the_ladder_ends_in_a_result_of_every_system_with_all_that_was_promised(ladder):
    task, root = ladder
    result = json.loads((root / "07_evaluate" / "result.json").read_text())
    assert (result["task"], result["split"], result["rows"], result["seed"]) == (task, "test", 6, 1)
    recipe = small_recipe(task, "07_evaluate", root)
    assert list(result["systems"]) == list(recipe.evaluation.systems)
    text_scores = (
        {"bleu", "bleu_tokenised", "chrf"} if task == "translation" else {"cider", "bleu_4", "rouge_l"}
    )
    for name, system in result["systems"].items():
        assert system["kind"] == ("student" if name.startswith(("nat", "naic")) else "teacher")
        numbers = {*text_scores, result["main_score"], "repetition_rate", "length_accuracy", "mean_length"}
        assert all(math.isfinite(system[key]) for key in numbers)
        assert any(key.endswith("signature") for key in system)
        assert system["parameters"] > 0
        latencies = [value for key, value in system.items() if key.endswith("_ms") or "latency" in key]
        assert latencies
    assert {"latency", "versions"} <= result.keys()
    examples = json.loads((root / "07_evaluate" / "examples.json").read_text())
    assert len(examples) == 2 and list(examples[0]["systems"]) == list(result["systems"])


def test_the_students_load_by_the_auto_classes_and_write(ladder):
    task, root = ladder
    auto, kind = {
        "translation": (AutoModelForSeq2SeqLM, NagForTranslation),
        "captioning": (AutoModelForImageTextToText, NagForCaptioning),
    }[task]
    for stage in ("04_student_xe", "05_cmal", "06_cmal_ca"):
        student = auto.from_pretrained(root / stage)
        assert isinstance(student, kind)
        tokenizer = AutoTokenizer.from_pretrained(root / stage)
        inputs = (
            dict(tokenizer(["A red circle is left of a blue square."], return_tensors="pt"))
            if task == "translation"
            else {"features": torch.zeros(1, 3, student.config.feature_size)}
        )
        tokens = student.generate(**inputs)
        assert tokens.shape[0] == 1 and tokens.shape[1] >= 1
        assert isinstance(tokenizer.decode(tokens[0], skip_special_tokens=True), str)


def test_unlabeled_inputs_are_distilled_and_trained_on_word_by_word_but_not_by_cmal(ladder):
    """Batches of four: 24 rows in six of them, 16 in four; two epochs each."""
    task, root = ladder
    recipe = small_recipe(task, "03_distill", root)
    rows = _labeled_and_unlabeled(get_task(task).load(recipe.data))
    assert len(rows) == LABELED + UNLABELED
    assert [len(references) > 0 for references in rows["references"]] == [True] * LABELED + [
        False
    ] * UNLABELED
    written = (root / "03_distill").glob("shard-*.jsonl")
    lines = [json.loads(line) for path in written for line in path.read_text().splitlines()]
    assert sorted(line["index"] for line in lines) == list(range(LABELED + UNLABELED))
    usable = len(load_pseudo_targets(root / "03_distill", rows))
    assert usable > LABELED
    assert trainer_state(root / "04_student_xe")["global_step"] == 2 * -(-usable // 4)
    for stage in ("05_cmal", "06_cmal_ca"):
        assert trainer_state(root / stage)["global_step"] == 2 * LABELED // 4


def test_scores_of_decoded_sentences_choose_the_checkpoint(ladder):
    task, root = ladder
    score = {"translation": "eval_bleu", "captioning": "eval_cider"}[task]
    for stage in ("04_student_xe", "05_cmal"):
        state = trainer_state(root / stage)
        values = [entry[score] for entry in state["log_history"] if score in entry]
        assert len(values) == 2
        assert state["best_metric"] == max(values)


def test_cmal_logs_its_rewards(ladder):
    task, root = ladder
    name = {"translation": "gleu", "captioning": "cider-d"}[task]
    log = [entry for entry in trainer_state(root / "05_cmal")["log_history"] if "reward" in entry]
    assert len(log) == 2 * LABELED // 4
    assert all(entry["reward"] == entry[f"rewards/{name}/mean"] for entry in log)


def test_a_recipe_without_a_reward_has_that_of_its_task(ladder, tmp_path):
    """Sec. 5.1.2: CIDEr; Sec. 6.1.2: GLEU."""
    task, root = ladder
    recipe = small_recipe(task, "05_cmal", root, f"output_dir={tmp_path / 'cmal'}")
    training = {name: value for name, value in recipe.training.items() if name != "reward"}
    run_stage(dataclasses.replace(recipe, training=training))
    name = {"translation": "gleu", "captioning": "cider-d"}[task]
    assert f"rewards/{name}/mean" in trainer_state(tmp_path / "cmal")["log_history"][0]


def test_a_finished_stage_that_is_started_again_changes_nothing(ladder):
    task, root = ladder
    weights = root / "05_cmal" / "model.safetensors"
    before = weights.read_bytes()
    run_stage(small_recipe(task, "05_cmal", root))
    assert weights.read_bytes() == before


def test_a_folder_is_not_continued_with_another_recipe(ladder):
    task, root = ladder
    with pytest.raises(ValueError, match="holds a model of a recipe with training"):
        run_stage(small_recipe(task, "05_cmal", root, "training.learning_rate=1e-9"))


@pytest.mark.parametrize(
    ("stage", "wrong", "message"),
    [
        ("05_cmal", "student={root}/01_teacher_xe", "01_teacher_xe holds a teacher .*not a student"),
        ("04_student_xe", "teacher={root}/05_cmal", "05_cmal holds a student .*not a teacher"),
        ("03_distill", "teacher=null", "the recipe names no teacher"),
        ("05_cmal", "training.reward=meteor", "unknown reward 'meteor'.*gleu"),
        ("05_cmal", "training.estimator=critic", "unknown estimator 'critic'.*counterfactual"),
    ],
)
def test_a_wrong_folder_or_name_is_refused(stage, wrong, message, ladder, tmp_path):
    task, root = ladder
    recipe = small_recipe(task, stage, root, wrong.format(root=root), f"output_dir={tmp_path}/new")
    with pytest.raises(ValueError, match=message):
        run_stage(recipe)
    assert not (tmp_path / "new" / "model.safetensors").exists()


def test_an_interrupted_stage_goes_on_where_it_stopped(tmp_path, monkeypatch):
    overrides = ["training.save_strategy=steps", "training.save_steps=1", "training.eval_strategy=no"]
    whole = small_recipe("translation", "01_teacher_xe", tmp_path / "whole", *overrides)
    run_stage(whole)
    broken = small_recipe("translation", "01_teacher_xe", tmp_path / "broken", *overrides)
    training_step = XeTrainer.training_step

    def interrupted(trainer, *args, **kwargs):
        if trainer.state.global_step == 2:
            raise KeyboardInterrupt
        return training_step(trainer, *args, **kwargs)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(XeTrainer, "training_step", interrupted)
        run_stage(broken)
    steps = []
    with monkeypatch.context() as patched:
        patched.setattr(
            XeTrainer,
            "training_step",
            lambda trainer, *args, **kwargs: (
                steps.append(trainer.state.global_step),
                training_step(trainer, *args, **kwargs),
            )[1],
        )
        run_stage(broken)
    assert steps[0] == 2
    weights = [Path(recipe.output_dir) / "model.safetensors" for recipe in (whole, broken)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_unlabeled_sentences_of_a_file_stand_beside_the_pairs(tmp_path):
    """Two text files with a sentence a line, and a third without translations."""
    for name, lines in (("en", "a\nb\nc\n"), ("de", "x\ny\nz\n"), ("more", "d\ne\n")):
        (tmp_path / name).write_text(lines)
    pair = (str(tmp_path / "en"), str(tmp_path / "de"))
    with pytest.warns(UserWarning, match="the other 1 training pairs are left out"):
        splits = load(
            TranslationData(
                train=pair, validation=pair, test=pair, unlabeled=str(tmp_path / "more"), max_train_rows=2
            )
        )
    rows = _labeled_and_unlabeled(splits)
    assert rows["source"] == ["a", "b", "d", "e"]
    assert rows["references"] == [["x"], ["y"], [], []]


@pytest.mark.slow
def test_two_processes_share_the_rows_of_a_distillation(ladder, tmp_path):
    task, root = ladder
    recipe = ROOT / "recipes" / "toy" / task / "03_distill.yaml"
    words = [f"root={root}", f"output_dir={tmp_path / 'made'}", *SMALL, *SMALLER["distill"]]
    command = ["torch.distributed.run", "--nproc_per_node", "2", str(ROOT / "recipes" / "distill.py")]
    subprocess.run(
        [sys.executable, "-m", *command, str(recipe), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=300,
    )
    shards = [path.read_text().splitlines() for path in sorted((tmp_path / "made").glob("shard-*.jsonl"))]
    rows = [json.loads(line)["index"] for shard in shards for line in shard]
    assert len(shards) == 2
    assert abs(len(shards[0]) - len(shards[1])) <= 1
    assert sorted(rows) == list(range(LABELED + UNLABELED))


@pytest.mark.slow
def test_a_stage_runs_under_accelerate_launch_on_two_processes(tmp_path):
    """Five validation rows, so that one rank has a row more than the other."""
    recipe = ROOT / "recipes" / "toy" / "translation" / "01_teacher_xe.yaml"
    words = [f"root={tmp_path}", *SMALL, *SMALLER["teacher_xe"], "training.per_device_eval_batch_size=1"]
    command = [
        "accelerate.commands.launch",
        "--multi_gpu",
        "--num_processes",
        "2",
        "--main_process_port",
        "0",
    ]
    with subprocess.Popen(
        [sys.executable, "-m", *command, str(ROOT / "recipes" / "train.py"), str(recipe), *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        try:
            assert process.wait(timeout=300) == 0
        except subprocess.TimeoutExpired:
            process.terminate()
            raise
    folder = tmp_path / "01_teacher_xe"
    (checkpoint,) = folder.glob("checkpoint-*")
    assert {path.name for path in checkpoint.glob("rng_state*")} == {"rng_state_0.pth", "rng_state_1.pth"}
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).config.model_type == "marian"
