"""Pages made from result files written by hand."""

import json
import sys
from pathlib import Path

import pytest

from hf_cmal.evaluation.comparison import comparison_table
from hf_cmal.evaluation.gap import gap_table
from hf_cmal.evaluation.report import (
    HEADLINE,
    README_BEGIN,
    README_END,
    examples_text,
    read_results,
    readme_with_results,
    result_folders,
    results_page,
    write_pages,
)
from hf_cmal.evaluation.tables import result_table
from tests.evaluation.written_results import compared_ladder, ladder, without

LENGTH = {
    "by_source_length": {"bounds": [10], "rows": [60, 40], "systems": {"nat_xe": [30.0, 20.0]}},
}
OWN = {"own_sources": [{"source": "a dog", "systems": {"nat_xe": "ein ein Hund"}}]}
CURVE = {"curves": {"cmal": {"train": [{"step": 10, "reward": 0.5}], "validation": []}}}


def result(**options) -> dict:
    one = ladder(**options)
    one["systems"]["teacher_greedy"]["bleu_signature"] = "nrefs:1|tok:13a"
    return one


def test_examples_show_source_first_reference_and_each_system():
    example = {
        "source": "a dog",
        "references": ["ein Hund", "Hund"],
        "systems": {"teacher": "der Hund", "student": "Hund"},
    }
    assert examples_text([example]) == "source: a dog\nreference: ein Hund\nteacher: der Hund\nstudent: Hund"
    assert examples_text([{**example, "source": None}]).startswith("reference: ein Hund")


def write_result(folder: Path, name: str = "seed1.json", **options) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(result(**options)), encoding="utf-8")


# --- docs/results.md


def test_the_page_names_signatures_latency_setting_and_versions(tmp_path):
    write_result(tmp_path)
    page = results_page({"toy": tmp_path})
    assert "- bleu: `nrefs:1|tok:13a`" in page
    assert (
        "mean of 50 inputs one by one, float32, cpu, 2 threads, speed-up over teacher_beam4 in the same run"
        in page
    )
    assert "run on A processor, 2 CPUs; torch 2.14.1" in page
    assert result_table(result()) in page


def test_the_page_tells_how_much_of_the_gap_is_closed_where_there_is_one(tmp_path):
    write_result(tmp_path / "toy")
    table = gap_table([result()])
    assert "| nat_cmal | 65 % | -3.5 |" in table
    assert table in results_page({"toy": tmp_path / "toy"})
    (tmp_path / "toy" / "seed1.json").write_text(json.dumps(without(result(), "nat_xe")), encoding="utf-8")
    assert " gap " not in results_page({"toy": tmp_path / "toy"})


def test_the_page_shows_the_figures_of_a_ladder_with_text_for_who_cannot_see_them(tmp_path):
    write_result(tmp_path, **LENGTH, **CURVE)
    page = results_page({"toy/translation": tmp_path})
    assert (
        "![BLEU of every system by length of the source](figures/toy-translation-length.png)\n\nSources"
        in page
    )
    assert "against updates](figures/toy-translation-curves.png)\n\nTraining: " in page
    assert "Mean and range" not in page


def test_captions_name_the_seeds_that_the_figure_shows(tmp_path):
    for seed, parts in ((1, {**LENGTH, **CURVE}), (2, LENGTH), (3, {**LENGTH, **CURVE})):
        write_result(tmp_path, f"seed{seed}.json", seed=seed, **parts)
    page = results_page({"toy": tmp_path})
    assert "corpus of its own. Mean and range of seeds 1, 2, 3.\n" in page
    assert "validation split. A line for each of seeds 1, 3.\n" in page


def test_a_caption_names_no_seeds_where_the_figure_shows_one(tmp_path):
    write_result(tmp_path, "seed1.json", seed=1)
    write_result(tmp_path, "seed2.json", seed=2, **LENGTH)
    page = results_page({"toy": tmp_path})
    assert "figures/toy-length.png" in page
    assert "Mean and range" not in page


def test_a_caption_says_what_seconds_are_and_that_many_rewards_are_averaged(tmp_path):
    def page(count, point):
        curves = {f"e{n}": {"train": [point], "validation": []} for n in range(count)}
        write_result(tmp_path, curves=curves)
        return results_page({"toy": tmp_path})

    timed = {"step": 10, "reward": 0.5, "seconds": 2.0}
    assert "against updates and seconds](figures/" in page(2, timed)
    assert "Seconds are those of forward passes" in page(2, timed)
    assert "Seconds are" not in page(2, {"step": 10, "reward": 0.5})
    assert "A reward is the mean of the last 10 logged points." in page(9, timed)
    assert "A reward is" not in page(8, timed)


