"""Other people's sentence scores, each called (index of the input, hypothesis) -> score.

What can be prepared of the references is prepared in advance, as our `bind` does, so that only the scoring of
a hypothesis is timed. The scores are the libraries' own code.
"""

import types
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nltk.translate.gleu_score import sentence_gleu
from nltk.util import everygrams
from pycocoevalcap.cider.cider_scorer import CiderScorer, cook_test
from pycocoevalcap.rouge.rouge import Rouge
from sacrebleu.metrics import BLEU

References = Sequence[Sequence[str]]  # per input the references, words joined by spaces


def cider_d(references: References, *, num_inputs: int) -> Callable[[int, str], float]:
    """pycocoevalcap's CIDEr-D. Document frequencies of all inputs and the tf-idf vectors of the references of
    the first `num_inputs` are ready; a call runs its cook_test, counts2vec and sim."""
    scorer = CiderScorer(n=4, sigma=6.0)
    for group in references:
        scorer.cook_append(None, group)
    scorer.compute_doc_freq()
    scorer.ref_len = np.log(float(len(references)))
    counts2vec = _inner_function(CiderScorer.compute_cider, "counts2vec", scorer)
    sim = _inner_function(CiderScorer.compute_cider, "sim", scorer)
    prepared = [[counts2vec(counts) for counts in group] for group in scorer.crefs[:num_inputs]]

    def score(b: int, hypothesis: str) -> float:
        # compute_cider's loop over test and refs, but for the references' counts2vec
        vec, norm, length = counts2vec(cook_test(hypothesis))
        total = np.array([0.0 for _ in range(scorer.n)])
        for vec_ref, norm_ref, length_ref in prepared[b]:
            total += sim(vec, vec_ref, norm, norm_ref, length, length_ref)
        return float(np.mean(total) / len(prepared[b]) * 10.0)

    return score


def _inner_function(outer: Callable[..., Any], name: str, scorer: CiderScorer) -> Callable[..., Any]:
    """The function `name` that is defined inside `outer` and reads nothing from it but self."""
    (code,) = [
        part for part in outer.__code__.co_consts
        if isinstance(part, types.CodeType) and part.co_name == name
    ]  # fmt: skip
    if code.co_freevars != ("self",):
        raise RuntimeError(f"{name} of this pycocoevalcap reads {code.co_freevars}, not self alone")
    return types.FunctionType(code, outer.__globals__, name, None, (types.CellType(scorer),))


def bleu(references: References) -> Callable[[int, str], float]:
    """sacrebleu's sentence BLEU / 100, references cached by its own option."""
    metrics = [
        BLEU(tokenize="none", effective_order=True, references=[[reference] for reference in group])
        for group in references
    ]
    return lambda b, hypothesis: metrics[b].corpus_score([hypothesis], None).score / 100.0


def gleu(references: References) -> Callable[[int, str], float]:
    """nltk's sentence_gleu, which counts the references in each call."""
    split = [[reference.split() for reference in group] for group in references]
    return lambda b, hypothesis: float(sentence_gleu(split[b], hypothesis.split()))


def gleu_prepared(references: References) -> Callable[[int, str], float]:
    """The same sum on nltk's n-grams, with the references counted in advance; nltk has no such function."""
    counted = []
    for group in references:
        counters = [Counter(everygrams(reference.split(), 1, 4)) for reference in group]
        counted.append([(counter, counter.total()) for counter in counters])

    def score(b: int, hypothesis: str) -> float:
        ours = Counter(everygrams(hypothesis.split(), 1, 4))
        total = ours.total()
        return max((theirs & ours).total() / max(total, size) for theirs, size in counted[b])

    return score


def rouge_l(references: References) -> Callable[[int, str], float]:
    """pycocoevalcap's ROUGE-L."""
    scorer = Rouge()
    groups = [list(group) for group in references]
    return lambda b, hypothesis: float(scorer.calc_score([hypothesis], groups[b]))
