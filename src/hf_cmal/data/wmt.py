"""WMT14 German-English by the `datasets` library (CMAL Sec. 6.1.1): 4,508,785 / 3,000 / 3,003 pairs.

Validation is newstest2013 and test is newstest2014. Downloads from the Hub on first use.
"""

from datasets import Dataset

from hf_cmal.data.parallel_text import load_translation_dataset


def load_wmt14(split: str, *, source: str = "en", target: str = "de", path: str = "wmt/wmt14") -> Dataset:
    """Load "train", "validation" or "test" as `source` and `references`; `path` may be a local copy."""
    return load_translation_dataset(
        path, name="de-en", split=split, source_column=source, target_column=target
    )
