"""How sure a difference of two systems' BLEU is: paired bootstrap resampling of the sentences (Koehn 2004).

A test set is drawn anew from its sentences, with replacement, many times; both systems are scored on the same
draw. sacreBLEU counts the n-grams and makes the score of the counts; its own paired test gives a p-value and
an interval of each system, but none of the difference. The draws depend on the number of sentences and a
fixed seed alone, so results of several training seeds can be pooled draw by draw. It decodes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics.bleu import BLEU, MAX_NGRAM_ORDER

from hf_cmal.metrics.bleu import check_references

RESAMPLES = 1000
SEED = 12345  # sacreBLEU's own
PERCENT = 95  # of the resampled differences lie in the interval


def baselines_of(systems: Mapping[str, tuple[str, bool]], baseline: str) -> dict[str, str]:
    """With which system every other one is compared: the baseline's model with the same postprocessing.

    Args:
        systems: name -> (folder of its model, whether it removes consecutive duplicates).
        baseline: one of them.

    Returns:
        name -> name of its baseline, without the baselines themselves.

    Raises:
        ValueError: there is no such system, or not with the postprocessing of another.

    Example:
        >>> baselines_of({"xe": ("a", False), "ca": ("b", False)}, "ca")
        {'xe': 'ca'}
    """
    if baseline not in systems:
        raise ValueError(f"evaluation.baseline is {baseline!r}; legal values: {', '.join(systems)}, or null")
    model, _ = systems[baseline]
    by_setting = {setting: name for name, (folder, setting) in systems.items() if folder == model}
    by_setting[systems[baseline][1]] = baseline
    compared = {}
    for name, (_, setting) in systems.items():
        if setting not in by_setting:
            raise ValueError(
                f"evaluation.systems.{name} has remove_consecutive_duplicates {str(setting).lower()}, but no "
                f"system of the baseline's model {model} has; add one to compare it with"
            )
        if name not in by_setting.values():
            compared[name] = by_setting[setting]
    return compared


def sentence_statistics(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """What BLEU counts in every sentence.

    Args:
        hypotheses: B detokenised strings.
        references: for each its references, at least one.

    Returns:
        int64 [B, 10]: words of the hypothesis, of the reference that is nearest in length, then the n-grams
        of orders 1 to 4 that match, and those of the hypothesis. BLEU is a function of their sum.

    Raises:
        ValueError: no sentences, unequal counts, or a sentence without reference.
    """
    check_references(hypotheses, references)
    # the counts do not depend on effective_order; without it sacreBLEU warns of scores of single sentences
    bleu = BLEU(effective_order=True)
    scores = [
        bleu.sentence_score(text, list(group)) for text, group in zip(hypotheses, references, strict=True)
    ]
    return np.array(
        [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores], dtype=np.int64
    )


def bleu_of_statistics(total: np.ndarray) -> float:
    """BLEU in [0, 100] of the sum [10] of sentences' statistics, as `BLEU()` gives it for them."""
    words, reference_words, *counts = (int(value) for value in total)
    score = BLEU.compute_bleu(
        counts[:MAX_NGRAM_ORDER], counts[MAX_NGRAM_ORDER:], words, reference_words, smooth_method="exp"
    )
    return float(score.score)


def draw_sentences(rows: int, *, resamples: int = RESAMPLES, seed: int = SEED) -> np.ndarray:
    """How often each of B sentences is in each of R test sets drawn with replacement: int64 [R, B].

    Every test set has B sentences. The same arguments give the same draws.
    """
    return np.random.default_rng(seed).multinomial(rows, np.full(rows, 1 / rows), size=resamples)


def resampled_bleu(statistics: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """BLEU of a system on each of R test sets: float64 [R].

    Args:
        statistics: [B, 10], see `sentence_statistics`.
        draws: [R, B], see `draw_sentences`; for a paired comparison the same for both systems.
    """
    return np.array([bleu_of_statistics(total) for total in draws @ statistics])


def interval(values: np.ndarray) -> tuple[float, float]:
    """The ends of the middle `PERCENT` per cent of resampled values [R]."""
    outside = (1 - PERCENT / 100) / 2
    low, high = np.quantile(values, [outside, 1 - outside])
    return float(low), float(high)


def compare_with_baselines(
    compared: Mapping[str, str],
    hypotheses: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    *,
    bleu_signature: str,
) -> dict[str, Any]:
    """The difference of every system's BLEU to that of its baseline, with an interval.

    Args:
        compared: name -> name of its baseline, see `baselines_of`.
        hypotheses: name -> the sentences of all B rows, baselines included.
        references: of the rows.
        bleu_signature: of the scores that are compared.

    Returns:
        `signature`, and in `systems` for every name: `baseline`, `difference` (system minus baseline, in
        BLEU points), `low` and `high` (ends of its interval) and `resampled`, the differences on all test
        sets, written with three digits and a space between: what pooling over seeds needs. No sentence.
    """
    draws = draw_sentences(len(references))
    names = dict.fromkeys([*compared, *compared.values()])
    statistics = {name: sentence_statistics(hypotheses[name], references) for name in names}
    resampled = {name: resampled_bleu(one, draws) for name, one in statistics.items()}
    bleu = {name: bleu_of_statistics(one.sum(0)) for name, one in statistics.items()}
    systems = {}
    for name, baseline in compared.items():
        differences = resampled[name] - resampled[baseline]
        low, high = interval(differences)
        systems[name] = {
            "baseline": baseline,
            "difference": bleu[name] - bleu[baseline],
            "low": low,
            "high": high,
            "resampled": " ".join(f"{value:.3f}" for value in differences),
        }
    signature = f"paired-bootstrap|bs:{RESAMPLES}|seed:{SEED}|rows:{len(references)}|interval:{PERCENT} %"
    return {"signature": f"{signature}|{bleu_signature}", "systems": systems}
