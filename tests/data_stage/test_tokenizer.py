"""The shared subword vocabulary: special ids, exact round trip, loading without the package."""

import json
import os
import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from hf_cmal.data.tokenizer import train_tokenizer
from tests.data_stage.conftest import SENTENCES

UNSEEN = "Zoë's 日本語 \U0001f642 fi\u0301n\u2028x"


def test_special_ids_are_eos_first_unk_second_pad_last(tokenizer):
    assert tokenizer.convert_ids_to_tokens([0, 1, len(tokenizer) - 1]) == ["</s>", "<unk>", "<pad>"]
    assert (tokenizer.eos_token_id, tokenizer.unk_token_id) == (0, 1)
    assert tokenizer.pad_token_id == len(tokenizer) - 1
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


@pytest.mark.parametrize("vocab_size", [259, 270, 300])
def test_vocabulary_has_the_asked_size_with_all_special_tokens(vocab_size):
    trained = train_tokenizer(SENTENCES, vocab_size=vocab_size, model_max_length=32)
    assert len(trained) == trained.vocab_size == vocab_size


def test_a_corpus_with_few_words_gives_a_smaller_vocabulary():
    # "ab" twice: the 256 bytes, three special tokens, and the merges "ab" and " ab".
    assert len(train_tokenizer(["ab", "ab"], vocab_size=10_000, model_max_length=8)) == 256 + 3 + 2


def test_vocabulary_smaller_than_the_bytes_is_an_error_that_names_the_least_size():
    with pytest.raises(ValueError, match=r"vocab_size=258.*at least 259"):
        train_tokenizer(SENTENCES, vocab_size=258, model_max_length=32)


@pytest.mark.parametrize(
    "text",
    [
        SENTENCES[0],
        UNSEEN,
        "",
        " begins with a space",
        "two  spaces\tand a tab ",
        "a space before , and after ' s",
        "</s> and <pad> and <unk>",
        "0123456789" * 50,
    ],
)
def test_decoding_gives_the_text_back_exactly(tokenizer, text):
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.decode([*ids, tokenizer.pad_token_id], skip_special_tokens=True) == text


def test_unknown_characters_are_never_unknown(tokenizer):
    assert tokenizer.unk_token_id not in tokenizer(UNSEEN)["input_ids"]


def test_special_tokens_written_in_a_text_are_ordinary_characters(tokenizer):
    special = {tokenizer.eos_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id}
    ids = tokenizer("</s> and <pad> and <unk>", add_special_tokens=False)["input_ids"]
    assert special.isdisjoint(ids)


def test_eos_is_appended_unless_special_tokens_are_off(tokenizer):
    with_eos = tokenizer("a red square")["input_ids"]
    assert tokenizer("a red square", add_special_tokens=False)["input_ids"] == with_eos[:-1]
    assert with_eos[-1] == tokenizer.eos_token_id and len(with_eos) == 4


def test_source_and_target_are_encoded_alike(tokenizer):
    as_target = tokenizer(text_target="ein roter Kreis")["input_ids"]
    assert as_target == tokenizer("ein roter Kreis")["input_ids"]


def test_a_word_has_the_same_ids_at_the_start_and_inside(tokenizer):
    one = tokenizer("circle", add_special_tokens=False)["input_ids"]
    assert tokenizer("circle blue circle", add_special_tokens=False)["input_ids"][-len(one) :] == one
    assert tokenizer("circle blue circle", add_special_tokens=False)["input_ids"][: len(one)] == one


def test_truncation_keeps_the_eos_and_honours_model_max_length(tokenizer):
    ids = tokenizer("blue " * 100, truncation=True)["input_ids"]
    assert len(ids) == tokenizer.model_max_length == 32
    assert ids[-1] == tokenizer.eos_token_id


def test_training_twice_gives_the_same_tokenizer():
    def model_of(texts: list[str]) -> dict:
        trained = train_tokenizer(texts, vocab_size=340, model_max_length=32)
        return json.loads(trained.backend_tokenizer.to_str())["model"]

    first = model_of(SENTENCES)
    assert all(model_of(SENTENCES) == first for _ in range(5))
    assert model_of(SENTENCES[:2]) != first


def test_a_saved_folder_loads_with_auto_tokenizer_without_the_package(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    text = f"a red square </s> {UNSEEN}"
    code = (
        "import sys; from transformers import AutoTokenizer;"
        f"t = AutoTokenizer.from_pretrained({str(tmp_path)!r}); ids = t({text!r})['input_ids'];"
        "assert not any(name.startswith('hf_cmal') for name in sys.modules);"
        "back = t.decode(ids, skip_special_tokens=True);"
        "print(ids, t.model_max_length, len(t), t.pad_token_id, ascii(back))"
    )
    ids = tokenizer(text)["input_ids"]
    assert _python(code) == f"{ids} 32 {len(tokenizer)} {len(tokenizer) - 1} {text!a}"
    assert AutoTokenizer.from_pretrained(tmp_path).get_vocab() == tokenizer.get_vocab()


def _python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ)
    assert result.returncode == 0, result.stderr
    return result.stdout.rstrip("\n")
