import gzip
import math
import os
from pathlib import Path

import pytest
import sacrebleu

from hf_cmal.metrics import translation_scores

HYPOTHESES = ["The cat sat on the mat.", "A dog, quite big, ran away.", "It rains today."]
REFERENCES = [
    ["The cat sat on a mat."],
    ["A dog, quite big, ran off.", "The big dog ran away."],
    ["It is raining today."],
]

# Public figures of these outputs with sacreBLEU 2.6.0 (tokenised, then detokenised-style 13a).
ANCHORS = {"ctc_sd": (26.85, 26.92), "cmlm_sd": (21.76, 22.42), "null_sd": (22.71, 23.30)}


def test_bleu_of_a_hand_worked_corpus():
    # Tokens: "a b c d e" against "a b c d f": precisions 4/5, 3/4, 2/3, 1/2; no brevity penalty.
    scores = translation_scores(["a b c d e"], [["a b c d f"]])
    expected = 100 * (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)
    assert scores["bleu"] == pytest.approx(expected) and scores["bleu_tokenised"] == pytest.approx(expected)
    shorter = translation_scores(["a b c d"], [["a b c d f"]])
    assert shorter["bleu"] == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_scores_equal_sacrebleu_with_ragged_references():
    scores = translation_scores(HYPOTHESES, REFERENCES)
    streams = [[group[0] for group in REFERENCES], [None, REFERENCES[1][1], None]]
    assert scores["bleu"] == pytest.approx(sacrebleu.corpus_bleu(HYPOTHESES, streams).score, abs=1e-12)
    tokenised = sacrebleu.corpus_bleu(HYPOTHESES, streams, tokenize="none", force=True).score
    assert scores["bleu_tokenised"] == pytest.approx(tokenised, abs=1e-12)
    assert scores["chrf"] == pytest.approx(sacrebleu.corpus_chrf(HYPOTHESES, streams).score, abs=1e-12)
    one_stream = sacrebleu.corpus_bleu(HYPOTHESES, streams[:1]).score
    assert scores["bleu"] > one_stream + 1
    assert abs(scores["bleu"] - scores["bleu_tokenised"]) > 1


def test_bleu_is_on_detokenised_text_and_tokenised_bleu_has_its_own_key_and_signature():
    scores = translation_scores(HYPOTHESES, REFERENCES)
    assert set(scores) == {
        "bleu", "bleu_signature", "bleu_tokenised", "bleu_tokenised_signature", "chrf", "chrf_signature"
    }  # fmt: skip
    version = f"version:{sacrebleu.__version__}"
    assert scores["bleu_signature"] == f"nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|{version}"
    assert scores["bleu_tokenised_signature"] == f"nrefs:var|case:mixed|eff:no|tok:none|smooth:exp|{version}"
    assert (
        scores["chrf_signature"].startswith("nrefs:var|case:mixed|") and version in scores["chrf_signature"]
    )
    single = translation_scores(HYPOTHESES, [group[:1] for group in REFERENCES])
    assert single["bleu_signature"].startswith("nrefs:1|")


def test_corpus_scores_do_not_change_under_permutation():
    order = [2, 0, 1]
    permuted = translation_scores([HYPOTHESES[i] for i in order], [REFERENCES[i][::-1] for i in order])
    assert permuted == translation_scores(HYPOTHESES, REFERENCES)
    mismatched = translation_scores([HYPOTHESES[i] for i in order], REFERENCES)
    assert mismatched["bleu"] < permuted["bleu"] - 1


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([], [], "nothing to score"),
        (["a", "b"], [["a"]], "2 hypotheses but references for 1"),
        (["a", "b"], [["a"], []], "sentence 1 has no reference"),
        (["a"], ["a"], r"references of sentence 0 are a string.*\['a'\]"),
    ],
)
def test_a_corpus_that_cannot_be_scored_is_refused(hypotheses, references, message):
    with pytest.raises(ValueError, match=message):
        translation_scores(hypotheses, references)


@pytest.mark.skipif("HF_CMAL_DATA" not in os.environ, reason="HF_CMAL_DATA does not name the data folder")
@pytest.mark.parametrize("system", sorted(ANCHORS))
def test_public_figures_of_other_systems_outputs_are_met(system):
    path = Path(os.environ["HF_CMAL_DATA"]) / "peers" / f"dslp_{system}.tsv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines]
    scores = translation_scores([row[0] for row in rows], [[row[1]] for row in rows])
    assert (round(scores["bleu_tokenised"], 2), round(scores["bleu"], 2)) == ANCHORS[system]
