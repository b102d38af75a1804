"""What the kernels are compared with: public libraries and slow transcriptions, on random sentences."""

import math
import random
from collections import Counter
from itertools import pairwise

import torch
from nltk.translate.gleu_score import sentence_gleu
from pycocoevalcap.cider.cider_scorer import CiderScorer, cook_refs, cook_test
from sacrebleu.metrics.bleu import BLEU

# Word ids that collide as soon as an n-gram's key keeps fewer bits than it must.
WIDE_WORDS = (1, 2, 3, 2**8 + 1, 2**15, 2**16, 2**16 + 1, 2**24 + 2, 2**30, 2**31 - 2, 2**31 - 1)
NARROW_WORDS = (1, 2, 3, 4, 5)


def random_sentences(
    rng: random.Random, count: int, words=NARROW_WORDS, longest: int = 12
) -> list[list[int]]:
    return [[rng.choice(words) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def random_batch(seed: int, num_inputs: int, most_references: int, words=NARROW_WORDS, longest: int = 12):
    """Hypotheses [B] and ragged references [B]: lists of words without eos."""
    rng = random.Random(seed)
    hypotheses = random_sentences(rng, num_inputs, words, longest)
    references = [
        random_sentences(rng, rng.randint(1, most_references), words, longest) for _ in range(num_inputs)
    ]
    return hypotheses, references


def pad(sentences: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Sentences -> actions [B, 1, N], agent mask [B, N]; behind a sentence stands a word not to be read."""
    longest = max(1, *map(len, sentences))
    actions = torch.full((len(sentences), 1, longest), 1)
    mask = torch.zeros(len(sentences), longest, dtype=torch.bool)
    for b, sentence in enumerate(sentences):
        actions[b, 0, : len(sentence)] = torch.tensor(sentence, dtype=torch.long)
        mask[b, : len(sentence)] = True
    return actions, mask


def scores(reward, hypotheses: list[list[int]], references: list[list[list[int]]]) -> list[float]:
    """Each hypothesis' reward, without eos."""
    actions, mask = pad(hypotheses)
    return reward.bind(references, mask, eos_token_id=None).score(actions)[:, 0].tolist()


def text(sentence: list[int]) -> str:
    return " ".join(f"w{word}" for word in sentence)


def read(row: list[int], agents: list[bool], eos: int | None, count_eos: bool) -> list[int]:
    """The sentence of one joint action: what its agents say, up to the first eos, which counts or not."""
    said = [max(word, -1) for word, agent in zip(row, agents, strict=True) if agent]
    return close(said, eos, count_eos) if eos in said else said


def close(sentence: list[int], eos: int | None, count_eos: bool) -> list[int]:
    """A reference as it is scored: cut before its first eos, then ended by one where eos counts."""
    words = sentence[: sentence.index(eos)] if eos in sentence else sentence
    return [*words, eos] if count_eos and eos is not None else words


def nltk_gleu(hypothesis: list[int], references: list[list[int]], max_order: int = 4) -> float:
    return sentence_gleu(references, hypothesis, max_len=max_order)


def sacrebleu_bleu(hypothesis: list[int], references: list[list[int]], max_order: int = 4) -> float:
    bleu = BLEU(tokenize="none", effective_order=True, smooth_method="exp", max_ngram_order=max_order)
    return bleu.sentence_score(text(hypothesis), [text(reference) for reference in references]).score / 100


def pycocoevalcap_cider(
    hypothesis: list[int], references: list[list[int]], documents, sigma: float = 6.0
) -> float:
    """CIDEr-D with the document frequencies of `documents` (per image a list of references)."""
    scorer = CiderScorer(sigma=sigma)
    for image in documents:
        scorer += (None, [text(reference) for reference in image])
    scorer.compute_doc_freq()
    # compute_cider takes the number of images from the references it holds, and scores as many sentences as
    # there are: repeating the references keeps the number.
    scorer.ctest = [cook_test(text(hypothesis))]
    scorer.crefs = [cook_refs([text(reference) for reference in references])] * len(documents)
    return float(scorer.compute_cider()[0])


def coco_bleu(hypothesis: list[int], references: list[list[int]], max_order: int = 4) -> float:
    """Papineni et al. (2002) of one sentence, with the constants by which COCO's scorer divides by nothing.

    Clipped precisions of all orders, also of those that are longer than the sentence; the brevity penalty
    exp(1 - r / c) with the closest reference length r, the shorter of two.
    """
    length = len(hypothesis)
    product = 1.0
    for order in range(1, max_order + 1):
        said = Counter(ngrams(hypothesis, order))
        most = Counter()  # of each n-gram, the largest count in a single reference
        for reference in references:
            most |= Counter(ngrams(reference, order))
        correct = sum(min(count, most[ngram]) for ngram, count in said.items())
        product *= (correct + 1e-15) / (said.total() + 1e-9)
    closest = min(map(len, references), key=lambda other: (abs(other - length), other))
    ratio = (length + 1e-15) / (closest + 1e-9)
    return product ** (1 / max_order) * math.exp(min(0.0, 1 - 1 / ratio))


def ngrams(sentence: list[int], order: int) -> list[tuple[int, ...]]:
    return [tuple(sentence[i : i + order]) for i in range(len(sentence) - order + 1)]


def rouge_l(hypothesis: list[int], references: list[list[int]], beta: float = 1.2) -> float:
    """Lin (2004), F = (1 + beta^2) R P / (R + beta^2 P), where COCO's scorer takes P = LCS / m and
    R = LCS / n each from its own best reference.
    """
    if not hypothesis:
        return 0.0
    common = [longest_common_subsequence(hypothesis, reference) for reference in references]
    precision = max(common) / len(hypothesis)
    recall = max(lcs / len(reference) for lcs, reference in zip(common, references, strict=True))
    return (1 + beta**2) * recall * precision / (recall + beta**2 * precision) if precision else 0.0


def longest_common_subsequence(first: list[int], second: list[int]) -> int:
    """L(i, j) = L(i - 1, j - 1) + 1 where the words are equal, else max(L(i - 1, j), L(i, j - 1))."""
    before = [0] * (len(second) + 1)
    for word in first:
        now = [0]
        for j, other in enumerate(second):
            now.append(before[j] + 1 if word == other else max(before[j + 1], now[j]))
        before = now
    return before[-1]


def repetition(hypothesis: list[int]) -> float:
    """Minus the words that repeat the one before, over all words; two words below 0 are never the same."""
    repeats = sum(a == b >= 0 for a, b in pairwise(hypothesis))
    return -repeats / max(1, len(hypothesis))
