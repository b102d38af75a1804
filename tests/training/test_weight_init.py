"""Weight-init from a random small Marian with OPUS-MT's options and from a captioning teacher."""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianModel, MarianMTModel

from hf_cmal.models.nag.configuration_nag import NagConfig
from hf_cmal.models.nag.configuration_nag_teacher import NagTeacherConfig
from hf_cmal.models.nag.modeling_nag import NagForCaptioning, NagForTranslation
from hf_cmal.models.nag.modeling_nag_teacher import NagTeacherForCaptioning
from hf_cmal.training.weight_init import init_student_from_teacher, student_config_from_teacher

PAD, EOS, VOCABULARY = 40, 0, 41
LENGTH_PREDICTOR = {"model.length_predictor.weight", "model.length_predictor.bias"}


def make_opus_teacher(**options):
    """With what OPUS-MT has and a plain Transformer has not: swish, scaled embeddings, a bias on words."""
    torch.manual_seed(0)
    config = MarianConfig(
        **{
            "vocab_size": VOCABULARY, "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 4, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 20, "max_position_embeddings": 32, "activation_function": "swish",
            "scale_embedding": True, "init_std": 0.3, "pad_token_id": PAD, "eos_token_id": EOS,
            "decoder_start_token_id": PAD, **options,
        }
    )  # fmt: skip
    teacher = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in teacher.named_parameters():
            if name.endswith("bias") or "layer_norm" in name:  # else 0 and 1, which a copy could miss unseen
                parameter.add_(torch.randn_like(parameter) * 0.3)
        teacher.final_logits_bias.copy_(torch.randn(1, config.decoder_vocab_size))
    return teacher


def make_captioning_teacher(**options):
    torch.manual_seed(0)
    config = NagTeacherConfig(
        **{
            "vocab_size": VOCABULARY, "feature_size": 6, "d_model": 16, "encoder_layers": 2,
            "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 2,
            "encoder_ffn_dim": 24, "decoder_ffn_dim": 20, "max_position_embeddings": 32, "init_std": 0.3,
            "pad_token_id": PAD, "eos_token_id": EOS, **options,
        }
    )  # fmt: skip
    teacher = NagTeacherForCaptioning(config).eval()
    with torch.no_grad():
        for name, parameter in teacher.named_parameters():
            if name.endswith("bias") or "layer_norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.3)
    return teacher


@pytest.fixture
def padded_text():
    input_ids = torch.randint(1, PAD, (3, 7), generator=torch.Generator().manual_seed(1))
    attention_mask = torch.arange(7) < torch.tensor([7, 4, 2])[:, None]
    return {"input_ids": input_ids.masked_fill(~attention_mask, PAD), "attention_mask": attention_mask.long()}


@pytest.fixture
def padded_features():
    features = torch.randn(3, 5, 6, generator=torch.Generator().manual_seed(1))
    return {"features": features, "feature_mask": torch.arange(5) < torch.tensor([5, 3, 1])[:, None]}


# --- translation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [True, False], ids=["one_embedding", "separate_embeddings"])
def test_encoder_of_the_student_is_the_encoder_of_marian(padded_text, shared):
    teacher = make_opus_teacher(share_encoder_decoder_embeddings=shared, tie_word_embeddings=shared)
    student = init_student_from_teacher(teacher)
    real = padded_text["attention_mask"].bool()
    with torch.no_grad():
        expected = teacher.get_encoder()(**padded_text).last_hidden_state
        output = student(**padded_text).encoder_last_hidden_state
    torch.testing.assert_close(output[real], expected[real], rtol=0, atol=1e-6)
    # The options matter here: with another activation, or unscaled embeddings, the outputs differ.
    for other in ({"activation_function": "relu"}, {"scale_embedding": False}):
        with torch.no_grad():
            changed = init_student_from_teacher(teacher, **other)(**padded_text).encoder_last_hidden_state
        assert (changed[real] - expected[real]).abs().max() > 1e-2


