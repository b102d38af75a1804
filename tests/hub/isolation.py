"""Runs code in a fresh Python process in which chosen packages are absent, as on a machine without them."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# A hidden package is not found by any finder, so importing it and asking for its spec both behave as if it
# had never been installed. Raising from the finder would break transformers' own availability checks.
PREAMBLE = """
import sys
class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {hidden!r} else self.finder.find_spec(name, path, target)
    def __getattr__(self, name):
        return getattr(self.finder, name)
sys.meta_path = [Hiding(finder) for finder in sys.meta_path]
"""


def run_isolated(
    code: str, *, hidden: Sequence[str], home: Path, environment: Mapping[str, str] | None = None
) -> Any:
    """Runs `code` with empty caches under `home`, and returns what its last printed line holds as JSON."""
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("HF_", "PYTHON"))},
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        **(environment or {}),
    }
    # Run from `home`: the repository root on sys.path could lend what should be absent.
    process = subprocess.run(
        [sys.executable, "-c", PREAMBLE.format(hidden=set(hidden)) + code],
        env=variables,
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])
