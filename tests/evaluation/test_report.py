"""Pages made from result files written by hand."""

import json
from pathlib import Path

import pytest

from hf_cmal.evaluation.report import (
    HEADLINE,
    README_BEGIN,
    README_END,
    examples_text,
    read_results,
    readme_with_results,
    result_folders,
    result_table,
    results_page,
    write_pages,
)


def result(seed: int = 1, bleu: float = 20.25, **more) -> dict:
    teacher = {
        "kind": "teacher", "bleu": 30.0, "bleu_signature": "nrefs:1|tok:13a", "repetition_rate": 0.0,
        "latency_ms": 80.0, "speedup": 1.0,
    }  # fmt: skip
    student = {"kind": "student", "bleu": bleu, "repetition_rate": 0.125, "latency_ms": 10.0, "speedup": 8.0}
    return {
        "task": "translation", "split": "test", "rows": 100, "seed": seed, "main_score": "bleu",
        "latency": {"inputs": 50, "dtype": "float32", "device": "cpu", "threads": 2, "rival": "teacher"},
        "systems": {"teacher": teacher, "student": student},
        "versions": {"torch": "2.14.1"}, "hardware": {"processor": "A processor", "cpus": 2}, "commit": "abc",
        **more,
    }  # fmt: skip


def cells(table: str, system: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {system} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_a_table_has_a_row_per_system_and_a_column_per_score_that_any_system_has():
    table = result_table(result())
    assert "| system | BLEU | repeated | ms | speed-up |" in table
    assert cells(table, "teacher") == ["30.0", "0.0 %", "80.0", "1.0 x"]
    assert cells(table, "student") == ["20.2", "12.5 %", "10.0", "8.0 x"]  # 20.25 is rounded to even
    assert table.startswith("translation, test split, 100 inputs, seed 1\n")


def test_what_a_system_does_not_have_is_a_dash():
    one = result()
    del one["systems"]["student"]["latency_ms"]
    assert cells(result_table(one), "student")[2] == "-"


def test_several_seeds_become_mean_and_range():
    table = result_table(result(1, 20.0), result(2, 23.0), result(3, 21.5))
    assert "seeds 1, 2, 3" in table
    assert cells(table, "student")[0] == "21.5 (20.0-23.0)"
    assert cells(table, "student")[2:] == ["10.0", "8.0 x"]


def test_captioning_scores_have_three_digits():
    one = result()
    one["systems"] = {"student": {"cider": 1.23456, "bleu_4": 0.25, "rouge_l": 0.5}}
    assert cells(result_table(one), "student") == ["1.235", "0.250", "0.500"]


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


def test_the_page_names_signatures_latency_setting_and_versions(tmp_path):
    write_result(tmp_path)
    page = results_page({"toy": tmp_path})
    assert "- bleu: `nrefs:1|tok:13a`" in page
    assert (
        "mean of 50 inputs one by one, float32, cpu, 2 threads, speed-up over teacher in the same run" in page
    )
    assert "run on A processor, 2 CPUs; torch 2.14.1" in page
    assert result_table(result()) in page


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


def test_the_readme_keeps_everything_but_its_table():
    readme = f"# Title\n\n{README_BEGIN}\n\nold numbers\n\n{README_END}\n\nThe end.\n"
    written = readme_with_results(readme, [result()])
    assert written == f"# Title\n\n{README_BEGIN}\n\n{result_table(result())}\n\n{README_END}\n\nThe end.\n"
    assert readme_with_results(written, []) == readme.replace("old numbers", "Not run.")


@pytest.mark.parametrize("readme", ["no marks", f"only {README_BEGIN}", f"{README_END} {README_BEGIN}"])
def test_a_readme_without_its_marks_is_an_error_that_names_them(readme):
    with pytest.raises(ValueError, match="<!-- results: begin -->"):
        readme_with_results(readme, [])


def test_writing_the_pages_of_a_clone_fills_both(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text(f"{README_BEGIN}{README_END}", encoding="utf-8")
    ladder = (tmp_path / "recipes" / HEADLINE).parent
    write_result(ladder / "results")
    (ladder / "01_teacher_xe.yaml").touch()
    write_pages(tmp_path)
    assert result_table(result()) in (tmp_path / "docs" / "results.md").read_text(encoding="utf-8")
    assert result_table(result()) in (tmp_path / "README.md").read_text(encoding="utf-8")
