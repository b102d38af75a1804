"""Corpus scores of captions by pycocoevalcap's Python scorers (CMAL Sec. 5.1.1): CIDEr-D, BLEU-1 to 4,
ROUGE-L.

Java is not needed: PTB tokenization is replaced by a plain rule (lower case, words of letters and digits,
inner apostrophes and hyphens kept), and the signature says so. CIDEr counts its document frequencies on the
references that are passed, eos not included; the reward's CIDEr-D in `hf_cmal.rewards.cider` does neither. No
METEOR and no SPICE.
"""

import re
import warnings
from collections.abc import Sequence
from importlib import metadata

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from hf_cmal.metrics.bleu import check_references

_WORD = re.compile(r"\w+(?:['’\-]\w+)*")


def tokenize(caption: str) -> str:
    """Lower case, punctuation dropped, words separated by one space.

    Example:
        >>> tokenize("A man's well-worn hat, on a table.")
        "a man's well-worn hat on a table"
    """
    return " ".join(_WORD.findall(caption.lower()))


def caption_scores(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float | str]:
    """Scores a corpus of captions.

    Args:
        hypotheses: one caption per image.
        references: for each image its captions, at least one; their number may differ.

    Returns:
        cider, bleu_1 to bleu_4 and rouge_l in pycocoevalcap's units (papers print them times 100), and
        `cider_signature`, `bleu_signature` (coco's smoothing, closest length), `rouge_l_signature`.

    Raises:
        ValueError: no captions, unequal counts, or an image without reference.
    """
    check_references(hypotheses, references)
    if len(hypotheses) == 1:
        warnings.warn(
            "CIDEr of one image is 0: its document frequencies come from the images that are scored, and "
            "every n-gram has the inverse frequency log(1/1) = 0",
            UserWarning,
            stacklevel=2,
        )
    candidates = {index: [tokenize(caption)] for index, caption in enumerate(hypotheses)}
    targets = {index: [tokenize(caption) for caption in group] for index, group in enumerate(references)}
    scores: dict[str, float | str] = {"cider": float(Cider().compute_score(targets, candidates)[0])}
    bleu, _ = Bleu(4).compute_score(targets, candidates, verbose=0)  # verbose=0: it prints otherwise
    scores |= {f"bleu_{order}": float(score) for order, score in enumerate(bleu, start=1)}
    scores["rouge_l"] = float(Rouge().compute_score(targets, candidates)[0])

    counts = {len(group) for group in references}
    num_references = str(counts.pop()) if len(counts) == 1 else "var"
    shared = (
        f"nrefs:{num_references}|tokenizer: simple, no java|pycocoevalcap:{metadata.version('pycocoevalcap')}"
    )
    scores["cider_signature"] = f"cider-d|n:4|sigma:6.0|eos:no|df:evaluated({len(hypotheses)})|{shared}"
    scores["bleu_signature"] = f"bleu|n:1-4|smooth:coco|length:closest|{shared}"
    scores["rouge_l_signature"] = f"rouge-l|beta:1.2|{shared}"
    return scores
