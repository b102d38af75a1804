"""The translation pipeline: what goes in, what comes out, and what it refuses."""

import warnings

import pytest
import torch
from datasets import Dataset as TableDataset
from torch.utils.data import Dataset
from transformers import MarianConfig, MarianMTModel, pipeline

import hf_cmal
from tests.models.tiny_text import EOS, PAD, VOCABULARY, tiny_tokenizer

TEXTS = ["a man", "a dog on a ladder", "mann"]


def tiny_translator() -> hf_cmal.NagForTranslation:
    torch.manual_seed(0)
    config = hf_cmal.NagConfig(
        vocab_size=len(VOCABULARY),
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=32,
        init_std=1.0,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=None,
        max_target_length=8,
        max_length_offset=3,
    )
    return hf_cmal.NagForTranslation(config).eval()


@pytest.fixture(scope="module")
def translate() -> hf_cmal.NagTranslationPipeline:
    return pipeline("nag-translation", model=tiny_translator(), tokenizer=tiny_tokenizer(), device="cpu")


def by_hand(pipe: hf_cmal.NagTranslationPipeline, text: str, **options: bool) -> str:
    """Tokenize, generate, decode, one text at a time: what the pipeline has to amount to."""
    encoded = pipe.tokenizer(text, return_tensors="pt")
    tokens = pipe.model.generate(
        input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"], **options
    )
    return pipe.tokenizer.decode(tokens[0], skip_special_tokens=True)


def test_the_task_name_gives_our_pipeline(translate):
    assert type(translate) is hf_cmal.NagTranslationPipeline


def test_a_string_gives_a_list_of_one_record(translate):
    assert translate(TEXTS[1]) == [{"translation_text": by_hand(translate, TEXTS[1])}]


def test_the_texts_differ_so_that_equal_outputs_mean_something(translate):
    assert len({by_hand(translate, text) for text in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_a_batch_gives_what_single_texts_give(translate, batch_size):
    expected = [{"translation_text": by_hand(translate, text)} for text in TEXTS]
    assert translate(TEXTS, batch_size=batch_size) == expected


def test_an_empty_list_gives_an_empty_list(translate):
    assert translate([]) == []


class Texts(Dataset):
    def __len__(self) -> int:
        return len(TEXTS)

    def __getitem__(self, index: int) -> str:
        return TEXTS[index]


@pytest.mark.parametrize(
    "inputs",
    [
        lambda: Texts(),
        lambda: (text for text in TEXTS),
        lambda: TableDataset.from_dict({"source": TEXTS})["source"],
        lambda: tuple(TEXTS),
    ],
    ids=["torch dataset", "generator", "datasets column", "tuple"],
)
def test_every_kind_of_many_texts_gives_one_record_each(translate, inputs):
    expected = [{"translation_text": by_hand(translate, text)} for text in TEXTS]
    assert list(translate(inputs(), batch_size=2)) == expected


def test_a_generator_is_not_read_to_its_end_at_once(translate):
    read = []

    def endless():
        while True:
            read.append(len(read))
            yield "a man"

    results = translate(endless(), batch_size=2)
    assert next(iter(results)) == {"translation_text": by_hand(translate, "a man")}
    assert len(read) < 10


def test_options_of_generate_pass_through_from_the_call_and_from_the_constructor(translate):
    # This untrained model repeats itself, so the option has something to remove.
    text = next(
        text
        for text in TEXTS
        if by_hand(translate, text, remove_consecutive_duplicates=True) != by_hand(translate, text)
    )
    expected = [{"translation_text": by_hand(translate, text, remove_consecutive_duplicates=True)}]
    assert translate(text, remove_consecutive_duplicates=True) == expected
    configured = pipeline(
        "nag-translation",
        model=translate.model,
        tokenizer=translate.tokenizer,
        device="cpu",
        remove_consecutive_duplicates=True,
    )
    assert configured(text) == expected
    assert translate(text) != expected


@pytest.mark.parametrize("empty", ["", "  \n"])
def test_an_empty_text_is_refused_by_its_index(translate, empty):
    with pytest.raises(ValueError, match="Input 1 is empty"):
        translate(["a man", empty])
    with pytest.raises(ValueError, match="Input 0 is empty"):
        translate(empty)
    with pytest.raises(ValueError, match="Input 1 is empty"):
        list(translate(text for text in ["a man", empty]))


def test_an_input_that_is_no_text_is_refused_by_its_index(translate):
    with pytest.raises(TypeError, match="Input 1 is a dict, not a string"):
        translate(["a man", {"source": "a dog"}])


def test_a_long_text_is_cut_with_a_warning_that_names_both_lengths(translate):
    long = " ".join(["dog"] * 40)
    # 40 words and </s> against model_max_length 12, of which </s> keeps one place.
    with pytest.warns(UserWarning, match="41 tokens cut to the 12"):
        [result] = translate(long)
    assert result == {"translation_text": by_hand(translate, " ".join(["dog"] * 11))}
    with pytest.warns(UserWarning, match="41 tokens cut to the 12"):
        [tokens] = translate.preprocess(long)["input_ids"].tolist()
    assert tokens == [VOCABULARY.index("dog")] * 11 + [EOS]


def test_a_text_of_just_the_limit_is_left_whole(translate):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoded = translate.preprocess(" ".join(["dog"] * 11))
    assert encoded["input_ids"].shape == (1, 12)


def test_unknown_words_are_translated_as_unknown(translate):
    assert translate("zebra") == [{"translation_text": by_hand(translate, "<unk>")}]


def test_several_sequences_per_text_are_refused(translate):
    with pytest.raises(ValueError, match="num_return_sequences=2"):
        translate("a man", num_return_sequences=2)


def test_a_marian_teacher_runs_through_the_same_pipeline():
    torch.manual_seed(0)
    teacher = MarianMTModel(
        MarianConfig(
            vocab_size=len(VOCABULARY),
            d_model=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            max_position_embeddings=32,
            init_std=1.0,
            pad_token_id=PAD,
            eos_token_id=EOS,
            decoder_start_token_id=PAD,
            forced_eos_token_id=None,
        )
    ).eval()
    pipe = pipeline("nag-translation", model=teacher, tokenizer=tiny_tokenizer(), device="cpu")
    results = pipe(TEXTS, batch_size=2, num_beams=2, max_new_tokens=5)
    options = {"num_beams": 2, "max_new_tokens": 5}
    assert results == [{"translation_text": by_hand(pipe, text, **options)} for text in TEXTS]
