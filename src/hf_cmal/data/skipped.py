"""What was left out or cut on the way from files to batches: warnings of one kind, which a run can collect.

Nothing is dropped silently. Whoever drops it warns with a count; whoever runs a stage keeps the warnings, so
that the run's report names them long after the log is gone. Nothing is dropped here.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class SkippedDataWarning(UserWarning):
    """Rows, sentences or references were skipped or cut; the message counts them."""


@contextmanager
def collect_skipped() -> Iterator[list[str]]:
    """Gives a list that fills with the message of each `SkippedDataWarning`, which is shown as ever.

    Example:
        >>> with collect_skipped() as skipped:
        ...     warnings.warn("2 lines left out", SkippedDataWarning)
        >>> skipped
        ['2 lines left out']
    """
    skipped: list[str] = []
    show = warnings.showwarning

    def collect_and_show(message: Warning | str, category: type[Warning], *rest: Any, **named: Any) -> None:
        if issubclass(category, SkippedDataWarning) and str(message) not in skipped:
            skipped.append(str(message))
        show(message, category, *rest, **named)

    with warnings.catch_warnings():
        warnings.simplefilter("always", SkippedDataWarning)
        warnings.showwarning = collect_and_show  # put back by catch_warnings
        yield skipped
