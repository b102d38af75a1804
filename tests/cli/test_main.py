"""`hf-cmal`: what its commands refuse, and how."""

import pytest

from hf_cmal.cli.main import main

RECIPE = """
stage: {stage}
task: translation
output_dir: {folder}/out
data: {{toy_rows: [4, 2, 2], vocab_size: 300, max_source_length: 48, max_target_length: 48}}
"""


@pytest.fixture
def recipe(tmp_path):
    def write(stage: str, more: str = "") -> str:
        path = tmp_path / f"{stage}.yaml"
        path.write_text(RECIPE.format(stage=stage, folder=tmp_path) + more, encoding="utf-8")
        return str(path)

    return write


@pytest.fixture
def refused(capsys):
    """Runs words that must end in one line on stderr and exit code 2; gives the line."""

    def refused(*words: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(words)
        captured = capsys.readouterr()
        assert (stop.value.code, captured.out) == (2, "")
        assert captured.err.startswith("hf-cmal: ")
        assert captured.err.count("\n") == 1, "more than one line"
        return captured.err

    return refused


@pytest.mark.parametrize(
    ("stage", "command", "right"),
    [
        ("distill", "train", "distill"),
        ("evaluate", "train", "evaluate"),
        ("cmal", "distill", "train"),
        ("teacher_xe", "evaluate", "train"),
    ],
)
def test_a_recipe_of_another_stage_names_the_right_command(refused, recipe, tmp_path, stage, command, right):
    path = recipe(stage)
    assert f"{path} is a stage '{stage}': run `hf-cmal {right} {path}`" in refused(command, path)
    assert not (tmp_path / "out").exists()


def test_an_unknown_recipe_is_named_with_where_recipes_are(refused):
    error = refused("train", "nowhere/01.yaml")
    assert "no recipe at nowhere/01.yaml" in error
    assert "recipes/" in error


def test_an_override_without_an_equals_sign_is_named_with_an_example(refused, recipe):
    error = refused("train", recipe("teacher_xe"), "seed")
    assert "override 'seed' has no '='" in error
    assert "key=value" in error


def test_an_unknown_key_lists_the_legal_ones(refused, recipe):
    error = refused("train", recipe("teacher_xe"), "sead=3")
    assert "unknown key 'sead'; legal keys: stage, task, output_dir" in error


def test_an_unknown_key_of_a_part_names_the_part(refused, recipe):
    error = refused("evaluate", recipe("evaluate"), "evaluation.system=3")
    assert "evaluation" in error
    assert "system" in error


def test_an_unknown_stage_lists_the_legal_ones(refused, recipe):
    assert "legal values: teacher_xe, student_xe, cmal, distill, evaluate" in refused(
        "train", recipe("dream")
    )


@pytest.mark.parametrize("word", ["data.toy_rows=[1,2", "data={toy_rows: [1"])
def test_an_override_that_is_no_yaml_is_one_line(refused, recipe, word):
    assert "teacher_xe.yaml" in refused("train", recipe("teacher_xe"), word)


def test_a_recipe_that_is_no_yaml_is_one_line(refused, recipe):
    assert "teacher_xe.yaml" in refused("train", recipe("teacher_xe", more="data: [unclosed\n"))


def test_a_systems_folder_that_is_not_there_is_named(refused, recipe):
    more = "evaluation: {systems: {teacher: {model: not/there}}}\n"
    assert "there is no folder 'not/there'" in refused("evaluate", recipe("evaluate", more))


def test_traceback_shows_where_an_error_came_from():
    with pytest.raises(FileNotFoundError, match="no recipe at"):
        main(["--traceback", "train", "nowhere/01.yaml"])


def test_a_training_that_diverges_is_one_line(refused, recipe, monkeypatch):
    def diverging(recipe):
        raise FloatingPointError("the loss is nan at step 1")

    monkeypatch.setattr("hf_cmal.training.stages.run_stage", diverging)
    assert "the loss is nan" in refused("train", recipe("teacher_xe"))


def test_an_error_of_the_program_is_not_hidden_in_one_line(recipe, monkeypatch):
    def broken(recipe):
        raise RuntimeError("a bug")

    monkeypatch.setattr("hf_cmal.training.stages.run_stage", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        main(["train", recipe("teacher_xe")])


@pytest.mark.parametrize("words", [[], ["sing"], ["translate", "--batch-size", "many"]])
def test_wrong_usage_ends_with_code_two_and_the_usage(capsys, words):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("usage: hf-cmal")


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    out = capsys.readouterr().out
    assert all(
        f"\n    {command} " in out for command in ("translate", "train", "distill", "evaluate", "demo")
    )
    assert "\n    document-frequencies\n" in out