def test_only_the_length_predictor_is_not_copied_from_marian():
    teacher = make_opus_teacher()
    torch.manual_seed(3)
    source, copied = teacher.state_dict(), init_student_from_teacher(teacher).state_dict()
    torch.manual_seed(4)
    other = init_student_from_teacher(teacher).state_dict()
    assert copied.keys() - source.keys() == LENGTH_PREDICTOR
    for name in copied.keys() - LENGTH_PREDICTOR:
        assert torch.equal(copied[name], source[name]), name
        assert torch.equal(copied[name], other[name]), name
    assert not torch.equal(copied["model.length_predictor.weight"], other["model.length_predictor.weight"])
    # The decoder is among them: q, k, v, out of two attentions, two linear maps and three norms per layer.
    assert len([name for name in copied if name.startswith("model.decoder.layers.")]) == 2 * 26


def test_words_are_scored_with_the_teachers_embeddings_and_bias(padded_text):
    teacher = make_opus_teacher()
    student = init_student_from_teacher(teacher)
    lengths = torch.tensor([5, 4, 3])
    with torch.no_grad():
        states = student.model(**padded_text, target_lengths=lengths).last_hidden_state
        logits = student(**padded_text, target_lengths=lengths).logits
    expected = states @ teacher.model.shared.weight.T + teacher.final_logits_bias
    torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)
    with torch.no_grad():
        student.final_logits_bias[0, 5] += 3.0
        shifted = student(**padded_text, target_lengths=lengths).logits
    torch.testing.assert_close(shifted[..., 5] - logits[..., 5], torch.full((3, 5), 3.0))


@pytest.mark.parametrize("tied_output", [True, False])
def test_embeddings_of_the_student_are_tied_as_the_teachers(tied_output):
    tied = init_student_from_teacher(make_opus_teacher())
    assert tied.lm_head.weight is tied.model.encoder.embed_tokens.weight
    # Where the teacher reads and writes with different matrices, the student does, whatever ties its decoder.
    separate = make_opus_teacher(share_encoder_decoder_embeddings=False, tie_word_embeddings=tied_output)
    untied = init_student_from_teacher(separate)
    assert torch.equal(untied.lm_head.weight, separate.lm_head.weight)
    assert torch.equal(untied.model.encoder.embed_tokens.weight, separate.model.encoder.embed_tokens.weight)
    assert not torch.equal(untied.lm_head.weight, untied.model.encoder.embed_tokens.weight)


def test_student_does_not_share_memory_with_its_teacher():
    teacher = make_opus_teacher()
    student = init_student_from_teacher(teacher)
    before = teacher.lm_head.weight.clone()
    with torch.no_grad():
        student.lm_head.weight.zero_()
    assert torch.equal(teacher.lm_head.weight, before)


def test_folder_of_a_half_precision_teacher_gives_a_float32_student_that_saves_and_loads(
    tmp_path, padded_text
):
    make_opus_teacher().half().save_pretrained(tmp_path / "teacher")
    student = init_student_from_teacher(tmp_path / "teacher", max_target_length=20, max_length_offset=8)
    assert isinstance(student, NagForTranslation) and student.dtype == torch.float32 and not student.training
    assert (student.config.max_target_length, student.config.max_length_offset) == (20, 8)
    student.save_pretrained(tmp_path / "student")
    loaded = NagForTranslation.from_pretrained(tmp_path / "student")
    with torch.no_grad():
        assert torch.equal(loaded(**padded_text).logits, student(**padded_text).logits)


# --- captioning --------------------------------------------------------------------------------------


def test_encoder_of_the_student_is_the_encoder_of_the_captioning_teacher(padded_features):
    teacher = make_captioning_teacher()
    student = init_student_from_teacher(teacher)
    assert isinstance(student, NagForCaptioning)
    with torch.no_grad():
        expected = teacher.get_encoder()(**padded_features).last_hidden_state
        output = student(**padded_features).encoder_last_hidden_state
        scratch = NagForCaptioning(student.config).eval()(**padded_features).encoder_last_hidden_state
    real = padded_features["feature_mask"]
    torch.testing.assert_close(output[real], expected[real], rtol=0, atol=1e-6)
    assert (scratch[real] - expected[real]).abs().max() > 1e-2


@pytest.mark.parametrize("length_mode", ["fixed", "predicted"])
def test_everything_the_captioning_teacher_has_is_copied(length_mode):
    teacher = make_captioning_teacher()
    student = init_student_from_teacher(teacher, length_mode=length_mode)
    source, copied = teacher.state_dict(), student.state_dict()
    new = copied.keys() - source.keys()
    assert new == {"final_logits_bias"} | (LENGTH_PREDICTOR if length_mode == "predicted" else set())
    assert not student.final_logits_bias.any(), "the teacher adds no bias, nor does the student"
    assert all(torch.equal(copied[name], source[name]) for name in copied.keys() - new)
    assert source.keys() - copied.keys() == {"model.decoder.embed_tokens.weight"}


