"""The captioning teacher: causal, cached, supervised at every word, and never taken for a student."""

import itertools
import json

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

import hf_cmal

EOS, PAD, VOCAB = 0, 6, 7
# Drawn so that the three pictures get three different captions of different lengths.
SEED = 55
FEATURE_SIZE = 4


def tiny_config(**changes) -> hf_cmal.NagTeacherConfig:
    options = {
        "vocab_size": VOCAB,
        "feature_size": FEATURE_SIZE,
        "d_model": 8,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 8,
        "decoder_ffn_dim": 8,
        "max_position_embeddings": 16,
        "init_std": 1.0,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
    }
    return hf_cmal.NagTeacherConfig(**{**options, **changes})


def tiny_teacher(attention: str = "sdpa", **changes) -> hf_cmal.NagTeacherForCaptioning:
    torch.manual_seed(SEED)
    return hf_cmal.NagTeacherForCaptioning._from_config(
        tiny_config(**changes), attn_implementation=attention
    ).eval()


def talkative_teacher(attention: str = "sdpa") -> hf_cmal.NagTeacherForCaptioning:
    """Untied, an untrained teacher does not just repeat the word it read."""
    return tiny_teacher(attention, tie_word_embeddings=False)


def pictures(batch: int = 3, regions: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Random features [B, L, F] whose rows have L, L-2, L-4, ... real regions."""
    generator = torch.Generator().manual_seed(11)
    features = torch.randn(batch, regions, FEATURE_SIZE, generator=generator)
    lengths = regions - 2 * torch.arange(batch)
    return features, torch.arange(regions) < lengths.unsqueeze(1)


# ---- Eq. (3): p(y | I) = prod_i p(y_i | y_<i, I)
# ------------------------------------------------------------


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_later_word_changes_no_earlier_logits(attention):
    teacher = tiny_teacher(attention)
    features, mask = pictures(batch=1)
    words = torch.tensor([[PAD, 1, 2, 3, 4]])
    changed = torch.tensor([[PAD, 1, 2, 5, 1]])
    logits = teacher(features, mask, words).logits
    other = teacher(features, mask, changed).logits
    torch.testing.assert_close(other[:, :3], logits[:, :3])
    assert (other[:, 3] - logits[:, 3]).abs().max() > 1e-2


def test_the_probabilities_of_all_captions_of_three_words_sum_to_one():
    # Holds only if word i is scored from the words before it: prod_i p(y_i | y_<i) telescopes over all y.
    teacher = tiny_teacher(vocab_size=4, pad_token_id=3).double()
    captions = torch.tensor(list(itertools.product(range(4), repeat=3)))
    features = pictures(batch=1)[0].double().expand(len(captions), -1, -1)
    log_probs = teacher(features, labels=captions).logits.log_softmax(-1)
    log_prob = log_probs.gather(-1, captions.unsqueeze(-1)).squeeze(-1).sum(-1)
    assert log_prob.exp().sum().item() == pytest.approx(1, abs=1e-12)


def test_the_loss_is_the_mean_negative_log_probability_of_the_labelled_words_first_word_included():
    teacher = tiny_teacher()
    features, mask = pictures(batch=2)
    labels = torch.tensor([[1, 2, EOS], [4, EOS, -100]])
    output = teacher(features, mask, labels=labels)
    log_probs = output.logits.log_softmax(-1)
    counted = [(0, 0, 1), (0, 1, 2), (0, 2, EOS), (1, 0, 4), (1, 1, EOS)]
    expected = -sum(log_probs[row, position, word] for row, position, word in counted) / 5
    torch.testing.assert_close(output.loss, expected)
    first_masked = torch.tensor([[-100, 2, EOS], [4, EOS, -100]])
    decoder_input_ids = teacher.prepare_decoder_input_ids_from_labels(labels)
    other = teacher(features, mask, decoder_input_ids, labels=first_masked)
    torch.testing.assert_close(other.loss, -sum(log_probs[r, p, w] for r, p, w in counted[1:]) / 4)


def test_without_labels_there_is_no_loss():
    features, mask = pictures()
    assert tiny_teacher()(features, mask, torch.full((3, 1), PAD)).loss is None


def test_decoder_inputs_are_the_labels_behind_the_start_token():
    labels = torch.tensor([[1, 2, EOS], [4, EOS, -100]])
    teacher = tiny_teacher(decoder_start_token_id=5)
    assert teacher.prepare_decoder_input_ids_from_labels(labels).tolist() == [[5, 1, 2], [5, 4, EOS]]
    # the -100 of a shorter neighbour becomes pad; the start token defaults to pad, as in Marian
    longer = torch.tensor([[4, EOS, -100, -100]])
    assert tiny_teacher().prepare_decoder_input_ids_from_labels(longer).tolist() == [[PAD, 4, EOS, PAD]]


def test_neither_words_nor_labels_is_an_error_that_names_generate():
    with pytest.raises(ValueError, match="call generate"):
        tiny_teacher()(pictures()[0])


def test_the_trainer_is_told_that_the_loss_is_a_mean():
    assert hf_cmal.NagTeacherForCaptioning.accepts_loss_kwargs is False


# ---- generate ---------------------------------------------------------------------------------------------


def greedy_by_hand(teacher, features: torch.Tensor, steps: int) -> list[int]:
    """One caption: the whole prefix is scored anew for every word, pad excepted from the choice."""
    words = [PAD]
    for _ in range(steps):
        logits = teacher(features, decoder_input_ids=torch.tensor([words])).logits[0, -1]
        logits[PAD] = -torch.inf
        words.append(int(logits.argmax()))
        if words[-1] == EOS:
            break
    return words


@pytest.mark.parametrize("use_cache", [True, False], ids=["cache", "no cache"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_greedy_generate_of_a_padded_batch_is_the_loop_over_single_pictures(attention, use_cache):
    teacher = talkative_teacher(attention)
    features, mask = pictures()
    rows = teacher.generate(features=features, feature_mask=mask, max_new_tokens=8, use_cache=use_cache)
    expected = [greedy_by_hand(teacher, features[i : i + 1, mask[i]], 8) for i in range(3)]
    assert len({tuple(words) for words in expected}) > 1
    for row, words in zip(rows.tolist(), expected, strict=True):
        assert row == words + [PAD] * (len(row) - len(words))


def test_logits_with_a_cache_are_those_without():
    teacher = tiny_teacher()
    features, mask = pictures()
    words = torch.tensor([[PAD, 1, 2, 3], [PAD, 4, 4, 1], [PAD, 2, 5, 5]])
    whole = teacher(features, mask, words).logits
    first = teacher(features, mask, words[:, :2], use_cache=True)
    third = teacher(
        features, mask, words[:, 2:3], encoder_outputs=(first.encoder_last_hidden_state,), cache=first.cache
    )
    torch.testing.assert_close(first.logits, whole[:, :2])
    torch.testing.assert_close(third.logits, whole[:, 2:3])
    # positions count on from the cache; from zero they would give other logits
    alone = teacher(features, mask, words[:, 2:3]).logits
    assert (alone - whole[:, 2:3]).abs().max() > 1e-2


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_beam_search_gives_the_same_captions_with_and_without_cache(attention):
    teacher = talkative_teacher(attention)
    features, mask = pictures()
    options = {"num_beams": 3, "max_new_tokens": 8, "return_dict_in_generate": True, "output_scores": True}
    cached = teacher.generate(features=features, feature_mask=mask, use_cache=True, **options)
    plain = teacher.generate(features=features, feature_mask=mask, use_cache=False, **options)
    assert cached.sequences.tolist() == plain.sequences.tolist()
    torch.testing.assert_close(cached.sequences_scores, plain.sequences_scores)


def test_a_beam_as_wide_as_the_tree_finds_the_likeliest_caption():
    teacher = tiny_teacher(vocab_size=4, pad_token_id=3)
    features = pictures(batch=1)[0]
    options = {"num_beams": 9, "length_penalty": 0.0, "max_new_tokens": 2, "return_dict_in_generate": True}
    found = teacher.generate(features=features, output_scores=True, **options)
    # Captions of two words over {eos, 1, 2}: one that starts with eos ends there. generate suppresses pad
    # after the softmax, so the mass of pad is lost, not shared out.
    scores = {}
    for first, second in itertools.product(range(3), repeat=2):
        log_probs = (
            teacher(features, decoder_input_ids=torch.tensor([[3, first]])).logits[0].log_softmax(-1).tolist()
        )
        if first == EOS:
            scores[(EOS,)] = log_probs[0][EOS]
        else:
            scores[(first, second)] = log_probs[0][first] + log_probs[1][second]
    best = max(scores, key=scores.get)
    assert [word for word in found.sequences[0, 1:].tolist() if word != 3] == list(best)
    assert float(found.sequences_scores[0]) == pytest.approx(scores[best], abs=1e-5)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_pad_is_never_generated_even_where_it_is_the_likeliest_word(num_beams):
    teacher = tiny_teacher(tie_word_embeddings=False)
    # The last layer norm leaves states that sum to 0; with 1 added to each they sum to d_model, so that a
    # constant row of the word head scores a constant: 40 for pad, -40 for eos.
    with torch.no_grad():
        teacher.model.decoder.layers[-1].final_layer_norm.bias += 1.0
        teacher.lm_head.weight[PAD] = 5.0
        teacher.lm_head.weight[EOS] = -5.0
    features, mask = pictures()
    options = {"features": features, "feature_mask": mask, "max_new_tokens": 6, "num_beams": num_beams}
    assert (teacher.generate(**options, suppress_tokens=None)[:, 1:] == PAD).all()
    assert not (teacher.generate(**options)[:, 1:] == PAD).any()


def test_what_is_suppressed_is_kept_in_generation_config_json(tmp_path):
    tiny_teacher(bos_token_id=5).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "generation_config.json").read_text())["suppress_tokens"] == [5, PAD]
    assert "suppress_tokens" not in json.loads((tmp_path / "config.json").read_text())


def test_generate_takes_a_batch_of_a_trainer_whole():
    features, mask = pictures()
    teacher = tiny_teacher()
    options = {"features": features, "feature_mask": mask, "max_new_tokens": 5}
    expected = teacher.generate(**options).tolist()
    assert teacher.generate(**options, labels=torch.ones(3, 4, dtype=torch.long)).tolist() == expected
    assert teacher.main_input_name == "features"


def test_more_words_than_positions_is_an_error_that_names_the_limit():
    with pytest.raises(ValueError, match="max_position_embeddings=16"):
        tiny_teacher()(pictures(batch=1)[0], decoder_input_ids=torch.ones(1, 17, dtype=torch.long))


def test_attentions_are_refused_by_generate_rather_than_missing():
    with pytest.raises(ValueError, match="not recorded"):
        tiny_teacher().generate(features=pictures()[0], output_attentions=True, return_dict_in_generate=True)


# ---- training and precision --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_half_precision_is_finite_with_a_fully_padded_row(attention, dtype):
    teacher = tiny_teacher(attention).to(dtype)
    features, mask = pictures()
    mask[1] = False
    output = teacher(features.to(dtype), mask, labels=torch.tensor([[1, EOS], [-100, -100], [2, EOS]]))
    assert output.logits.isfinite().all()
    assert output.loss.isfinite()


def test_a_batch_without_any_label_has_loss_zero():
    features, mask = pictures()
    assert tiny_teacher()(features, mask, labels=torch.full((3, 2), -100)).loss == 0


def test_activation_checkpointing_changes_no_gradient():
    features, mask = pictures()
    labels = torch.tensor([[1, 2], [3, EOS], [4, EOS]])
    gradients = []
    for checkpointing in (False, True):
        teacher = tiny_teacher(dropout=0.0).train()
        if checkpointing:
            teacher.activation_checkpointing_enable()
        teacher(features, mask, labels=labels).loss.backward()
        gradients.append({name: weight.grad for name, weight in teacher.named_parameters()})
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


# ---- names, saving and loading
# -------------------------------------------------------------------------------


def tiny_student(**changes) -> hf_cmal.NagForCaptioning:
    shared = {k: v for k, v in tiny_config().to_dict().items() if k in hf_cmal.NagConfig().to_dict()}
    shared = {
        k: v for k, v in shared.items() if k not in ("model_type", "architectures", "transformers_version")
    }
    return hf_cmal.NagForCaptioning(
        hf_cmal.NagConfig(**{**shared, "length_mode": "fixed", "num_agents": 4, **changes})
    )


def test_the_students_parameters_are_the_teachers_by_name_and_shape():
    teacher = {name: tensor.shape for name, tensor in tiny_teacher().named_parameters()}
    student = {name: tensor.shape for name, tensor in tiny_student(decoder_layers=2).named_parameters()}
    assert student == teacher


def test_with_the_same_weights_teacher_and_student_see_the_same_picture():
    teacher, student = tiny_teacher(), tiny_student(decoder_layers=2).eval()
    features, mask = pictures()
    expected = teacher.get_encoder()(features, mask)[0]
    assert not torch.allclose(student.get_encoder()(features=features, feature_mask=mask)[0], expected)
    student.get_encoder().load_state_dict(teacher.get_encoder().state_dict())
    torch.testing.assert_close(student.get_encoder()(features=features, feature_mask=mask)[0], expected)


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_teacher_loads_through_the_auto_class_with_the_same_outputs(tmp_path, tied):
    teacher = tiny_teacher(tie_word_embeddings=tied)
    teacher.save_pretrained(tmp_path)
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path).eval()
    assert type(loaded) is hf_cmal.NagTeacherForCaptioning
    assert (loaded.lm_head.weight is loaded.model.decoder.embed_tokens.weight) is tied
    features, mask = pictures()
    words = torch.tensor([[PAD, 1, 2]] * 3)
    torch.testing.assert_close(loaded(features, mask, words).logits, teacher(features, mask, words).logits)
    options = {"features": features, "feature_mask": mask, "num_beams": 3, "max_new_tokens": 6}
    assert loaded.generate(**options).tolist() == teacher.generate(**options).tolist()


def test_teacher_and_student_folders_are_not_taken_for_each_other(tmp_path):
    tiny_teacher().save_pretrained(tmp_path / "teacher")
    tiny_student().save_pretrained(tmp_path / "student")
    assert type(AutoConfig.from_pretrained(tmp_path / "teacher")) is hf_cmal.NagTeacherConfig
    assert type(AutoModelForImageTextToText.from_pretrained(tmp_path / "student")) is hf_cmal.NagForCaptioning
    with pytest.raises(ValueError, match="'cmal_nag_teacher' model, not of a 'cmal_nag' student"):
        hf_cmal.NagForCaptioning.from_pretrained(tmp_path / "teacher")
    with pytest.raises(ValueError, match="'cmal_nag' model, not of a 'cmal_nag_teacher' teacher"):
        hf_cmal.NagTeacherForCaptioning.from_pretrained(tmp_path / "student")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_attention_heads": 3}, "decoder_attention_heads=3 must divide d_model=8"),
        ({"pad_token_id": EOS}, "both 0"),
        ({"pad_token_id": None}, "pad_token_id must be set"),
        ({"decoder_start_token_id": 7}, r"decoder_start_token_id=7 must lie in 0\.\.6"),
    ],
)
def test_an_illegal_option_is_named_with_its_legal_values(changes, message):
    with pytest.raises(ValueError, match=message):
        tiny_config(**changes)
