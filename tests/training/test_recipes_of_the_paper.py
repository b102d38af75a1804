"""recipes/coco_naic and recipes/wmt14_nat against the paper's values, each with the section that gives it."""

from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from hf_cmal.training.recipe import load_recipe

ROOT = Path(__file__).resolve().parents[2] / "recipes"

# recipe, key, value, section of papers/cmal.txt
CAPTIONING = [
    ("01_teacher_xe", "data.vocab_size", 9487, "5.1.1"),
    ("01_teacher_xe", "data.feature_size", 2048, "5.1.1"),
    # "a fixed number of N = 16 agents"
    ("01_teacher_xe", "data.max_target_length", 16, "5.1.2"),
    ("01_teacher_xe", "model.num_agents", 16, "5.1.2"),
    # "the same model hyper-parameters as Transformer-Base", "the number of stacked blocks L is 6"
    ("01_teacher_xe", "model.d_model", 512, "5.1.2"),
    ("01_teacher_xe", "model.encoder_layers", 6, "5.1.2"),
    ("01_teacher_xe", "model.decoder_layers", 6, "5.1.2"),
    ("01_teacher_xe", "model.attention_heads", 8, "5.1.2"),
    ("01_teacher_xe", "model.ffn_dim", 2048, "5.1.2"),
    ("01_teacher_xe", "model.dropout", 0.1, "5.1.2"),
    # "Beam search with a beam width of 3 is used during decoding of AIC model"
    ("03_distill", "distillation.num_beams", 3, "5.1.2"),
    # "We first initialize the weights of NAIC model with the pre-trained AIC teacher model"
    ("04_student_xe", "weight_init", True, "5.1.2"),
    # "We then pre-train NAIC model with XE loss for 30 epochs", "min(t x 1e-4; 3e-4)"
    ("04_student_xe", "training.num_train_epochs", 30, "5.1.2"),
    ("04_student_xe", "training.learning_rate", 3e-4, "5.1.2"),
    ("04_student_xe", "training.learning_rate_rule", "captioning_xe", "5.1.2"),
    # "Both training stages use Adam optimizer with a batch size of 50"
    ("04_student_xe", "training.per_device_train_batch_size", 50, "5.1.2"),
    ("04_student_xe", "training.optim", "adamw_torch", "5.1.2"),
    ("04_student_xe", "training.weight_decay", 0.0, "5.1.2"),
    *[
        row
        for recipe in ("05_cmal", "06_cmal_ca")
        for row in (
            # "we run CMAL training to optimize the CIDEr metric for about 70 epochs"
            (recipe, "training.num_train_epochs", 70, "5.1.2"),
            (recipe, "training.reward", "cider-d", "5.1.2"),
            # "we sample 5 sentences for each input"
            (recipe, "training.num_samples", 5, "5.1.2"),
            # "an initial learning rate of 7.5e-5 and decay it by 0.8 every 10 epochs"
            (recipe, "training.learning_rate", 7.5e-5, "5.1.2"),
            (recipe, "training.learning_rate_rule", "captioning_cmal", "5.1.2"),
            (recipe, "training.per_device_train_batch_size", 50, "5.1.2"),
            (recipe, "training.optim", "adamw_torch", "5.1.2"),
            (recipe, "training.weight_decay", 0.0, "5.1.2"),
            # "we use k = 2 top-ranking words in CMAL"
            (recipe, "training.top_k", 2, "5.1.2"),
        )
    ],
    ("05_cmal", "training.estimator", "counterfactual", "4.4"),
    ("06_cmal_ca", "training.estimator", "counterfactual", "4.5"),
    ("06_cmal_ca", "training.compositional_weight", 0.5, "4.5"),
]

