"""What holds for every test: no network, few threads, and no cache shared with the user's home.

The variables are set here, before any test module imports torch or a Hugging Face library, because those
read them once at import.
"""

import os
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"
# A datasets cache of an earlier run could answer for code that has changed since.
_HF_HOME = tempfile.TemporaryDirectory(prefix="hf_cmal_tests_")
os.environ["HF_HOME"] = _HF_HOME.name
