"""Texts to ids: eos and cutting rules, what is warned about, what is an error."""

import warnings

import numpy as np
import pytest
from datasets import Array2D, Dataset, Features, List, Value, concatenate_datasets
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_cmal.data.encoding import (
    cut_source,
    encode_captions,
    encode_translation,
    make_labels,
    one_row_per_reference,
)

EOS = 0
LIMITS = {"max_source_length": 16, "max_target_length": 16}


def pairs(sources, references, **columns) -> Dataset:
    features = Features(
        {"source": Value("string"), "references": List(Value("string"))}
        | {name: Value("string") for name in columns}
    )
    return Dataset.from_dict({"source": sources, "references": references, **columns}, features=features)


def ids_of(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.fixture(autouse=True)
def no_unexpected_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([7, 8], ([7, 8, EOS], False)),
        ([7, 8, 9], ([7, 8, 9, EOS], False)),
        ([6, 7, 8, 9], ([6, 7, 8, EOS], True)),
    ],
)
def test_a_source_is_cut_before_its_eos(ids, expected):
    assert cut_source(ids, eos_token_id=EOS, max_length=4) == expected


@pytest.mark.parametrize(
    ("num_ids", "label_eos", "expected"),
    [
        # With eos and 4 places: three ids and the eos fit; of more the first four are kept, without eos.
        (3, True, ([1, 2, 3, EOS], False)),
        (4, True, ([1, 2, 3, 4], True)),
        (5, True, ([1, 2, 3, 4], True)),
        # Without eos four ids fit.
        (4, False, ([1, 2, 3, 4], False)),
        (5, False, ([1, 2, 3, 4], True)),
    ],
)
def test_a_target_that_does_not_fit_has_no_eos_label(num_ids, label_eos, expected):
    ids = list(range(1, num_ids + 1))
    assert make_labels(ids, eos_token_id=EOS, label_eos=label_eos, max_length=4) == expected


def test_pairs_are_encoded_beside_their_texts(tokenizer):
    dataset = pairs(["a red square"], [["ein rotes Quadrat", "ein Quadrat"]], image_id=["x"])
    row = encode_translation(dataset, tokenizer, **LIMITS, label_eos=False)[0]
    first, second = ids_of(tokenizer, "ein rotes Quadrat"), ids_of(tokenizer, "ein Quadrat")
    assert row == {
        "source": "a red square",
        "references": ["ein rotes Quadrat", "ein Quadrat"],
        "image_id": "x",
        "input_ids": [*ids_of(tokenizer, "a red square"), EOS],
        "labels": first,
        "reference_ids": [first, second],
    }


def test_only_labels_get_the_eos_of_a_teacher(tokenizer):
    dataset = pairs(["a circle"], [["ein Kreis"]])
    row = encode_translation(dataset, tokenizer, **LIMITS, label_eos=True)[0]
    assert row["labels"] == [*ids_of(tokenizer, "ein Kreis"), EOS]
    assert row["reference_ids"] == [ids_of(tokenizer, "ein Kreis")]


def test_the_target_column_is_learned_and_the_references_stay_real(tokenizer):
    dataset = pairs(["a circle", "a square"], [["ein Kreis"], ["ein Quadrat"]], target=["blauer Kreis", None])
    encoded = encode_translation(dataset, tokenizer, **LIMITS, label_eos=False)
    assert encoded["labels"] == [ids_of(tokenizer, "blauer Kreis"), ids_of(tokenizer, "ein Quadrat")]
    assert encoded["reference_ids"] == [[ids_of(tokenizer, "ein Kreis")], [ids_of(tokenizer, "ein Quadrat")]]


def test_a_very_long_source_is_cut_with_one_counted_warning(tokenizer):
    dataset = pairs(["a circle", "red " * 50_000, "blue " * 40], [["ein Kreis"]] * 3)
    with pytest.warns(
        UserWarning, match=r"2 sources are longer than max_source_length=16 .*rows: 1, 2"
    ) as caught:
        encoded = encode_translation(dataset, tokenizer, **LIMITS, label_eos=False)
    assert len(caught) == 1
    assert [len(ids) for ids in encoded["input_ids"]] == [3, 16, 16]
    assert all(ids[-1] == EOS for ids in encoded["input_ids"])
    assert encoded[1]["source"] == "red " * 50_000


