"""docs/behaviours.md: every promised behaviour names its tests, or the feature it arrives with."""

import pytest

from tests.docs.pages import has_tests, missing_tests, table_rows

ROWS = table_rows("behaviours.md", "No.")


def test_the_behaviours_are_numbered_without_a_gap():
    assert [row[0] for row in ROWS] == [str(n) for n in range(1, 27)]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_behaviour_names_tests_that_exist_or_what_it_arrives_with(row):
    assert has_tests(row[2]) or row[2].startswith("arrives with "), f"behaviour {row[0]} is not tested"
    assert missing_tests(row[2]) == []
