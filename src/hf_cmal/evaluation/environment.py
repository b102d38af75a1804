"""What a number depends on besides the model: versions, hardware, threads, the commit of the code.

Written into every result, so that a figure can be traced to the run that gave it.
"""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

PACKAGES = (
    "hf-cmal",
    "torch",
    "transformers",
    "accelerate",
    "datasets",
    "numba",
    "sacrebleu",
    "pycocoevalcap",
)


def describe_environment() -> dict[str, Any]:
    """Versions, hardware and commit of this run, as plain values for JSON."""
    return {
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name in PACKAGES},
        "hardware": {
            "machine": platform.machine(),
            "processor": _processor(),
            "cpus": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "commit": _commit(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _commit() -> str | None:
    """The commit of the source tree this package runs from, with "+changes" if it was edited.

    None where the package is installed without its repository; a repository that only holds the environment
    it is installed in is another project's.
    """
    folder = Path(__file__).parent
    try:
        _git(folder, "ls-files", "--error-unmatch", "--", __file__)
        head = _git(folder, "rev-parse", "--short", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", str(folder.parent))
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + "+changes" if changed else head


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()
