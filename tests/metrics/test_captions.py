import gzip
import json
import os
import subprocess
from pathlib import Path

import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge

from hf_cmal.metrics import caption_scores
from hf_cmal.metrics.captions import tokenize

HYPOTHESES = ["A red ball lies on the grass.", "Two dogs run.", "A man rides a horse on the beach"]
REFERENCES = [
    ["A red ball is on the grass .", "There's a ball on green grass", "A ball lies on the grass"],
    ["Two dogs are running."],
    ["A man rides a horse.", "A rider on a horse at the beach, in the evening"],
]
# What is above, by hand: lower case, no punctuation.
PLAIN = [
    ["a red ball is on the grass", "there's a ball on green grass", "a ball lies on the grass"],
    ["two dogs are running"],
    ["a man rides a horse", "a rider on a horse at the beach in the evening"],
]
METRICS = ("cider", "bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l")


def numbers(scores):
    return {name: scores[name] for name in METRICS}


def test_captions_are_lowered_and_lose_their_punctuation():
    assert tokenize("A man's well-worn hat, (on) a table...") == "a man's well-worn hat on a table"
    assert [[tokenize(caption) for caption in group] for group in REFERENCES] == PLAIN
    assert tokenize("?!") == ""


def test_scores_equal_pycocoevalcap_on_the_tokenized_captions():
    plain = ["a red ball lies on the grass", "two dogs run", "a man rides a horse on the beach"]
    candidates = {index: [caption] for index, caption in enumerate(plain)}
    targets = dict(enumerate(PLAIN))
    bleu = Bleu(4).compute_score(targets, candidates, verbose=0)[0]
    cider = Cider().compute_score(targets, candidates)[0]
    rouge = Rouge().compute_score(targets, candidates)[0]
    expected = dict(zip(METRICS, [cider, *bleu, rouge], strict=True))
    assert numbers(caption_scores(HYPOTHESES, REFERENCES)) == pytest.approx(expected, abs=1e-12)
    raw = {index: [caption] for index, caption in enumerate(HYPOTHESES)}
    untokenized = Cider().compute_score(dict(enumerate(REFERENCES)), raw)[0]
    assert abs(caption_scores(HYPOTHESES, REFERENCES)["cider"] - untokenized) > 1e-2


def test_bleu_of_a_hand_worked_corpus():
    # "a b c d" against "a b c e", and "x" against "x": 1-grams 4 of 5, 2-grams 2 of 3; equal lengths.
    scores = caption_scores(["a b c d", "x"], [["a b c e"], ["x"]])
    assert scores["bleu_1"] == pytest.approx(4 / 5)
    assert scores["bleu_2"] == pytest.approx((4 / 5 * 2 / 3) ** 0.5)
    # ROUGE-L: longest common subsequences 3 of 4 and 1 of 1.
    assert scores["rouge_l"] == pytest.approx((3 / 4 + 1) / 2)


def test_corpus_scores_do_not_change_under_permutation():
    order = [1, 2, 0]
    permuted = caption_scores([HYPOTHESES[i] for i in order], [REFERENCES[i][::-1] for i in order])
    assert numbers(permuted) == pytest.approx(numbers(caption_scores(HYPOTHESES, REFERENCES)), abs=1e-12)
    assert caption_scores([HYPOTHESES[i] for i in order], REFERENCES)["cider"] < permuted["cider"] - 1e-2


def test_scoring_starts_no_java_and_prints_nothing(monkeypatch, capfd):
    def refuse(*args, **kwargs):
        raise AssertionError(f"started a process: {args}")

    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert caption_scores(HYPOTHESES, REFERENCES)["cider"] > 0
    assert capfd.readouterr() == ("", "")
    with pytest.raises(AssertionError, match="started a process"):
        subprocess.run(["java"], check=True)


def test_signatures_name_smoothing_references_and_the_missing_tokenizer():
    scores = caption_scores(HYPOTHESES, REFERENCES)
    shared = "nrefs:var|tokenizer: simple, no java|pycocoevalcap:"
    assert scores["cider_signature"].startswith(f"cider-d|n:4|sigma:6.0|eos:no|df:evaluated(3)|{shared}")
    assert scores["bleu_signature"].startswith(f"bleu|n:1-4|smooth:coco|length:closest|{shared}")
    assert scores["rouge_l_signature"].startswith(f"rouge-l|beta:1.2|{shared}")
    single = caption_scores(HYPOTHESES, [group[:1] for group in REFERENCES])
    assert "|nrefs:1|" in single["bleu_signature"]


def test_one_image_warns_that_its_cider_is_zero():
    with pytest.warns(UserWarning, match="CIDEr of one image is 0"):
        assert caption_scores(["a cat"], [["a cat"]])["cider"] == 0.0


def test_an_empty_caption_is_scored():
    scores = caption_scores(["", "two dogs run"], [["a ball"], ["two dogs run"]])
    assert 0 < scores["bleu_1"] < 1 and scores["rouge_l"] == pytest.approx(0.5)


def test_images_without_references_are_refused():
    with pytest.raises(ValueError, match="sentence 1 has no reference"):
        caption_scores(["a", "b"], [["a"], []])


@pytest.mark.slow
@pytest.mark.skipif("HF_CMAL_DATA" not in os.environ, reason="HF_CMAL_DATA does not name the data folder")
def test_a_public_captioners_figures_are_met_up_to_the_tokenizer():
    # pycocoevalcap with PTB tokenization gives .8438 .7050 .5651 .4468, CIDEr 1.4956, ROUGE-L .6220.
    folder = Path(os.environ["HF_CMAL_DATA"])
    with gzip.open(folder / "peers" / "satic_results_on_val2017.json.gz", "rt") as file:
        captions = {row["image_id"]: row["caption"] for row in json.load(file)}
    with gzip.open(folder / "coco" / "captions_val2017.json.gz", "rt") as file:
        references = {image: [] for image in captions}
        for row in json.load(file)["annotations"]:
            references[row["image_id"]].append(row["caption"])
    scores = caption_scores(list(captions.values()), list(references.values()))
    expected = [1.4956, 0.8438, 0.7050, 0.5651, 0.4468, 0.6220]
    assert list(numbers(scores).values()) == pytest.approx(expected, rel=0.01)
