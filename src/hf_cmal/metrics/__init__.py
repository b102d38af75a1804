"""Decoded output to reported scores, each with its signature (CMAL Secs. 5.1.1 and 6.1.1).

`tokens.py` counts on token ids, `bleu.py` scores translations, `captions.py` captions. What training
maximises is in `rewards`; these numbers are only reported.
"""

from hf_cmal.metrics.bleu import translation_scores
from hf_cmal.metrics.captions import caption_scores
from hf_cmal.metrics.tokens import length_accuracy, repetition_rate

__all__ = ["caption_scores", "length_accuracy", "repetition_rate", "translation_scores"]
