"""How much of the distance between the student trained word by word and its teacher a student makes up.

CMAL Sec. 6.2 says it so: "shrinks the gap between the autoregressive teacher and the NAT model from 8.74 to
only 2.74 BLEU points". Which systems the gap lies between follows from a result's systems. It measures
nothing.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from hf_cmal.evaluation.tables import column_title, digits, row_name, system_names

XE_SUFFIX = "_xe"


def gap_closed(result: Mapping[str, Any], *, worse: str, better: str, system: str, score: str) -> float:
    """(system - worse) / (better - worse): 0 is no better than `worse`, 1 as good as `better`.

    Args:
        result: as `evaluate_systems` gives it.
        worse, better, system: names of its systems.
        score: the key of a score of which more is better.

    Raises:
        ValueError: a system is not there or lacks the score, or `better` is not above `worse`.

    Example:
        >>> result = {"systems": {"xe": {"bleu": 20.0}, "cmal": {"bleu": 26.0}, "teacher": {"bleu": 28.0}}}
        >>> gap_closed(result, worse="xe", better="teacher", system="cmal", score="bleu")
        0.75
    """
    low, high, own = (_score(result, name, score) for name in (worse, better, system))
    if high <= low:
        raise ValueError(f"there is no gap to close: {better} has {score} {high}, {worse} has {low}")
    return (own - low) / (high - low)


def gap_ends(result: Mapping[str, Any]) -> tuple[str, str] | None:
    """Between which systems the gap of a ladder lies: (the XE student, the teacher).

    The XE student is the one student whose name ends in `_xe`; the teacher is the one with most beams.

    Returns:
        Their names, or None: no such student or more than one, or no teacher.
    """
    systems = result["systems"]
    students = [
        name for name, one in systems.items() if one["kind"] == "student" and name.endswith(XE_SUFFIX)
    ]
    teachers = [name for name, one in systems.items() if one["kind"] == "teacher"]
    if len(students) != 1 or not teachers:
        return None
    return students[0], max(teachers, key=lambda name: systems[name]["num_beams"])


def gap_table(results: Sequence[Mapping[str, Any]]) -> str | None:
    """A Markdown table: what share of the gap every other student closes, and where that leaves it.

    Args:
        results: of one ladder, differing in the seed: a share is shown as its mean and range over them, the
            distance to the teacher as its mean.

    Returns:
        The table, or None: the first result has no gap (see `gap_ends`), or a result's teacher is no better
        than its XE student.
    """
    ends, score = gap_ends(results[0]), results[0]["main_score"]
    if ends is None:
        return None
    worse, better = ends
    complete = [result for result in results if {worse, better} <= result["systems"].keys()]
    if any(_score(result, better, score) <= _score(result, worse, score) for result in complete):
        return None
    rows = []
    for name in system_names(complete):
        measured = [result for result in complete if name in result["systems"]]
        if name == worse or measured[0]["systems"][name]["kind"] != "student":
            continue
        shares = [
            100 * gap_closed(result, worse=worse, better=better, system=name, score=score)
            for result in measured
        ]
        ahead = statistics.fmean(
            _score(result, name, score) - _score(result, better, score) for result in measured
        )
        rows.append(
            f"| {row_name(name, measured, results)} | {_percent(shares)} | {ahead:+.{digits(score)}f} |"
        )
    if not rows:
        return None
    title = column_title(score)
    head = f"| student | closes of the {title} gap from {worse} to {better} | {title} against {better} |"
    return "\n".join([head, "|---|---:|---:|", *rows])


def _score(result: Mapping[str, Any], name: str, score: str) -> float:
    systems = result["systems"]
    if name not in systems:
        raise ValueError(f"there is no system {name!r}; the result has {', '.join(systems)}")
    if score not in systems[name]:
        raise ValueError(f"{name} has no score {score!r}; it has {', '.join(systems[name])}")
    return float(systems[name][score])


def _percent(shares: Sequence[float]) -> str:
    mean = f"{statistics.fmean(shares):.0f} %"
    return mean + (f" ({min(shares):.0f} to {max(shares):.0f})" if len(shares) > 1 else "")
