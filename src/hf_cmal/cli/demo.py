"""`hf-cmal demo`: the published student and its teacher side by side, then the whole road on the toy world.

The toy ladders of both tasks are run as `hf-cmal run` would, and end in tables and a few sentences.
"""

import time
from pathlib import Path

from hf_cmal.cli.default_model import STUDENT, TEACHER, published
from hf_cmal.cli.run import run
from hf_cmal.cli.translate import translate
from hf_cmal.tasks import TASKS

SENTENCES = (
    "A man in a blue shirt is standing on a ladder.",
    "Two dogs are running through the snow.",
    "A little girl in a red dress is eating ice cream.",
    "Several people are waiting for a train at the station.",
    "A woman with a backpack is taking a picture of a mountain.",
)


def demo(*, recipes: str, root: str, seed: int = 1) -> None:
    """Translates a few sentences, then trains, distils and measures each task's toy ladder.

    Raises:
        FileNotFoundError: `recipes` lacks a task's ladder (they come with a clone of the project, not with
            the package).
    """
    for task in TASKS:
        if not (Path(recipes) / task).is_dir():
            raise FileNotFoundError(
                f"no recipes at {Path(recipes) / task}; run this in a clone of the project, or name them: "
                "--recipes DIR"
            )
    start = time.perf_counter()
    student, teacher = published(STUDENT), published(TEACHER)
    if student and teacher:
        translate(SENTENCES, model=str(student), compare_with=str(teacher))
    tables = [run(Path(recipes) / task, [f"root={root}/{task}", f"seed={seed}"]) for task in TASKS]
    print("\n\n" + "\n\n".join(tables))
    print(f"\nTrained and measured in {time.perf_counter() - start:.0f} s; everything is in {root}/")
