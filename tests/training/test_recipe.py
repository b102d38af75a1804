"""Recipes: read strictly, based on others, overridden, saved; and all that come along are built."""

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from hf_cmal.evaluation.evaluate import EvaluationOptions
from hf_cmal.rewards import REWARDS
from hf_cmal.rewards.mixture import parse_mixture
from hf_cmal.tasks import TASKS, get_task
from hf_cmal.training.cmal_trainer import estimator_from_arguments
from hf_cmal.training.recipe import (
    RESOLVED_RECIPE,
    STAGES,
    TRAINING_ARGUMENTS,
    Recipe,
    load_recipe,
    parse_recipe,
    save_recipe,
)
from hf_cmal.training.stages import STAGE_FUNCTIONS, STUDENTS, _claim_folder
from hf_cmal.training.weight_init import student_config_from_teacher

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted(path for path in (ROOT / "recipes").rglob("*.yaml") if path.name[:2].isdigit())
# what the user has to give: a teacher and two text files
OWN = ["teacher=outputs/teacher", "data.train=[train.en,train.de]"]
GIVEN = {"own_teacher": OWN, "own_text": OWN[1:]}

BASE = """
task: translation
seed: 3
root: made
data: {toy_rows: [8, 4, 4], vocab_size: 300}
model: {d_model: 16, dropout: 0.0}
"""
STAGE = """
base: base.yaml
stage: student_xe
output_dir: ${root}/student
teacher: ${root}/teacher
model: {dropout: 0.3}
training: {num_train_epochs: 2, learning_rate: 1.0e-3}
"""


@pytest.fixture
def recipe_path(tmp_path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    (tmp_path / "stage.yaml").write_text(STAGE)
    return tmp_path / "stage.yaml"


# ---- reading ---


def test_a_recipe_takes_what_it_does_not_say_from_its_base(recipe_path):
    recipe = load_recipe(recipe_path)
    assert (recipe.stage, recipe.task, recipe.seed) == ("student_xe", "translation", 3)
    assert (recipe.model.d_model, recipe.model.dropout) == (16, 0.3)
    assert (recipe.output_dir, recipe.teacher) == ("made/student", "made/teacher")
    assert recipe.data.toy_rows == (8, 4, 4)
    assert recipe.training == {"num_train_epochs": 2, "learning_rate": 1e-3}


def test_overrides_replace_single_values_and_are_interpolated(recipe_path):
    recipe = load_recipe(
        recipe_path, ["root=other", "model.d_model=8", "training.learning_rate=2e-4", "data.toy_rows=[2,1,1]"]
    )
    assert (recipe.output_dir, recipe.teacher) == ("other/student", "other/teacher")
    assert (recipe.model.d_model, recipe.model.dropout) == (8, 0.3)
    assert recipe.training == {"num_train_epochs": 2, "learning_rate": 2e-4}
    assert recipe.data.toy_rows == (2, 1, 1)


@pytest.mark.parametrize(
    ("override", "key", "some_legal_keys"),
    [
        ("stagee=1", "stagee", ["stage", "output_dir", "training"]),
        ("data.vocabulary=1", "vocabulary", ["vocab_size", "max_source_length"]),
        ("model.layers=1", "layers", ["encoder_layers", "d_model"]),
        ("training.epochs=1", "epochs", ["num_train_epochs", "max_tokens_per_batch"]),
        ("training.top_k=1", "top_k", ["num_train_epochs"]),  # of CMAL, not of this stage
        ("distillation.beams=1", "beams", ["num_beams", "batch_size"]),
        ("evaluation.rivals=1", "rivals", ["rival", "systems"]),
        ("evaluation.systems.one.beams=1", "beams", ["model", "num_beams"]),
    ],
)
def test_an_unknown_key_is_an_error_at_every_level_that_names_the_legal_ones(
    override, key, some_legal_keys, recipe_path
):
    with pytest.raises(ValueError, match=rf"unknown key '{key}'; legal keys: ") as error:
        load_recipe(recipe_path, [override])
    legal = str(error.value).partition("legal keys: ")[2].split(", ")
    assert set(some_legal_keys) <= set(legal) and key not in legal


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stage=xe", "stage is 'xe'; legal values: teacher_xe, student_xe, cmal, distill, evaluate"),
        ("task=poems", "task is 'poems'; legal values: translation, captioning"),
        ("task=3", "task is 3; give a name of a task"),
        ("model.d_model=wide", "model.d_model"),
        ("seed=many", "seed"),
        ("data=5", "data is 5; give keys with values"),
        ("training=5", "training is 5; give keys with values"),
        ("evaluation.systems.one=5", "one"),
        ("learning_rate", r"override 'learning_rate' has no '='"),
        ("output_dir=${nowhere}", "nowhere"),
    ],
)
def test_a_wrong_value_is_named_with_the_legal_ones(override, message, recipe_path):
    with pytest.raises(ValueError, match=message):
        load_recipe(recipe_path, [override])


