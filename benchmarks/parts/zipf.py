"""Made-up sentences whose words are as unevenly frequent as real ones: word r has a share of about 1 / r."""

import numpy as np
from numpy.typing import NDArray


def zipf_shares(num_words: int) -> NDArray[np.float64]:
    """Shares of the words 0..num_words-1 by Zipf's law, summing to 1."""
    shares = 1.0 / np.arange(1, num_words + 1)
    return np.asarray(shares / shares.sum())


def zipf_sentences(
    generator: np.random.Generator, *, num_sentences: int, num_words: int, lengths: tuple[int, int]
) -> list[list[int]]:
    """Sentences of independent words.

    Args:
        num_words: the vocabulary is 0..num_words-1, the frequent words first.
        lengths: the shortest and the longest sentence, all lengths between equally often.
    """
    sizes = generator.integers(lengths[0], lengths[1] + 1, num_sentences)
    words = generator.choice(num_words, size=int(sizes.sum()), p=zipf_shares(num_words))
    return [part.tolist() for part in np.split(words, np.cumsum(sizes)[:-1])]
