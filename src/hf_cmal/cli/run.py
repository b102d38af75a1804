"""`hf-cmal run`: all stages of a ladder, then the table and the sentences that its evaluation wrote."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from hf_cmal.evaluation.report import examples_text, result_table
from hf_cmal.training.ladder import run_ladder


def run(ladder: str | Path, overrides: Sequence[str] = ()) -> str:
    """Runs a ladder and prints its table.

    Args:
        ladder: folder of numbered recipes.
        overrides: `key=value`, for every stage.

    Returns:
        The table and the sentences; empty where the last stage is no evaluation.
    """
    start = time.perf_counter()

    def announce(path: Path) -> None:
        print(f"\n== {path.parent.name}: {path.stem} ({time.perf_counter() - start:.0f} s)", flush=True)

    output = Path(run_ladder(ladder, overrides, announce=announce).output_dir)
    if not (output / "result.json").is_file():
        return ""
    result = json.loads((output / "result.json").read_text(encoding="utf-8"))
    examples = json.loads((output / "examples.json").read_text(encoding="utf-8"))
    text = result_table(result) + "\n\n" + examples_text(examples)
    print(f"\n{text}\n\nEverything is in {output.parent}/")
    return text