def test_a_bare_no_is_the_strategy_no_and_not_false(recipe_path):
    recipe = load_recipe(recipe_path, ["training.eval_strategy=no", "training.bf16=no"])
    assert (recipe.training["eval_strategy"], recipe.training["bf16"]) == ("no", False)


def test_options_of_training_in_a_stage_that_trains_nothing_are_an_error(recipe_path):
    with pytest.raises(ValueError, match="stage distill trains nothing.*num_train_epochs"):
        load_recipe(recipe_path, ["stage=distill"])


def test_a_missing_output_dir_is_an_error(recipe_path):
    recipe_path.write_text(STAGE.replace("output_dir: ${root}/student", ""))
    with pytest.raises(ValueError, match="output_dir"):
        load_recipe(recipe_path)


def test_one_level_of_base_is_allowed(recipe_path):
    (recipe_path.parent / "base.yaml").write_text(BASE + "base: other.yaml\n")
    with pytest.raises(ValueError, match="names a base itself; one level is allowed"):
        load_recipe(recipe_path)


def test_a_missing_base_is_named(recipe_path):
    (recipe_path.parent / "base.yaml").unlink()
    with pytest.raises(FileNotFoundError, match=r"base\.yaml', which does not exist"):
        load_recipe(recipe_path)


def test_a_missing_recipe_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no recipe at .*nothing\.yaml"):
        load_recipe(tmp_path / "nothing.yaml")


def test_a_value_that_the_user_has_to_give_is_asked_for(recipe_path):
    recipe_path.write_text(STAGE.replace("${root}/teacher", "???") + "data: {train: '???'}\n")
    with pytest.raises(
        ValueError, match=r"data\.train and teacher must be given; add data\.train=\.\.\. teach"
    ):
        load_recipe(recipe_path)
    assert load_recipe(recipe_path, OWN).teacher == "outputs/teacher"


@pytest.mark.parametrize("text", ["- a\n- b\n", "stage: [\n"])
def test_a_file_that_is_no_mapping_is_named(text, tmp_path):
    (tmp_path / "list.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"list\.yaml"):
        load_recipe(tmp_path / "list.yaml")


# ---- saving ---


def test_the_resolved_recipe_is_loaded_back_to_the_same(recipe_path, tmp_path):
    recipe = load_recipe(recipe_path, ["evaluation.systems={one: {model: x, num_beams: 2}}"])
    path = save_recipe(recipe, tmp_path / "made")
    assert path == tmp_path / "made" / RESOLVED_RECIPE
    text = path.read_text()
    assert "${" not in text and "base:" not in text
    assert load_recipe(path) == recipe
    assert load_recipe(path, ["seed=4"]) != recipe


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT / "recipes")))
def test_every_recipe_is_loaded_back_to_the_same(path, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_CMAL_DATA", "/data")
    recipe = load_shipped(path)
    assert load_recipe(save_recipe(recipe, tmp_path)) == recipe


@pytest.mark.parametrize("trained", ["checkpoint-7", "config.json"])
def test_what_another_recipe_trained_is_not_continued(trained, recipe_path, tmp_path):
    made = tmp_path / "made"
    recipe = load_recipe(recipe_path, [f"root={made}"])
    folder = Path(recipe.output_dir)
    _claim_folder(recipe)
    if trained == "config.json":
        (folder / trained).write_text("{}")
    else:
        (folder / trained).mkdir()
        (folder / trained / "trainer_state.json").write_text("{}")
    _claim_folder(recipe)
    for other, name in (
        (dataclasses.replace(recipe, training={**recipe.training, "learning_rate": 5e-4}), "training"),
        (dataclasses.replace(recipe, seed=4), "seed"),
        (dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, d_model=8)), "model"),
        (dataclasses.replace(recipe, teacher="elsewhere"), "teacher"),
    ):
        with pytest.raises(ValueError, match=f"holds a model of a recipe with {name} = .*output_dir"):
            _claim_folder(other)
    assert load_recipe(folder / RESOLVED_RECIPE) == recipe


