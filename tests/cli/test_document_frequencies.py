"""`hf-cmal document-frequencies`: where it writes, what it says, and that a training takes the file."""

from pathlib import Path

import pytest

from hf_cmal.cli.main import main
from hf_cmal.rewards import DocumentFrequencies
from hf_cmal.training.recipe import load_recipe
from hf_cmal.training.stages import run_stage
from tests.evaluation.tiny_ladder import CAPTIONING_DATA

NUM_IMAGES = CAPTIONING_DATA.toy_rows[0]
RECIPE = """
stage: cmal
task: captioning
root: {folder}
output_dir: {folder}/made
student: {captioners}/student
data: {{toy_rows: [{rows}, 2, 2], max_target_length: 20}}
training: {{max_steps: 1, per_device_train_batch_size: 6, num_samples: 1, disable_tqdm: true}}
"""

pytestmark = pytest.mark.filterwarnings("ignore:.*were cut", "ignore:.*unknown tokens")


@pytest.fixture
def recipe(captioners, tmp_path) -> Path:
    path = tmp_path / "05_cmal.yaml"
    path.write_text(RECIPE.format(folder=tmp_path, captioners=captioners, rows=NUM_IMAGES))
    return path


def test_it_writes_the_named_file_and_says_how_much_is_in_it(recipe, tmp_path, capsys):
    file = tmp_path / "new" / "df.safetensors"
    main(["document-frequencies", str(recipe), "--output", str(file)])
    counted = DocumentFrequencies.load(file)
    assert counted.num_documents == NUM_IMAGES and counted.num_ngrams > 100
    assert capsys.readouterr().out == (
        f"{file}: {counted.num_ngrams:,} n-grams of {NUM_IMAGES} images\n"
        f"train with training.document_frequencies={file}\n"
    )


def test_by_default_it_writes_what_the_recipe_names_else_into_its_root(recipe, tmp_path, capsys):
    main(["document-frequencies", str(recipe)])
    assert (tmp_path / "document_frequencies.safetensors").is_file()
    named = tmp_path / "named.safetensors"
    capsys.readouterr()
    main(["document-frequencies", str(recipe), f"training.document_frequencies={named}"])
    assert named.is_file()
    assert capsys.readouterr().out.count("\n") == 1


def test_a_training_that_misses_its_file_takes_the_one_that_the_command_of_the_error_makes(recipe, tmp_path):
    named = f"training.document_frequencies={tmp_path / 'df.safetensors'}"
    with pytest.raises(FileNotFoundError) as error:
        run_stage(load_recipe(recipe, [named]))
    command = str(error.value).partition("`hf-cmal ")[2].rstrip("`").replace("RECIPE", str(recipe))
    main(command.split())
    run_stage(load_recipe(recipe, [named]))
    assert (tmp_path / "made" / "model.safetensors").is_file()


def test_overrides_choose_the_training_references(recipe, tmp_path):
    file = tmp_path / "df.safetensors"
    main(["document-frequencies", str(recipe), "data.toy_rows=[5,2,2]", "--output", str(file)])
    assert DocumentFrequencies.load(file).num_documents == 5


def test_the_reward_of_the_recipe_does_not_matter(recipe, tmp_path):
    file = tmp_path / "df.safetensors"
    main(["document-frequencies", str(recipe), "training.reward=gleu", "--output", str(file)])
    assert file.is_file()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("stage: cmal", "stage: student_xe", "of stage 'student_xe'; give one of stage 'cmal'"),
        ("student: ", "student: not/there #", "there is no folder 'not/there'"),
        ("student: ", "# ", "the recipe names no student"),
    ],
)
def test_a_recipe_that_it_cannot_count_for_is_one_line(recipe, tmp_path, capsys, old, new, message):
    text = recipe.read_text().replace(old, new)
    recipe.write_text(text.partition("training:")[0])
    with pytest.raises(SystemExit) as stop:
        main(["document-frequencies", str(recipe), "--output", str(tmp_path / "df.safetensors")])
    error = capsys.readouterr().err
    assert (stop.value.code, error.count("\n")) == (2, 1)
    assert message in error
    assert not (tmp_path / "df.safetensors").exists()
