"""`hf-cmal translate --compare`: each sentence by a student and by its teacher, with times.

Sentences are translated one by one, as a user who waits for an answer meets them; the times hold tokenizing
and decoding. For a measured table see `hf-cmal evaluate`.
"""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from hf_cmal.cli.translator import Translator


def compare(lines: Iterable[str], *, student: Translator, teacher: Translator) -> Iterator[str]:
    """Blocks of three lines, then one of the mean times and their ratio.

    Args:
        lines: sentences; empty ones are passed over.
        student, teacher: the teacher decodes with the beams of its generation config.
    """
    names = [Path(translator.folder).resolve().name for translator in (student, teacher)]
    if names[0] == names[1]:
        names = [student.folder, teacher.folder]
    width = max(map(len, names))
    times: tuple[list[float], list[float]] = ([], [])
    for line in filter(None, map(str.strip, lines)):
        block = [line]
        for translator, name, milliseconds in zip((student, teacher), names, times, strict=True):
            if not milliseconds:
                next(translator.translate([line]))  # the first call of a process takes longer
            start = time.perf_counter()
            translation = next(translator.translate([line]))
            milliseconds.append((time.perf_counter() - start) * 1000)
            note = f" (cut to {translator.max_source_length} tokens)" if translator.cut_lines else ""
            translator.cut_lines.clear()
            block.append(f"  {name:{width}} {milliseconds[-1]:7.1f} ms  {translation}{note}")
        yield "\n".join(block)
    fast, slow = times
    if fast:
        ratio = sum(slow) / sum(fast)
        verdict = f"{ratio:.1f} x faster" if ratio >= 1 else f"{1 / ratio:.1f} x slower"
        yield f"mean: {sum(fast) / len(fast):.1f} ms and {sum(slow) / len(slow):.1f} ms, {verdict}"
