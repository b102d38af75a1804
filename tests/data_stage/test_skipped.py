"""What is left out is warned of, and the warnings of a run can be collected."""

import warnings

import pytest

from hf_cmal.data.skipped import SkippedDataWarning, collect_skipped


def test_only_what_was_skipped_is_collected_each_message_once_and_still_shown():
    with pytest.warns(UserWarning) as shown, collect_skipped() as skipped:
        warnings.warn("3 lines are empty", SkippedDataWarning, stacklevel=1)
        warnings.warn("the moon is full", UserWarning, stacklevel=1)
        warnings.warn("3 lines are empty", SkippedDataWarning, stacklevel=1)
        warnings.warn("1 line is too long", SkippedDataWarning, stacklevel=1)
    assert skipped == ["3 lines are empty", "1 line is too long"]
    assert [str(w.message) for w in shown].count("3 lines are empty") == 2
    assert "the moon is full" in [str(w.message) for w in shown]


def test_after_collecting_warnings_are_as_before():
    before = warnings.showwarning
    with collect_skipped() as skipped:
        assert warnings.showwarning is not before
    assert warnings.showwarning is before
    with pytest.warns(SkippedDataWarning):
        warnings.warn("later", SkippedDataWarning, stacklevel=1)
    assert skipped == []
