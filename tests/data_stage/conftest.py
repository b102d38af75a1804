"""One tiny tokenizer for all tests of this room, trained on sentences written here."""

import pytest
from transformers import PreTrainedTokenizerFast

from hf_cmal.data.tokenizer import train_tokenizer

SENTENCES = [
    "a red square is left of a blue circle",
    "a blue circle is above a green triangle",
    "ein rotes Quadrat ist links von einem blauen Kreis",
    "ein blauer Kreis ist über einem grünen Dreieck",
]


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    # Large enough that every word of SENTENCES is one id: lengths in the tests count words.
    return train_tokenizer(SENTENCES * 2, vocab_size=600, model_max_length=32)