def test_a_reference_longer_than_the_maximum_is_cut_without_eos_and_counted(tokenizer):
    long = "ein rotes Quadrat ist links"
    dataset = pairs(["a circle", "a square"], [["ein Kreis"], [long, "ein Kreis", long]])
    with pytest.warns(UserWarning) as caught:
        encoded = encode_translation(
            dataset, tokenizer, max_source_length=16, max_target_length=3, label_eos=True
        )
    messages = [str(entry.message) for entry in caught]
    assert len(messages) == 2
    assert "1 targets do not fit into 3 positions" in messages[0] and "rows: 1)" in messages[0]
    assert "2 references are longer than max_target_length=3" in messages[1] and "rows: 1)" in messages[1]
    assert encoded["labels"] == [
        [*ids_of(tokenizer, "ein Kreis"), EOS],
        ids_of(tokenizer, "ein rotes Quadrat"),
    ]
    assert [len(ids) for ids in encoded[1]["reference_ids"]] == [3, 2, 3]


def test_with_a_fixed_number_of_agents_a_long_caption_is_cut_without_eos_label(tokenizer):
    # Three agents: two words and the eos fit; three words fill the agents; of four words three are kept.
    texts = ["a circle", "a blue circle", "a blue circle is"]
    dataset = pairs(["x"] * 3, [[text] for text in texts])
    with pytest.warns(UserWarning, match=r"2 targets do not fit into 3 positions .*rows: 1, 2"):
        encoded = encode_translation(dataset, tokenizer, **LIMITS, label_eos=True, num_agents=3)
    words = ids_of(tokenizer, texts[2])
    assert encoded["labels"] == [[words[0], words[2], EOS], words[:3], words[:3]]
    assert encoded[2]["reference_ids"] == [words]


def test_fixed_agents_without_eos_labels_are_an_error(tokenizer):
    with pytest.raises(ValueError, match="num_agents=3 needs label_eos=True"):
        encode_translation(pairs(["a"], [["b"]]), tokenizer, **LIMITS, label_eos=False, num_agents=3)


@pytest.mark.parametrize("empty", ["", "  \t", None])
def test_an_empty_source_is_an_error_naming_the_row(tokenizer, empty):
    with pytest.raises(ValueError, match="Row 1 has an empty source"):
        encode_translation(pairs(["a", empty], [["b"]] * 2), tokenizer, **LIMITS, label_eos=False)


def test_an_example_without_reference_is_an_error_unless_allowed(tokenizer):
    dataset = pairs(["a circle", "a square"], [["ein Kreis"], []])
    with pytest.raises(ValueError, match="Row 1 has neither a target nor a reference"):
        encode_translation(dataset, tokenizer, **LIMITS, label_eos=True)
    encoded = encode_translation(dataset, tokenizer, **LIMITS, label_eos=True, allow_unlabeled=True)
    assert encoded["labels"] == [[*ids_of(tokenizer, "ein Kreis"), EOS], []]
    assert encoded["reference_ids"] == [[ids_of(tokenizer, "ein Kreis")], []]


def test_an_unlabeled_example_with_a_pseudo_target_is_learned(tokenizer):
    dataset = pairs(["a circle"], [[]], target=["ein Kreis"])
    encoded = encode_translation(dataset, tokenizer, **LIMITS, label_eos=False)
    assert encoded["labels"] == [ids_of(tokenizer, "ein Kreis")]


def test_an_empty_target_is_an_error_naming_the_row_where_it_leaves_no_label(tokenizer):
    dataset = pairs(["a circle"], [["ein Kreis"]], target=[""])
    with pytest.raises(ValueError, match="Row 0 has an empty target"):
        encode_translation(dataset, tokenizer, **LIMITS, label_eos=False)
    assert encode_translation(dataset, tokenizer, **LIMITS, label_eos=True)["labels"] == [[EOS]]


def test_unknown_characters_survive_the_round_trip_without_warning(tokenizer):
    text = "日本 \U0001f642"
    row = encode_translation(pairs([text], [[text]]), tokenizer, **LIMITS, label_eos=False)[0]
    assert tokenizer.decode(row["labels"]) == text