def test_a_folder_where_nothing_was_trained_begins_anew(recipe_path, tmp_path):
    recipe = load_recipe(recipe_path, [f"root={tmp_path / 'made'}"])
    folder = Path(recipe.output_dir)
    _claim_folder(recipe)
    (folder / "tokenizer").mkdir()
    _claim_folder(recipe)
    assert (folder / "tokenizer").is_dir()  # of this very recipe
    changed = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, vocab_size=400))
    _claim_folder(changed)
    assert load_recipe(folder / RESOLVED_RECIPE) == changed
    assert not (folder / "tokenizer").exists()  # it had the other size


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("training.learning_rate=fast", "training.learning_rate is 'fast'; give a value of type float"),
        ("training.num_train_epochs=true", "training.num_train_epochs is True; give a value of type float"),
        ("training.average_decay=much", "training.average_decay is 'much'; give a value of type float"),
        ("training.bf16=2", "training.bf16 is 2; give a value of type bool"),
        ("training.max_steps=1.5", "training.max_steps is 1.5; give a value of type int"),
    ],
)
def test_a_training_value_of_the_wrong_type_is_named(recipe_path, word, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        load_recipe(recipe_path, [word])


def test_a_word_where_a_list_belongs_is_named(recipe_path):
    message = "data.train is 'a.en,a.de'; give a list"
    with pytest.raises(ValueError, match=re.escape(message)):
        load_recipe(recipe_path, ["data.train=a.en,a.de"])


def test_training_values_of_the_right_type_are_kept(recipe_path):
    words = [
        "learning_rate=1",
        "average_decay=null",
        "eval_strategy=steps",
        "report_to=[none]",
        "max_steps=2",
    ]
    recipe = load_recipe(recipe_path, [f"training.{word}" for word in words])
    assert recipe.training["learning_rate"] == 1 and recipe.training["average_decay"] is None
    assert recipe.training["report_to"] == ["none"] and recipe.training["max_steps"] == 2


# ---- the recipes that come along ---


def load_shipped(path: Path) -> Recipe:
    return load_recipe(path, GIVEN.get(path.parent.name, []))


def test_every_ladder_has_its_stages():
    """02 is the teacher's SCST, which comes with captioning of pictures."""
    ladder = ["01_teacher_xe", "03_distill", "04_student_xe", "05_cmal", "06_cmal_ca", "07_evaluate"]
    stems: dict[str, list[str]] = {}
    for path in RECIPES:
        stems.setdefault(str(path.parent.relative_to(ROOT / "recipes")), []).append(path.stem)
    for name in ("toy/translation", "toy/captioning", "coco_naic", "wmt14_nat"):
        assert stems[name] == ladder
    assert set(ladder) <= set(stems["multi30k"])
    assert stems["own_text"] == [stage for stage in ladder if stage != "06_cmal_ca"]
    assert stems["own_teacher"] == [stage for stage in ladder if stage not in ("01_teacher_xe", "06_cmal_ca")]


def test_stages_and_their_functions_agree():
    assert set(STAGE_FUNCTIONS) == set(STAGES)


def vocabulary_of(size: int) -> PreTrainedTokenizerFast:
    """A tokenizer of that many entries, eos first and pad last."""
    entries = {"</s>": 0, "<unk>": 1, **{f"w{i}": i for i in range(2, size - 1)}, "<pad>": size - 1}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(entries, unk_token="<unk>")),
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
    )


