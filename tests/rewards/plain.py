"""What the kernels are compared with: public libraries, on random sentences."""

import random

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


def nltk_gleu(hypothesis: list[int], references: list[list[int]]) -> float:
    return sentence_gleu(references, hypothesis)


def sacrebleu_bleu(hypothesis: list[int], references: list[list[int]]) -> float:
    bleu = BLEU(tokenize="none", effective_order=True, smooth_method="exp")
    return bleu.sentence_score(text(hypothesis), [text(reference) for reference in references]).score / 100


def pycocoevalcap_cider(hypothesis: list[int], references: list[list[int]], documents) -> float:
    """CIDEr-D with the document frequencies of `documents` (per image a list of references)."""
    scorer = CiderScorer()
    for image in documents:
        scorer += (None, [text(reference) for reference in image])
    scorer.compute_doc_freq()
    # compute_cider takes the number of images from the sentences it scores: repeating one keeps the number.
    scorer.ctest = [cook_test(text(hypothesis))] * len(documents)
    scorer.crefs = [cook_refs([text(reference) for reference in references])] * len(documents)
    return float(scorer.compute_cider()[0])
