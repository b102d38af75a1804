"""The ladders for one's own text, in small: two steps of each training on a few toy sentences."""

from pathlib import Path

import yaml

from hf_cmal.data.toy import toy_translation

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
SHORT = {"max_steps": 2, "logging_steps": 1, "eval_steps": 2, "save_steps": 2, "warmup_steps": 1}


def miniature(ladder: str, folder: Path) -> Path:
    """The recipes of a ladder with two steps of each training."""
    folder.mkdir()
    for path in (RECIPES / ladder).glob("*.yaml"):
        recipe = yaml.safe_load(path.read_text(encoding="utf-8"))
        if "training" in recipe:
            known = [key for key in SHORT if key == "max_steps" or key in recipe["training"]]
            recipe["training"].update({key: SHORT[key] for key in known})
        if "evaluation" in recipe:
            recipe["evaluation"].update(latency_rows=1, examples=1)
        (folder / path.name).write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return folder


def write_pairs(folder: Path, count: int) -> tuple[list[str], list[str]]:
    """train.en and train.de, with an empty line at their ends; returns the sentences."""
    pairs = toy_translation(count, seed=0, split="train")
    sources, targets = pairs["source"][:], [references[0] for references in pairs["references"]]
    (folder / "train.en").write_text("\n".join(sources) + "\n\n", encoding="utf-8")
    (folder / "train.de").write_text("\n".join(targets) + "\n\n", encoding="utf-8")
    return sources, targets
