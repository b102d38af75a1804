import os
import subprocess
import sys

SCRIPT = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from hf_cmal.rewards.ngrams import build_trie
    import numpy as np
messages = [str(w.message) for w in caught if "writable place for its cache" in str(w.message)]
_, _, counts = build_trie(np.array([5, 6]), np.array([0, 2]), np.array([0]), np.array([0]), 1, 4)
print(len(messages), counts.size)  # the root, 5, 5 6, 6
"""


def run(**variables: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    return finished.stdout.strip()


def test_kernels_work_with_one_warning_where_no_cache_can_be_written(tmp_path):
    # A folder below a file cannot be made, not even by root, for whom no folder is read-only.
    blocked = tmp_path / "file"
    blocked.write_text("")
    locators = "UserProvidedCacheLocator"
    assert run(NUMBA_CACHE_LOCATOR_CLASSES=locators, NUMBA_CACHE_DIR=str(blocked / "cache")) == "1 4"
    writable = tmp_path / "cache"
    assert run(NUMBA_CACHE_LOCATOR_CLASSES=locators, NUMBA_CACHE_DIR=str(writable)) == "0 4"
    assert any(writable.rglob("*.nbi"))
