import os
import subprocess
import sys

SCRIPT = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from hf_cmal.rewards.ngrams import _child, _key
    import numpy as np
messages = [str(w.message) for w in caught if "writable place for its cache" in str(w.message)]
found = _child(np.array([_key(0, 5)] * 2), np.array([3, 3], np.int32), 0, 5)
print(len(messages), found)
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
    assert run(NUMBA_CACHE_LOCATOR_CLASSES=locators, NUMBA_CACHE_DIR=str(blocked / "cache")) == "1 3"
    writable = tmp_path / "cache"
    assert run(NUMBA_CACHE_LOCATOR_CLASSES=locators, NUMBA_CACHE_DIR=str(writable)) == "0 3"
    assert any(writable.rglob("*.nbi"))
