"""How a benchmark ends: one JSON object on its last line, and NAME.json with NAME.png in a folder.

A quick run writes nothing unless a folder is named: its numbers are of a toy size.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_cmal.evaluation.plots import write_png

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).parents[1] / "results"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds `--quick` and `--output`."""
    parser.add_argument("--quick", action="store_true", help="small sizes, seconds; writes no files")
    parser.add_argument(
        "--output", type=Path, help=f"folder of the JSON and the PNG (default: {RESULTS.parent.name}/results)"
    )


def finish(
    name: str,
    result: Mapping[str, Any],
    options: argparse.Namespace,
    draw: Callable[["Figure", Any], None],
) -> None:
    """Prints the result in one line, then writes it and what `draw` draws of it."""
    print(json.dumps(result))
    folder: Path | None = options.output
    if folder is None and not options.quick:
        folder = RESULTS
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    write_png(draw, result, folder / f"{name}.png")