def test_unknown_tokens_of_a_word_level_tokenizer_are_counted_in_a_warning():
    backend = Tokenizer(models.WordLevel({"</s>": 0, "<unk>": 1, "known": 2}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    words = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
    dataset = pairs(["known", "known new"], [["known"], ["new new"]])
    with pytest.warns(UserWarning, match=r"3 unknown tokens: .*<unk>.*rows: 1"):
        encoded = encode_translation(dataset, words, **LIMITS, label_eos=False)
    assert encoded["labels"] == [[2], [1, 1]]


def test_a_tokenizer_with_two_languages_reads_targets_with_its_target_model():
    # OPUS-MT tokenizers read a text by the model of the source language, text_target by that of the target.
    class TwoLanguages:  # each language has one word here
        eos_token_id, unk_token_id, unk_token = EOS, 1, "<unk>"

        def __call__(self, text=None, text_target=None, **options):
            assert options["add_special_tokens"] is False
            return {"input_ids": [[10] for _ in text or []] + [[20] for _ in text_target or []]}

    row = encode_translation(pairs(["a"], [["b"]]), TwoLanguages(), **LIMITS, label_eos=False)[0]
    assert (row["input_ids"], row["labels"], row["reference_ids"]) == ([10, EOS], [20], [[20]])


def test_encoding_is_deterministic_and_follows_a_selection(tokenizer):
    dataset = pairs(["a circle", "a square", "a triangle"], [["ein Kreis"], ["ein Quadrat"], ["ein Dreieck"]])
    options = {**LIMITS, "label_eos": False}
    whole = encode_translation(dataset, tokenizer, **options)
    assert whole.to_dict() == encode_translation(dataset, tokenizer, **options).to_dict()
    some = encode_translation(dataset.select([2, 0]), tokenizer, **options)
    assert some.to_list() == [whole[2], whole[0]]


def test_encoding_again_replaces_the_ids(tokenizer):
    student = encode_translation(pairs(["a"], [["a circle"]]), tokenizer, **LIMITS, label_eos=False)
    teacher = encode_translation(student, tokenizer, **LIMITS, label_eos=True)
    assert teacher.column_names == student.column_names
    assert teacher[0]["labels"] == [*student[0]["labels"], EOS]


def test_labeled_and_unlabeled_rows_have_the_same_schema(tokenizer):
    labeled = encode_translation(pairs(["a"], [["a circle"]]), tokenizer, **LIMITS, label_eos=False)
    unlabeled = encode_translation(
        pairs(["a"], [[]]), tokenizer, **LIMITS, label_eos=False, allow_unlabeled=True
    )
    assert concatenate_datasets([labeled, unlabeled])["labels"] == [labeled[0]["labels"], []]


def test_limits_without_room_and_missing_columns_are_errors(tokenizer):
    dataset = pairs(["a"], [["b"]])
    with pytest.raises(ValueError, match="max_source_length=1 leaves no room"):
        encode_translation(dataset, tokenizer, max_source_length=1, max_target_length=4, label_eos=False)
    with pytest.raises(ValueError, match="max_target_length=0"):
        encode_translation(dataset, tokenizer, max_source_length=4, max_target_length=0, label_eos=False)
    with pytest.raises(ValueError, match=r"no column \['source'\]; it has \['references'\]"):
        encode_translation(dataset.remove_columns("source"), tokenizer, **LIMITS, label_eos=False)


@pytest.mark.parametrize("feature", [List(List(Value("float32"))), Array2D((2, 3), "float32")])
def test_captions_are_encoded_beside_their_features(tokenizer, feature):
    features = Features({"features": feature, "references": List(Value("string"))})
    vectors = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    dataset = Dataset.from_dict({"features": [vectors], "references": [["a circle"]]}, features=features)
    row = encode_captions(dataset, tokenizer, max_target_length=16, num_agents=4)[0]
    assert np.asarray(row["features"]).tolist() == vectors
    assert row["labels"] == [*ids_of(tokenizer, "a circle"), EOS]
    assert row["reference_ids"] == [ids_of(tokenizer, "a circle")]


def test_a_picture_without_feature_vectors_is_an_error_naming_the_row(tokenizer):
    features = Features({"features": List(List(Value("float32"))), "references": List(Value("string"))})
    rows = {"features": [[[1.0]], []], "references": [["a circle"], ["a square"]]}
    with pytest.raises(ValueError, match="Row 1 has no feature vectors"):
        encode_captions(Dataset.from_dict(rows, features=features), tokenizer, max_target_length=16)


def test_one_row_per_reference_repeats_the_row_and_keeps_all_references(tokenizer):
    dataset = pairs(["x", "y"], [["a circle", "a square"], ["a triangle"]])
    expanded = one_row_per_reference(dataset)
    assert expanded["target"] == ["a circle", "a square", "a triangle"]
    assert expanded["source"] == ["x", "x", "y"]
    assert expanded["references"] == [["a circle", "a square"]] * 2 + [["a triangle"]]
    encoded = encode_translation(expanded, tokenizer, **LIMITS, label_eos=False)
    assert encoded[1]["labels"] == ids_of(tokenizer, "a square")
    with pytest.raises(ValueError, match="Row 1 has no reference"):
        one_row_per_reference(pairs(["x", "y"], [["a"], []]))
