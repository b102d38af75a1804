"""The pages that a reader meets first: their numbers come from result files, their links lead somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

from hf_cmal.evaluation.report import (
    HEADLINE,
    read_results,
    readme_with_results,
    result_folders,
    results_page,
)

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "recipes"
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    "recipes/README.md",
    *sorted(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
CODE_PATH = re.compile(r"`((?:src|tests|docs|recipes|benchmarks)/[\w./-]+\.\w+)`")
# Put together here, so that this file does not hold what it looks for.
MACHINE_PATHS = re.compile(
    "|".join("/" + place for place in ("work/", "tmp/", "root/", "home/[a-z]", "Users/", "mnt/"))
)


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_results_page_is_what_the_result_files_give():
    assert page("docs/results.md") == results_page(result_folders(RECIPES)), (
        "run `python -m hf_cmal.evaluation.report` in the clone"
    )


def test_the_table_of_the_readme_is_what_the_result_files_give():
    readme = page("README.md")
    assert readme == readme_with_results(readme, read_results(RECIPES / HEADLINE)), (
        "run `python -m hf_cmal.evaluation.report` in the clone"
    )


@pytest.mark.parametrize("name", PAGES)
def test_every_relative_link_leads_to_a_file(name):
    targets = [link for link in LINK.findall(page(name)) if "://" not in link]
    assert [link for link in targets if not (ROOT / name).parent.joinpath(link).exists()] == []


def test_the_readme_has_links_that_are_checked():
    assert "docs/concepts.md" in LINK.findall(page("README.md"))


@pytest.mark.parametrize("name", PAGES)
def test_every_file_that_is_named_exists(name):
    assert [path for path in CODE_PATH.findall(page(name)) if not (ROOT / path).exists()] == []


def test_no_tracked_file_holds_a_path_of_the_machine_it_was_written_on():
    tracked = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("not a clone")
    found = []
    for name in tracked.stdout.split("\0"):
        file = ROOT / name
        if not name or file.suffix in (".png", ".safetensors") or not file.is_file():
            continue
        found += [
            f"{name}: {hit}"
            for hit in MACHINE_PATHS.findall(file.read_text(encoding="utf-8", errors="replace"))
        ]
    assert found == []