def test_the_page_compares_the_systems_with_a_baseline_where_the_result_does(tmp_path):
    compared = compared_ladder(1, {"sc": [1.0, 2.0]})
    (tmp_path / "seed1.json").write_text(json.dumps(compared), encoding="utf-8")
    page = results_page({"toy/estimators": tmp_path})
    assert comparison_table([compared]) + "\n\n" + result_table(compared) in page
    assert "## toy/estimators\n\n| system | BLEU | against ca |" in page
    write_result(tmp_path)
    assert "against ca" not in results_page({"toy/estimators": tmp_path})


def test_a_result_without_lengths_and_curves_has_no_figures(tmp_path):
    write_result(tmp_path)
    assert "figures/" not in results_page({"toy": tmp_path})


def test_own_sentences_are_shown_of_the_first_seed_that_has_them(tmp_path):
    write_result(tmp_path, "seed1.json", seed=1)
    write_result(tmp_path, "seed2.json", seed=2, **OWN)
    page = results_page({"toy": tmp_path})
    assert "Sentences written for this page, seed 2; " in page
    assert "| source | a dog |\n|---|---|\n| nat_xe | ein <b>ein</b> Hund |\n" in page


def test_a_ladder_without_result_files_is_not_run(tmp_path):
    assert "## toy\n\nNot run.\n" in results_page({"toy": tmp_path / "results"})


def test_every_folder_with_a_ladder_has_its_results(tmp_path):
    for name in ("toy/translation/01_teacher_xe.yaml", "coco/05_cmal.yaml", "accelerate/two_gpus.yaml"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert result_folders(tmp_path) == {
        "coco": tmp_path / "coco/results", "toy/translation": tmp_path / "toy/translation/results",
    }  # fmt: skip


def test_result_files_are_read_in_the_order_of_their_names(tmp_path):
    write_result(tmp_path, "seed2.json", seed=2)
    write_result(tmp_path, "seed1.json", seed=1)
    assert [one["seed"] for one in read_results(tmp_path)] == [1, 2]


# --- the README


def test_the_readme_keeps_everything_but_its_table():
    readme = f"# Title\n\n{README_BEGIN}\n\nold numbers\n\n{README_END}\n\nThe end.\n"
    written = readme_with_results(readme, [result()])
    assert written == f"# Title\n\n{README_BEGIN}\n\n{result_table(result())}\n\n{README_END}\n\nThe end.\n"
    assert readme_with_results(written, []) == readme.replace("old numbers", "Not run.")


@pytest.mark.parametrize("readme", ["no marks", f"only {README_BEGIN}", f"{README_END} {README_BEGIN}"])
def test_a_readme_without_its_marks_is_an_error_that_names_them(readme):
    with pytest.raises(ValueError, match="<!-- results: begin -->"):
        readme_with_results(readme, [])


# --- all of a clone


@pytest.fixture
def clone(tmp_path):
    """A clone with the headline's ladder, run, and one that is not run."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"{README_BEGIN}{README_END}", encoding="utf-8")
    headline = (tmp_path / "recipes" / HEADLINE).parent
    write_result(headline / "results", **LENGTH)
    for folder in (headline, tmp_path / "recipes" / "coco"):
        folder.mkdir(exist_ok=True)
        (folder / "01_teacher_xe.yaml").touch()
    return tmp_path


def test_writing_the_pages_of_a_clone_fills_both_and_draws_what_they_show(clone):
    write_pages(clone)
    page = (clone / "docs" / "results.md").read_text(encoding="utf-8")
    assert result_table(result()) in page
    assert result_table(result()) in (clone / "README.md").read_text(encoding="utf-8")
    figures = [path.relative_to(clone / "docs").as_posix() for path in (clone / "docs" / "figures").iterdir()]
    assert figures == ["figures/multi30k-length.png"]
    assert f"({figures[0]})" in page


def test_where_matplotlib_is_missing_no_page_is_changed(clone, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="hf-cmal"):
        write_pages(clone)
    assert not (clone / "docs" / "results.md").exists()
    assert (clone / "README.md").read_text(encoding="utf-8") == f"{README_BEGIN}{README_END}"


def test_the_page_itself_needs_no_matplotlib(clone, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert "figures/multi30k-length.png" in results_page(result_folders(clone / "recipes"))
