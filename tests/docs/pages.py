"""Read the tables of a docs page and look up the tests they name, without running anything."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def table_rows(page: str, header: str) -> list[list[str]]:
    """The rows of the table of docs/`page` whose first header cell is `header`, each a list of cell texts."""
    lines = (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    starts = [i for i, line in enumerate(lines) if line.startswith(f"| {header} |")]
    assert len(starts) == 1, f"docs/{page} should have one table that starts with '| {header} |'"
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split(" | ")])
    return rows


def code_words(cell: str) -> list[str]:
    """What stands between backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)


@functools.cache
def tests_in(path: str) -> frozenset[str]:
    """The ids (`name` or `Class::name`) of the tests that a file defines, found by parsing it."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    found = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            found.add(node.name)
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            members = [m for m in node.body if isinstance(m, ast.FunctionDef) and m.name.startswith("test")]
            found.update(f"{node.name}::{member.name}" for member in members)
    return frozenset(found)


def missing_tests(cell: str) -> list[str]:
    """The test ids of a cell that no file of tests/ defines."""
    ids = [word for word in code_words(cell) if "::" in word]
    return [
        test_id for test_id in ids if test_id.partition("::")[2] not in tests_in(test_id.partition("::")[0])
    ]


def has_tests(cell: str) -> bool:
    return any("::" in word for word in code_words(cell))
