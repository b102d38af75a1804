"""docs/equations.md is checked against the code and the tests it names."""

import importlib
import inspect
import re
from functools import reduce
from typing import Any

import pytest

from tests.docs.pages import code_words, has_tests, missing_tests, table_rows

ROWS = table_rows("equations.md", "Eq.")


def resolve(name: str) -> Any:
    """The object behind `module:qualname`."""
    module, _, qualname = name.partition(":")
    return reduce(getattr, qualname.split("."), importlib.import_module(module))


def equations_named_in(source: str) -> set[int]:
    """The numbers of "Eq. (7)", "Eqs. (9) and (10)", "Eqs. (7)-(9), (11)", with ranges filled in."""
    one, joint = r"\((\d+)\)", r"\s*(?:,|and|-)\s*"
    found = set()
    for group in re.findall(rf"Eqs?\.\s+({one}(?:{joint}{one})*)", source):
        found.update(int(n) for n in re.findall(r"\d+", group[0]))
        for first, last in re.findall(rf"{one}-{one}", group[0]):
            found.update(range(int(first), int(last) + 1))
    return found


def test_numbers_of_equations_are_read_alone_in_lists_and_in_ranges():
    assert equations_named_in("x  # Eq. (13), Eq. (15)") == {13, 15}
    assert equations_named_in("CMAL Eqs. (9) and (10).") == {9, 10}
    assert equations_named_in("Eqs. (7)-(9), (11) and\n (18) at Sec. (5)") == {7, 8, 9, 11, 18}


def test_the_page_has_each_equation_of_the_paper_once_and_in_order():
    assert [row[0] for row in ROWS] == [f"({n})" for n in range(1, 19)]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_named_function_carries_the_number_of_its_equation(row):
    functions = code_words(row[2])
    assert functions, f"Eq. {row[0]} names no function"
    for name in functions:
        named = equations_named_in(inspect.getsource(resolve(name)))
        assert int(row[0].strip("()")) in named, f"{name} does not say which line is Eq. {row[0]}"


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_equation_has_tests_that_exist(row):
    assert has_tests(row[3]), f"Eq. {row[0]} names no test"
    assert missing_tests(row[3]) == []
