"""Rewards of random sentences: edits against the sentences they stand for, sentences against plain sums."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.rouge.rouge import Rouge

from hf_cmal.rewards import (
    BleuReward,
    CiderDReward,
    DocumentFrequencies,
    GleuReward,
    MixtureReward,
    RepetitionReward,
    Reward,
    RougeLReward,
    score_written_out,
)
from hf_cmal.sampling import Edits
from tests.rewards.plain import (
    coco_bleu,
    nltk_gleu,
    pycocoevalcap_cider,
    random_batch,
    repetition,
    rouge_l,
    sacrebleu_bleu,
    text,
)
from tests.rewards.random_problems import Problem, cases, problems


def cider_d(problem: Problem) -> CiderDReward:
    frequencies = DocumentFrequencies.from_references(
        problem.documents, eos_token_id=problem.eos, count_eos=problem.count_eos
    )
    return CiderDReward(frequencies, sigma=problem.sigma, count_eos=problem.count_eos)


def plain_cider_d(hypothesis, references, problem):
    documents = [problem.closed(image) for image in problem.documents]
    return pycocoevalcap_cider(hypothesis, references, documents, problem.sigma)


def gleu(problem: Problem) -> GleuReward:
    return GleuReward(max_order=problem.max_order, count_eos=problem.count_eos)


def bleu(problem: Problem) -> BleuReward:
    return BleuReward(max_order=problem.max_order, count_eos=problem.count_eos)


def bleu_coco(problem: Problem) -> BleuReward:
    return BleuReward(max_order=problem.max_order, count_eos=problem.count_eos, smoothing="coco")


def rouge(problem: Problem) -> RougeLReward:
    return RougeLReward(beta=problem.beta, count_eos=problem.count_eos)


def mixture(problem: Problem) -> MixtureReward:
    return MixtureReward([(1.0, gleu(problem)), (0.5, RepetitionReward()), (-0.25, rouge(problem))])


Make = Callable[[Problem], Reward]
# name -> the reward, and its value for the words of one sentence
REWARDS: dict[str, tuple[Make, Callable[[list[int], list[list[int]], Problem], float]]] = {
    "gleu": (gleu, lambda h, references, problem: nltk_gleu(h, references, problem.max_order)),
    "bleu": (bleu, lambda h, references, problem: sacrebleu_bleu(h, references, problem.max_order)),
    "bleu-coco": (bleu_coco, lambda h, references, problem: coco_bleu(h, references, problem.max_order)),
    "cider-d": (cider_d, plain_cider_d),
    "rouge-l": (rouge, lambda h, references, problem: rouge_l(h, references, problem.beta)),
    # the eos is no word of it, whatever count_eos
    "repetition": (
        lambda problem: RepetitionReward(),
        lambda h, references, problem: repetition([word for word in h if word != problem.eos]),
    ),
    "mixture": (
        mixture,
        lambda h, references, problem: (
            nltk_gleu(h, references, problem.max_order)
            + 0.5 * repetition([word for word in h if word != problem.eos])
            - 0.25 * rouge_l(h, references, problem.beta)
        ),
    ),
}


def absolute_tolerance(name: str) -> float:
    """COCO's BLEU of a sentence without a match is about 1e-15, not 0: its relative error counts."""
    return 0.0 if name == "bleu-coco" else 1e-12


# The same problems in every run, so that a change of the code is all that can turn a test red.
few, many = (
    settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    for examples in (60, 200)
)


@pytest.fixture(scope="module", autouse=True)
def compiled_kernels():
    """Compiles them before the clock of an example runs."""
    one = torch.zeros(1, 1, 1, dtype=torch.long)
    edits = Edits(
        position=one, words=torch.ones(1, 1, 1, 2, dtype=torch.long), width=one + 1, mask=one.bool()
    )
    problem = Problem([[[1]]], [[[1]], [[2]]], one[0].bool(), one, edits, None, True, 4, 6.0, 1.2)
    for make, _ in REWARDS.values():
        bound = problem.bind(make(problem))
        bound.score(problem.actions)
        bound.score_edits(problem.actions, problem.edits)


@pytest.mark.parametrize("name", REWARDS)
@many
@given(problem=problems())
def test_an_edit_scores_as_the_sentence_it_stands_for(name, problem):
    bound = problem.bind(REWARDS[name][0](problem))
    ours = bound.score_edits(problem.actions, problem.edits)
    written_out = score_written_out(bound.score, problem.actions, problem.edits)
    assert ours.dtype == torch.float64 and ours.shape == problem.edits.mask.shape
    torch.testing.assert_close(ours, written_out, rtol=1e-9, atol=absolute_tolerance(name))


@pytest.mark.parametrize("name", REWARDS)
@few
@given(problem=problems())
def test_a_sentence_scores_as_the_plain_sum(name, problem):
    make, plain = REWARDS[name]
    ours = problem.bind(make(problem)).score(problem.actions)
    assert ours.dtype == torch.float64 and ours.shape == problem.actions.shape[:2]
    expected = [
        [plain(problem.read(row, b), problem.closed(problem.references[b]), problem) for row in rows]
        for b, rows in enumerate(problem.actions)
    ]
    theirs = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=absolute_tolerance(name))


def test_the_drawn_problems_hold_every_case():
    counts: Counter[str] = Counter()

    @many
    @given(problem=problems())
    def draw(problem):
        counts.update(cases(problem))

    draw()
    assert not {case: count for case, count in counts.items() if count < 3}


@few
@given(problem=problems())
def test_an_edit_of_one_sentence_leaves_the_scores_of_all_others(problem):
    """Whatever memory the kernels reuse: one by one, last first, edits are worth what they are together."""
    edits = problem.edits
    for name, (make, _) in REWARDS.items():
        bound = problem.bind(make(problem))
        together = bound.score_edits(problem.actions, edits)
        for m in reversed(range(min(4, edits.position.shape[2]))):
            pick = slice(m, m + 1)
            one = Edits(
                position=edits.position[..., pick],
                words=edits.words[..., pick, :],
                width=edits.width[..., pick],
                mask=edits.mask[..., pick],
            )
            torch.testing.assert_close(
                bound.score_edits(problem.actions, one),
                together[..., pick],
                rtol=1e-9,
                atol=absolute_tolerance(name),
            )


def test_the_plain_sums_of_rouge_l_and_coco_bleu_are_those_of_pycocoevalcap():
    hypotheses, references = random_batch(17, 200, 6)
    pairs = list(zip(hypotheses, references, strict=True))
    candidates = {index: [text(hypothesis)] for index, (hypothesis, _) in enumerate(pairs)}
    targets = {index: [text(reference) for reference in group] for index, (_, group) in enumerate(pairs)}
    rouge_of_coco = Rouge().compute_score(targets, candidates)[1].tolist()
    assert [rouge_l(*pair) for pair in pairs] == pytest.approx(rouge_of_coco, abs=1e-12)
    assert [rouge_l(*pair, beta=1.0) for pair in pairs] != pytest.approx(rouge_of_coco, abs=1e-3)
    for order, bleu_of_coco in enumerate(Bleu(4).compute_score(targets, candidates, verbose=0)[1], start=1):
        assert [coco_bleu(*pair, order) for pair in pairs] == pytest.approx(bleu_of_coco, rel=1e-9, abs=0)
        smoothed = [sacrebleu_bleu(*pair, order) for pair in pairs]
        assert order == 1 or smoothed != pytest.approx(bleu_of_coco, abs=1e-3)
