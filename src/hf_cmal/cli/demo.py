"""`hf-cmal demo`: the whole road on the toy world, both tasks, ending in tables and a few sentences.

It runs the recipes of recipes/toy one after the other, as `hf-cmal train`, `distill` and `evaluate` would,
and prints what the evaluations wrote.
"""

import json
import time
from pathlib import Path

from hf_cmal.evaluation.report import examples_text, result_table
from hf_cmal.tasks import TASKS
from hf_cmal.training.recipe import load_recipe
from hf_cmal.training.stages import run_stage


def demo(*, recipes: str, root: str, seed: int = 1) -> None:
    """Trains, distils and measures each task's ladder; prints its table.

    Raises:
        FileNotFoundError: `recipes` is not there (it comes with a clone of the project, not with the
            package).
    """
    folder = Path(recipes)
    if not folder.is_dir():
        raise FileNotFoundError(
            f"no recipes at {folder}; run this in a clone of the project, or name them: --recipes DIR"
        )
    start = time.perf_counter()
    tables = []
    for task in TASKS:
        output = None
        for path in sorted((folder / task).glob("[0-9]*.yaml")):
            recipe = load_recipe(path, [f"root={root}/{task}", f"seed={seed}"])
            print(f"\n== {task}: {path.stem} ({time.perf_counter() - start:.0f} s)", flush=True)
            run_stage(recipe)
            output = Path(recipe.output_dir)
        assert output is not None, f"no recipes in {folder / task}"
        result = json.loads((output / "result.json").read_text(encoding="utf-8"))
        examples = json.loads((output / "examples.json").read_text(encoding="utf-8"))
        tables.append(result_table(result) + "\n\n" + examples_text(examples))
    print("\n\n" + "\n\n".join(tables))
    print(f"\nTrained and measured in {time.perf_counter() - start:.0f} s; everything is in {root}/")