TRANSLATION = [
    # "WMT14 En-De", "a shared vocabulary of 40k"
    ("01_teacher_xe", "data.dataset", "wmt/wmt14", "6.1.1"),
    ("01_teacher_xe", "data.vocab_size", 40_000, "6.1.1"),
    # "the default network architecture of the Transformer-Base model"
    ("01_teacher_xe", "model.d_model", 512, "6.1.2"),
    ("01_teacher_xe", "model.encoder_layers", 6, "6.1.2"),
    ("01_teacher_xe", "model.decoder_layers", 6, "6.1.2"),
    ("01_teacher_xe", "model.attention_heads", 8, "6.1.2"),
    ("01_teacher_xe", "model.ffn_dim", 2048, "6.1.2"),
    ("01_teacher_xe", "model.dropout", 0.1, "6.1.2"),
    # "exactly following the Transformer's training settings": Vaswani et al. 2017, Secs. 5.1-5.4
    *[
        row
        for recipe in ("01_teacher_xe", "04_student_xe")
        for row in (
            (recipe, "training.learning_rate", 7e-4, "6.1.2"),
            (recipe, "training.learning_rate_rule", "inverse_square_root", "6.1.2"),
            (recipe, "training.warmup_steps", 4000, "6.1.2"),
            (recipe, "training.optim", "adamw_torch", "6.1.2"),
            (recipe, "training.weight_decay", 0.0, "6.1.2"),
            (recipe, "training.adam_beta1", 0.9, "6.1.2"),
            (recipe, "training.adam_beta2", 0.98, "6.1.2"),
            (recipe, "training.adam_epsilon", 1e-9, "6.1.2"),
            (recipe, "training.label_smoothing_factor", 0.1, "6.1.2"),
            (recipe, "training.max_tokens_per_batch", 25_000 // 8, "6.1.2"),
        )
    ],
    ("01_teacher_xe", "training.max_steps", 100_000, "6.1.2"),
    # "beam search with a beam width of 4"
    ("03_distill", "distillation.num_beams", 4, "6.1.2"),
    # "we first pre-train NAT model with XE loss for 300 epochs"; weight-init is named for captioning alone
    ("04_student_xe", "training.num_train_epochs", 300, "6.1.2"),
    ("04_student_xe", "weight_init", False, "6.1.2"),
    *[
        row
        for recipe in ("05_cmal", "06_cmal_ca")
        for row in (
            # "to optimize the GLEU score for 30 more epochs with a fixed learning rate of 1e-5"
            (recipe, "training.reward", "gleu", "6.1.2"),
            (recipe, "training.num_train_epochs", 30, "6.1.2"),
            (recipe, "training.learning_rate", 1e-5, "6.1.2"),
            (recipe, "training.lr_scheduler_type", "constant", "6.1.2"),
            # "we sample 5 sentences for each input", "we use k = 1 top-ranking words"
            (recipe, "training.num_samples", 5, "6.1.2"),
            (recipe, "training.top_k", 1, "6.1.2"),
        )
    ],
    ("05_cmal", "training.estimator", "counterfactual", "4.4"),
    ("06_cmal_ca", "training.estimator", "counterfactual", "4.5"),
    ("06_cmal_ca", "training.compositional_weight", 0.5, "4.5"),
]

TABLE = [("coco_naic", *row) for row in CAPTIONING] + [("wmt14_nat", *row) for row in TRANSLATION]


def value_of(recipe: Any, key: str) -> Any:
    def inner(part: Any, name: str) -> Any:
        return part[name] if isinstance(part, dict) else getattr(part, name)

    return reduce(inner, key.split("."), recipe)


def line_of(folder: Path, name: str, key: str) -> str:
    """The line of the recipe, or of its base, that gives the last part of a key."""
    field = key.rpartition(".")[2]
    for file in (folder / f"{name}.yaml", folder / "base.yaml"):
        for line in file.read_text().splitlines():
            if line.strip().startswith(f"{field}:"):
                return line
    raise AssertionError(f"no line gives {key}")


@pytest.mark.parametrize(
    ("ladder", "name", "key", "value", "section"), TABLE, ids=[f"{row[0]}/{row[1]}-{row[2]}" for row in TABLE]
)
def test_a_recipe_has_the_value_of_the_paper_and_quotes_its_section(ladder, name, key, value, section):
    recipe = load_recipe(ROOT / ladder / f"{name}.yaml")
    found = value_of(recipe, key)
    assert found == value and type(found) is type(value)
    assert f"Sec. {section}" in line_of(ROOT / ladder, name, key).partition("#")[2]


@pytest.mark.parametrize("ladder", ["coco_naic", "wmt14_nat"])
def test_every_number_of_a_training_stage_quotes_a_section(ladder):
    """So that no value is in the recipe that is not in the table, or not the paper's at all."""
    not_of_the_paper = {
        "rival",
        "seed",
        "root",
        "output_dir",
        "teacher",
        "student",
        "pseudo_targets",
        "eval_steps",
    }
    not_of_the_paper |= {"save_steps", "max_source_length", "max_target_length", "max_length_offset"}
    in_table = {row[2].rpartition(".")[2] for row in TABLE if row[0] == ladder}
    for path in sorted((ROOT / ladder).glob("*.yaml")):
        for line in path.read_text().splitlines():
            field, _, value = line.partition("#")[0].strip().partition(": ")
            is_number = any(c.isdigit() for c in value) and "{" not in value
            if is_number and field not in not_of_the_paper:
                assert field in in_table, f"{path.name}: {line}"
                assert "Sec. " in line, f"{path.name}: {line}"


@pytest.mark.parametrize("path", [*ROOT.glob("coco_naic/0*.yaml"), *ROOT.glob("wmt14_nat/0*.yaml")], ids=str)
def test_the_recipes_of_the_paper_say_that_they_were_not_run(path):
    assert load_recipe(path).expected == "not run"
