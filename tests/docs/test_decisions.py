"""docs/decisions.md: every decision names the tests that pin it, and those tests exist."""

import pytest

from tests.docs.pages import has_tests, missing_tests, table_rows

ROWS = table_rows("decisions.md", "Point")


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_decision_is_pinned_by_tests_that_exist(row):
    point, decision, pinned_by = row
    assert decision
    assert has_tests(pinned_by), f"{point!r} names no test"
    assert missing_tests(pinned_by) == []
