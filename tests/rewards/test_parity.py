"""The rewards of 5,000 real captions against the public scorers, with one tokenization for both."""

import random
import shutil

import pytest
import torch
from nltk.translate.gleu_score import sentence_gleu
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from hf_cmal.rewards import (
    BleuReward,
    CiderDReward,
    DocumentFrequencies,
    GleuReward,
    RougeLReward,
    score_written_out,
)
from hf_cmal.sampling import Edits
from tests.rewards.plain import coco_bleu, pad, rouge_l, scores
from tests.rewards.real_captions import needs_data, number, real_captions, tokenized_captions

# pycocoevalcap with the PTB tokenizer on these captions; the folder's README has the same.
PUBLISHED = {"bleu": [0.8438, 0.7050, 0.5651, 0.4468], "cider": 1.4956, "rouge_l": 0.6220}

pytestmark = [pytest.mark.slow, needs_data]


def cider_d_of(references: list[list[list[int]]], **options) -> CiderDReward:
    """With the document frequencies of the captions that are scored, no eos: pycocoevalcap's rule."""
    return CiderDReward(DocumentFrequencies.from_references(references, eos_token_id=None), **options)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.fixture(scope="module")
def captions():
    """Word ids: 5,000 captions, and the references of each."""
    hypotheses, references = number(*tokenized_captions())
    assert len(hypotheses) == 5_000 and sum(map(len, references)) == 25_014
    return hypotheses, references


@pytest.fixture(scope="module")
def of_coco():
    """What pycocoevalcap's scorers want: dicts of lists of tokenized strings."""
    hypotheses, references = tokenized_captions()
    return dict(enumerate(references)), {index: [caption] for index, caption in enumerate(hypotheses)}


def test_cider_d_of_real_captions_equals_pycocoevalcap(captions, of_coco):
    hypotheses, references = captions
    theirs_mean, theirs = Cider().compute_score(*of_coco)
    ours = scores(cider_d_of(references, count_eos=False), hypotheses, references)
    assert ours == pytest.approx(theirs.tolist(), abs=1e-9)
    assert mean(ours) == pytest.approx(float(theirs_mean), abs=1e-9)
    assert mean(ours) > 1
    narrower = scores(cider_d_of(references, sigma=5.0), hypotheses, references)
    assert abs(mean(narrower) - mean(ours)) > 1e-3


def test_bleu_of_real_captions_equals_pycocoevalcap(captions, of_coco):
    hypotheses, references = captions
    _, theirs = Bleu(4).compute_score(*of_coco, verbose=0)
    for order in (1, 2, 3, 4):
        ours = scores(BleuReward(max_order=order, smoothing="coco"), hypotheses, references)
        assert ours == pytest.approx(theirs[order - 1], rel=1e-9, abs=0), order
        plain = [coco_bleu(h, r, order) for h, r in zip(hypotheses[::20], references[::20], strict=True)]
        assert plain == pytest.approx(theirs[order - 1][::20], rel=1e-9, abs=0), order
    other = scores(BleuReward(), hypotheses, references)
    assert abs(mean(other) - mean(theirs[3])) > 1e-2


def test_rouge_l_of_real_captions_equals_pycocoevalcap(captions, of_coco):
    hypotheses, references = captions
    theirs_mean, theirs = Rouge().compute_score(*of_coco)
    ours = scores(RougeLReward(), hypotheses, references)
    assert ours == pytest.approx(theirs.tolist(), abs=1e-12)
    assert mean(ours) == pytest.approx(float(theirs_mean), abs=1e-12)
    plain = [rouge_l(h, r) for h, r in zip(hypotheses[::20], references[::20], strict=True)]
    assert plain == pytest.approx(theirs[::20].tolist(), abs=1e-12)
    other = scores(RougeLReward(beta=1.0), hypotheses, references)
    assert abs(mean(other) - mean(ours)) > 1e-3


def test_gleu_of_real_captions_equals_nltk(captions):
    hypotheses, references = (part[::5] for part in captions)
    theirs = [sentence_gleu(r, h) for h, r in zip(hypotheses, references, strict=True)]
    ours = scores(GleuReward(), hypotheses, references)
    assert ours == pytest.approx(theirs, abs=1e-12)
    first_only = scores(GleuReward(), hypotheses, [group[:1] for group in references])
    assert mean(first_only) < mean(ours) - 0.1


def test_edits_of_real_captions_score_as_the_sentences_they_stand_for(captions):
    hypotheses, references = (part[::10] for part in captions)
    actions, mask = pad(hypotheses)
    rng = random.Random(0)
    words = [sorted({word for reference in group for word in reference}) for group in references]
    shape = (len(hypotheses), 1, 30)
    width = torch.tensor([[[rng.choice((1, 2)) for _ in range(shape[2])]] for _ in hypotheses])
    position = torch.tensor(
        [[[rng.randrange(max(1, len(h) - 1)) for _ in range(shape[2])]] for h in hypotheses]
    )
    new = torch.tensor([[[rng.choices(group, k=2) for _ in range(shape[2])]] for group in words])
    edits = Edits(position=position, words=new, width=width, mask=torch.ones(shape, dtype=torch.bool))
    cider_d = cider_d_of(references)
    for reward in (GleuReward(), BleuReward(), BleuReward(smoothing="coco"), cider_d, RougeLReward()):
        bound = reward.bind(references, mask, eos_token_id=None)
        edited = bound.score_edits(actions, edits)
        torch.testing.assert_close(
            edited, score_written_out(bound.score, actions, edits), rtol=1e-9, atol=1e-12
        )
        assert (edited - bound.score(actions)[..., None]).abs().mean() > 0.02


@pytest.mark.skipif(shutil.which("java") is None, reason="the PTB tokenizer is a Java program")
def test_cider_and_rouge_l_of_the_published_tokenization_are_the_published_ones():
    """Both are means over captions, so the rewards meet the published figures; corpus BLEU is no mean."""
    captions, references = real_captions()
    tokenizer = PTBTokenizer()
    candidates = tokenizer.tokenize({i: [{"caption": text}] for i, text in enumerate(captions)})
    targets = tokenizer.tokenize({i: [{"caption": t} for t in group] for i, group in enumerate(references)})
    bleu, _ = Bleu(4).compute_score(targets, candidates, verbose=0)
    assert [round(score, 4) for score in bleu] == PUBLISHED["bleu"]
    hypotheses, groups = number([texts[0] for texts in candidates.values()], list(targets.values()))
    assert round(mean(scores(cider_d_of(groups), hypotheses, groups)), 4) == PUBLISHED["cider"]
    assert round(mean(scores(RougeLReward(), hypotheses, groups)), 4) == PUBLISHED["rouge_l"]
    # The package's own tokenization gives other figures, see tests/evaluation/test_public_anchors.py.
    hypotheses, groups = number(*tokenized_captions())
    assert round(mean(scores(cider_d_of(groups), hypotheses, groups)), 4) != PUBLISHED["cider"]
