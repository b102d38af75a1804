"""Which checkpoint a killed run goes on from: the last one that was written to its end.

The Trainer writes `trainer_state.json` after everything else in a checkpoint. A folder without it, or with a
torn one, was being written when the run was killed.
"""

import json
import shutil
import warnings
from pathlib import Path

from transformers.trainer import TRAINER_STATE_NAME


def last_complete_checkpoint(folder: str | Path, *, remove_torn: bool = False) -> str | None:
    """The newest checkpoint of a run that is whole; None if there is none.

    Args:
        folder: `output_dir` of the run.
        remove_torn: delete newer checkpoints that are not whole, with a warning; else they are passed over.
    """
    torn = []
    kept = sorted(Path(folder).glob("checkpoint-*"), key=_step, reverse=True)
    while kept and not _is_whole(kept[0]):
        torn.append(kept.pop(0))
    if remove_torn:
        for path in torn:
            warnings.warn(
                f"{path} was being written when the run was killed: removed; the run goes on from "
                f"{kept[0].name if kept else 'its beginning'}",
                stacklevel=2,
            )
            shutil.rmtree(path)
    return str(kept[0]) if kept else None


def _step(path: Path) -> int:
    number = path.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def _is_whole(path: Path) -> bool:
    try:
        json.loads((path / TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return True