# --- the config --------------------------------------------------------------------------------------


def test_student_config_inherits_the_teachers_options():
    config = student_config_from_teacher(make_opus_teacher().config)
    assert config.length_mode == "predicted" and config.feature_size is None
    assert (config.activation_function, config.scale_embedding) == ("swish", True)
    assert (
        student_config_from_teacher(make_opus_teacher(scale_embedding=False).config).scale_embedding is False
    )
    assert (config.vocab_size, config.pad_token_id, config.eos_token_id) == (VOCABULARY, PAD, EOS)
    assert (config.encoder_attention_heads, config.decoder_attention_heads) == (4, 2)
    assert (config.encoder_ffn_dim, config.decoder_ffn_dim) == (24, 20)
    assert config.max_target_length == 32


def test_captioning_student_has_sixteen_agents_by_default():
    config = student_config_from_teacher(make_captioning_teacher().config)
    assert (config.length_mode, config.num_agents, config.feature_size) == ("fixed", 16, 6)


def test_training_from_scratch_may_change_the_shape():
    config = student_config_from_teacher(make_opus_teacher().config, decoder_layers=1, dropout=0.3)
    student = NagForTranslation(config)
    assert len(student.model.decoder.layers) == 1 and student.config.dropout == 0.3


# --- what cannot be a teacher ------------------------------------------------------------------------


def test_a_students_folder_given_as_teacher_is_refused(tmp_path):
    init_student_from_teacher(make_opus_teacher()).save_pretrained(tmp_path)
    with pytest.raises(
        ValueError, match="is itself a student .*'cmal_nag'.* give the autoregressive teacher"
    ):
        init_student_from_teacher(tmp_path)


def test_a_teachers_folder_given_as_student_is_refused(tmp_path):
    make_opus_teacher().save_pretrained(tmp_path / "marian")
    make_captioning_teacher().save_pretrained(tmp_path / "captioning")
    with pytest.raises(ValueError, match="'marian' model, not of a 'cmal_nag' student"):
        NagForTranslation.from_pretrained(tmp_path / "marian")
    with pytest.raises(ValueError, match="'cmal_nag_teacher' model, not of a 'cmal_nag' student"):
        NagForCaptioning.from_pretrained(tmp_path / "captioning")


def test_another_architecture_is_refused_with_the_alternative():
    bart = BartForConditionalGeneration(
        BartConfig(vocab_size=50, d_model=8, encoder_layers=1, decoder_layers=1, max_position_embeddings=16,
                   encoder_attention_heads=1, decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8)
    )  # fmt: skip
    with pytest.raises(
        ValueError, match="marian, cmal_nag_teacher, not 'bart'; start the student from scratch"
    ):
        init_student_from_teacher(bart)


def test_two_vocabularies_are_refused():
    teacher = make_opus_teacher(share_encoder_decoder_embeddings=False, decoder_vocab_size=50)
    with pytest.raises(ValueError, match="41 source words and 50 target words"):
        init_student_from_teacher(teacher)


def test_a_difference_in_shape_names_the_tensors():
    with pytest.raises(
        ValueError, match=r"Missing in the student: \['model\.decoder\.layers\.1\.encoder_attn\.k_proj"
    ):
        init_student_from_teacher(make_opus_teacher(), decoder_layers=1)
    with pytest.raises(ValueError, match=r"Missing in the teacher: \['model\.decoder\.layers\.2\."):
        init_student_from_teacher(make_opus_teacher(), decoder_layers=3)
    with pytest.raises(ValueError, match=r"encoder\.layers\.0\.fc1\.weight \(24, 16\) -> \(32, 16\)"):
        init_student_from_teacher(make_opus_teacher(), encoder_ffn_dim=32)


def test_a_marian_without_output_words_is_refused():
    with pytest.raises(ValueError, match=r"Missing in the teacher: .*'lm_head\.weight'"):
        init_student_from_teacher(MarianModel(make_opus_teacher().config))


def test_illegal_student_option_is_refused_by_its_name():
    with pytest.raises(ValueError, match="length_mode"):
        init_student_from_teacher(make_opus_teacher(), length_mode="free")
    assert NagConfig().length_mode == "predicted"
