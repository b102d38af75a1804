"""Tasks: for each kind of input, which loader, models, encoding, scores and reward belong together."""

from hf_cmal.tasks.captioning import CAPTIONING
from hf_cmal.tasks.task import ModelOptions, Task
from hf_cmal.tasks.translation import TRANSLATION

TASKS: dict[str, Task] = {"translation": TRANSLATION, "captioning": CAPTIONING}

__all__ = ["TASKS", "ModelOptions", "Task", "get_task"]


def get_task(name: str) -> Task:
    """The task of that name; an unknown one is a ValueError that lists the legal names."""
    if name not in TASKS:
        raise ValueError(f"task is {name!r}; legal values: {', '.join(TASKS)}")
    return TASKS[name]