def built_models(recipe: Recipe):
    """The recipe's teacher and the student it gives, without memory for their weights."""
    task = get_task(recipe.task)
    tokenizer = vocabulary_of(recipe.data.vocab_size)
    with torch.device("meta"):
        teacher = task.build_teacher(recipe.model, recipe.data, tokenizer)
        options = (
            {"num_agents": recipe.model.num_agents}
            if task.length_mode == "fixed"
            else {
                "max_target_length": recipe.data.max_target_length,
                "max_length_offset": recipe.model.max_length_offset,
            }
        )
        config = student_config_from_teacher(teacher.config, length_mode=task.length_mode, **options)
        student = STUDENTS[task.name](config)
    return teacher, student


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT / "recipes")))
def test_every_recipe_is_parsed_and_all_that_it_names_is_built(path, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_CMAL_DATA", "/data")
    recipe = load_shipped(path)
    teacher, student = built_models(recipe)
    assert teacher.config.d_model == student.config.d_model == recipe.model.d_model
    assert student.config.length_mode == TASKS[recipe.task].length_mode
    if recipe.stage in TRAINING_ARGUMENTS:
        arguments = TRAINING_ARGUMENTS[recipe.stage](
            **{**recipe.training, "output_dir": str(tmp_path), "use_cpu": True}
        )
        metric = arguments.metric_for_best_model
        assert metric in (None, TASKS[recipe.task].main_score)
        if recipe.stage == "cmal":
            estimator_from_arguments(arguments)
            assert {name for _, name in parse_mixture(arguments.reward)} <= set(REWARDS)
    if recipe.stage == "evaluate":
        compared = recipe.evaluation.baseline  # students alone, of one shape: they are equally fast
        assert (recipe.evaluation.rival or compared) in recipe.evaluation.systems
    else:
        assert recipe.evaluation == EvaluationOptions()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT / "recipes")))
def test_every_recipe_states_its_seed_and_what_to_expect(path, monkeypatch):
    """The versions that made a result stand in the result."""
    monkeypatch.setenv("HF_CMAL_DATA", "/data")
    written = path.read_text() + (path.parent / "base.yaml").read_text()
    assert "\nseed: " in written
    assert "\nexpected: " in written
    assert load_shipped(path).expected


def test_stages_read_what_earlier_stages_of_the_ladder_write(monkeypatch):
    monkeypatch.setenv("HF_CMAL_DATA", "/data")
    recipes = {path: load_shipped(path) for path in RECIPES}
    for path, recipe in recipes.items():
        written = {
            earlier.output_dir: earlier.stage
            for earlier_path, earlier in recipes.items()
            if (earlier_path.parent == path.parent and earlier_path.name < path.name)
            or earlier_path.parent == path.parent.parent  # a ladder inside another builds on it
        }
        if path.parent.name == "own_teacher":
            written["outputs/teacher"] = "teacher_xe"
        if recipe.teacher is not None:
            assert written[recipe.teacher] == "teacher_xe"
        if recipe.pseudo_targets is not None:
            assert written[recipe.pseudo_targets] == "distill"
        if recipe.student is not None:
            assert written[recipe.student] == "student_xe"
        for system in recipe.evaluation.systems.values():
            assert system.model in written


def test_parsing_needs_no_file():
    plain = {"stage": "distill", "task": "captioning", "output_dir": "x", "teacher": "y"}
    assert parse_recipe(plain, where="here").data.max_target_length == 16
    with pytest.raises(ValueError, match="^here: "):
        parse_recipe({**plain, "student": [1]}, where="here")
