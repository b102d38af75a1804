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
        FileNotFoundError: `recipes` lacks a task's ladder (they come with a clone of the project, not with
            the package).
    """
    ladders = {task: sorted((Path(recipes) / task).glob("[0-9]*.yaml")) for task in TASKS}
    for task, paths in ladders.items():
        if not paths:
            raise FileNotFoundError(
                f"no recipes at {Path(recipes) / task}; run this in a clone of the project, or name them: "
                "--recipes DIR"
            )
    start = time.perf_counter()
    tables = []
    for task, paths in ladders.items():
        for path in paths:
            recipe = load_recipe(path, [f"root={root}/{task}", f"seed={seed}"])
            print(f"\n== {task}: {path.stem} ({time.perf_counter() - start:.0f} s)", flush=True)
            run_stage(recipe)
        output = Path(recipe.output_dir)  # of the last stage, which evaluates
        result = json.loads((output / "result.json").read_text(encoding="utf-8"))
        examples = json.loads((output / "examples.json").read_text(encoding="utf-8"))
        tables.append(result_table(result) + "\n\n" + examples_text(examples))
    print("\n\n" + "\n\n".join(tables))
    print(f"\nTrained and measured in {time.perf_counter() - start:.0f} s; everything is in {root}/")
