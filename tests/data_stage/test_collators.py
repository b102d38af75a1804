"""Padded batches of teachers and students, and the columns that pass through."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from torch.utils.data import DataLoader
from transformers import MarianConfig, MarianMTModel, Trainer, TrainingArguments

from hf_cmal.data.collators import StudentCollator, TeacherCollator, pad_features, pad_ids, shift_right
from hf_cmal.data.encoding import encode_translation

PAD = 9
ROWS = [
    {
        "input_ids": [3, 4, 0],
        "labels": [5],
        "reference_ids": [[6, 7], [8]],
        "references": ["f g", "h"],
        "source": "c d",
        "image_id": "one",
    },
    {
        "input_ids": [3, 0],
        "labels": [6, 7, 8],
        "reference_ids": [[5]],
        "references": ["e"],
        "source": "c",
        "image_id": "two",
    },
]


def test_ids_are_padded_on_the_right_and_the_mask_is_true_on_ids():
    ids, mask = pad_ids([[1, 2, 3], [], [4]], pad_value=PAD)
    assert ids.tolist() == [[1, 2, 3], [PAD, PAD, PAD], [4, PAD, PAD]]
    assert mask.tolist() == [[True, True, True], [False, False, False], [True, False, False]]
    assert ids.dtype == torch.long and mask.dtype == torch.bool


def test_a_pad_id_inside_a_sequence_is_real():
    assert pad_ids([[PAD, 1]], pad_value=PAD)[1].tolist() == [[True, True]]


def test_ids_are_padded_to_a_given_length_and_never_cut():
    assert pad_ids([[1]], pad_value=PAD, length=3)[0].tolist() == [[1, PAD, PAD]]
    with pytest.raises(ValueError, match="3 ids does not fit into 2 positions"):
        pad_ids([[1, 2, 3]], pad_value=PAD, length=2)


@pytest.mark.parametrize("kind", [list, np.array, lambda rows: np.array(rows, dtype=np.float64)])
def test_features_are_padded_with_zeros_and_masked(kind):
    features, mask = pad_features([kind([[1.0, 2.0]]), kind([[3.0, 4.0], [5.0, 6.0]])])
    assert features.tolist() == [[[1, 2], [0, 0]], [[3, 4], [5, 6]]]
    assert mask.tolist() == [[True, False], [True, True]]
    assert features.dtype == torch.float32 and mask.dtype == torch.bool


@pytest.mark.parametrize("bad", [[[1.0]], [1.0, 2.0], np.zeros((0, 2))])
def test_features_of_another_shape_are_an_error_naming_row_and_shape(bad):
    with pytest.raises(ValueError, match=r"Features of row 1 have shape"):
        pad_features([[[1.0, 2.0]], bad])


def test_decoder_inputs_start_with_the_start_token_and_drop_the_last_label():
    labels = torch.tensor([[5, 6, 0], [7, 0, -100]])
    shifted = shift_right(labels, decoder_start_token_id=2, pad_token_id=PAD)
    assert shifted.tolist() == [[2, 5, 6], [2, 7, 0]]
    # A label that is ignored in the middle becomes pad, never -100, which is no id.
    assert shift_right(
        torch.tensor([[5, -100, -100]]), decoder_start_token_id=2, pad_token_id=PAD
    ).tolist() == [[2, 5, PAD]]


def test_teacher_batch_holds_inputs_labels_and_shifted_labels():
    batch = TeacherCollator(pad_token_id=PAD, decoder_start_token_id=2, keep_columns=())(ROWS)
    assert {name: value.tolist() for name, value in batch.items()} == {
        "input_ids": [[3, 4, 0], [3, 0, PAD]],
        "attention_mask": [[True, True, True], [True, True, False]],
        "labels": [[5, -100, -100], [6, 7, 8]],
        "decoder_input_ids": [[2, 5, PAD], [2, 6, 7]],
    }


def test_student_batch_counts_the_labels_as_target_lengths():
    batch = StudentCollator(pad_token_id=PAD)(ROWS)
    assert batch["labels"].tolist() == [[5, -100, -100], [6, 7, 8]]
    assert batch["target_lengths"].tolist() == [1, 3]
    assert "decoder_input_ids" not in batch


def test_known_length_is_that_of_the_first_real_reference_in_cmal():
    batch = StudentCollator(pad_token_id=PAD, length_from="first_reference")(ROWS)
    assert batch["labels"].tolist() == [[6, 7], [5, -100]]
    assert batch["target_lengths"].tolist() == [2, 1]


def test_fixed_mode_pads_labels_to_all_agents_and_has_no_target_lengths():
    rows = [{**ROWS[0], "labels": [5, 0]}, {**ROWS[1], "labels": [6, 7, 8, 5]}]
    batch = StudentCollator(pad_token_id=PAD, num_agents=4)(rows)
    # The eos is supervised, what follows it is ignored.
    assert batch["labels"].tolist() == [[5, 0, -100, -100], [6, 7, 8, 5]]
    assert "target_lengths" not in batch
    with pytest.raises(ValueError, match="4 ids does not fit into 3 positions"):
        StudentCollator(pad_token_id=PAD, num_agents=3)(rows)


def test_student_options_name_their_legal_values():
    with pytest.raises(ValueError, match="'references' is unknown. Use 'labels' or 'first_reference'"):
        StudentCollator(pad_token_id=PAD, length_from="references")
    with pytest.raises(ValueError, match="num_agents=4 fixes the length"):
        StudentCollator(pad_token_id=PAD, num_agents=4, length_from="first_reference")


COLLATORS = [
    TeacherCollator(pad_token_id=PAD, decoder_start_token_id=2),
    StudentCollator(pad_token_id=PAD),
    StudentCollator(pad_token_id=PAD, num_agents=4),
]


@pytest.mark.parametrize("collator", COLLATORS)
def test_references_and_sources_pass_through_as_ragged_lists(collator):
    batch = collator(ROWS)
    assert batch["reference_ids"] == [[[6, 7], [8]], [[5]]]
    assert batch["references"] == [["f g", "h"], ["e"]]
    assert (batch["source"], batch["image_id"]) == (["c d", "c"], ["one", "two"])


def test_only_the_columns_to_keep_pass_through():
    batch = StudentCollator(pad_token_id=PAD, keep_columns=("references", "absent"))(ROWS)
    assert set(batch) == {"input_ids", "attention_mask", "labels", "target_lengths", "references"}


def test_features_take_the_place_of_input_ids():
    rows = [{"features": [[1.0, 2.0]] * n, "labels": [5], "image_id": str(n)} for n in (1, 2)]
    batch = StudentCollator(pad_token_id=PAD, num_agents=2)(rows)
    assert set(batch) == {"features", "feature_mask", "labels", "image_id"}
    assert batch["features"].shape == (2, 2, 2) and batch["feature_mask"].sum() == 3


@pytest.mark.parametrize("collator", COLLATORS)
def test_a_row_without_labels_is_an_error_unless_labels_are_off(collator):
    rows = [ROWS[0], {**ROWS[1], "labels": []}]
    with pytest.raises(ValueError, match="no labels.*'two'.*with_labels=False"):
        collator(rows)


@pytest.mark.parametrize("kind", [TeacherCollator, StudentCollator])
def test_inputs_alone_are_collated_for_generation(kind):
    start = {"decoder_start_token_id": 2} if kind is TeacherCollator else {}
    batch = kind(pad_token_id=PAD, with_labels=False, keep_columns=(), **start)([{"input_ids": [3, 0]}])
    assert set(batch) == {"input_ids", "attention_mask"}


@pytest.mark.parametrize("references", [[], [[]]])
def test_a_row_without_reference_is_an_error_in_cmal(references):
    rows = [ROWS[0], {**ROWS[1], "reference_ids": references}]
    with pytest.raises(ValueError, match="no reference.*'two'"):
        StudentCollator(pad_token_id=PAD, length_from="first_reference")(rows)


def test_a_data_loader_reads_encoded_rows(tokenizer):
    dataset = Dataset.from_dict({"source": ["a circle", "a red square"], "references": [["b"], ["c d"]]})
    encoded = encode_translation(
        dataset, tokenizer, max_source_length=8, max_target_length=8, label_eos=False
    )
    collator = StudentCollator(pad_token_id=tokenizer.pad_token_id)
    (batch,) = DataLoader(encoded, batch_size=2, collate_fn=collator)
    assert batch["attention_mask"].sum(dim=1).tolist() == [3, 4]
    assert batch["references"] == [["b"], ["c d"]]


def tiny_marian() -> MarianMTModel:
    torch.manual_seed(0)
    sizes = {"d_model": 8, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "max_position_embeddings": 16}
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    ids = {"vocab_size": 10, "pad_token_id": PAD, "decoder_start_token_id": PAD, "eos_token_id": 0}
    return MarianMTModel(MarianConfig(**sizes, **layers, **heads, **ids, forced_eos_token_id=0)).eval()


def test_marian_gives_the_same_logits_padded_and_alone_and_shifts_labels_alike():
    model = tiny_marian()
    collator = TeacherCollator(pad_token_id=PAD, decoder_start_token_id=PAD, keep_columns=())
    batch = collator(ROWS)
    padded = model(**batch)
    alone = model(**collator(ROWS[1:]))
    torch.testing.assert_close(padded.logits[1], alone.logits[0])
    own_shift = model(**{name: value for name, value in batch.items() if name != "decoder_input_ids"})
    torch.testing.assert_close(own_shift.logits, padded.logits)
    unmasked = model(**{**batch, "attention_mask": torch.ones_like(batch["attention_mask"])})
    assert not torch.allclose(unmasked.logits[1], alone.logits[0])


def test_references_survive_the_column_dropping_of_the_trainer(tmp_path):
    seen = []

    class Watching(Trainer):
        def compute_loss(self, model, inputs, **kwargs):
            seen.append({name: inputs.pop(name) for name in ("reference_ids", "references", "source")})
            inputs.pop("image_id")
            return super().compute_loss(model, inputs, **kwargs)

    options = {"remove_unused_columns": False, "max_steps": 1, "per_device_train_batch_size": 2}
    arguments = TrainingArguments(tmp_path, **options, use_cpu=True, report_to=[], save_strategy="no")
    collator = TeacherCollator(pad_token_id=PAD, decoder_start_token_id=PAD)
    Watching(tiny_marian(), arguments, train_dataset=Dataset.from_list(ROWS), data_collator=collator).train()
    (columns,) = seen
    assert sorted(columns["source"]) == ["c", "c d"]
    assert sorted(columns["references"]) == [["e"], ["f g", "h"]]
    assert sorted(columns["reference_ids"]) == [[[5]], [[6, 7], [8]]]
