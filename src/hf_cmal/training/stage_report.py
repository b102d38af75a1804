"""`stage_report.json`: what a stage did, how long it took and what it left out, beside what it made.

The evaluation of a ladder gathers the reports of its stages into the result, so that a published number says
what was skipped on the way to it. A stage that is run again adds its seconds and what it skips newly.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

STAGE_REPORT = "stage_report.json"


def write_stage_report(folder: str | Path, *, stage: str, seconds: float, skipped: Sequence[str]) -> Path:
    """Writes or extends the report of a folder.

    Args:
        folder: of the stage; it exists.
        stage: the stage's kind, one of `hf_cmal.training.recipe.STAGES`.
        seconds: wall time of this run.
        skipped: messages of `hf_cmal.data.skipped`, each once.
    """
    path = Path(folder) / STAGE_REPORT
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    report = {
        "stage": stage,
        "seconds": round(earlier.get("seconds", 0.0) + seconds, 1),
        "skipped": list(dict.fromkeys([*earlier.get("skipped", []), *skipped])),
    }
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def read_stage_reports(root: str | Path) -> dict[str, Mapping[str, Any]]:
    """The reports of the stages in the folders of `root`, by folder name, in the order of the names."""
    return {
        path.parent.name: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(Path(root).glob(f"*/{STAGE_REPORT}"))
    }
