"""Corpus scores of translations, by sacreBLEU, each with its signature (CMAL Sec. 6.1.1 reports BLEU).

`bleu` is computed on detokenised text and is the number to compare across papers; `bleu_tokenised` takes the
text as it is split by whitespace, for comparison with work that reports tokenised BLEU on tokenised data.
This is not the reward: rewards score single sentences on token ids.
"""

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


def translation_scores(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, float | str]:
    """Scores a corpus of translations.

    Args:
        hypotheses: one detokenised string per sentence.
        references: for each hypothesis its references, at least one; their number may differ.

    Returns:
        bleu, bleu_tokenised and chrf, each in [0, 100], and `<name>_signature` for each.

    Raises:
        ValueError: no sentences, unequal counts, or a sentence without reference.
    """
    streams = reference_streams(hypotheses, references)
    metrics: dict[str, BLEU | CHRF] = {
        "bleu": BLEU(),
        # force: the text may be tokenised, which is the point
        "bleu_tokenised": BLEU(tokenize="none", force=True),
        "chrf": CHRF(),
    }
    scores: dict[str, float | str] = {}
    for name, metric in metrics.items():
        # sacreBLEU takes None for a reference that a sentence does not have; its annotation does not say so.
        scores[name] = float(metric.corpus_score(list(hypotheses), streams).score)  # type: ignore[arg-type]
        scores[f"{name}_signature"] = str(metric.get_signature())
    return scores


def reference_streams(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]]
) -> list[list[str | None]]:
    """References per sentence, ragged -> sacreBLEU's streams: the i-th reference of every sentence, None
    where absent.
    """
    check_references(hypotheses, references)
    width = max(len(group) for group in references)
    return [[group[i] if i < len(group) else None for group in references] for i in range(width)]


def check_references(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raises ValueError unless there are sentences, and at least one reference, given as a list, for each."""
    if len(hypotheses) == 0:
        raise ValueError("there is nothing to score: no hypotheses")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses but references for {len(references)}: give one list of them each"
        )
    for index, group in enumerate(references):
        if isinstance(group, str):
            raise ValueError(
                f"the references of sentence {index} are a string: give a list of strings, [{group!r}]"
            )
        if len(group) == 0:
            raise ValueError(
                f"sentence {index} has no reference: leave it out of the evaluation or give it one"
            )
