"""The NAG Transformer: against MarianMT with the same weights, hand-worked values, and its edge cases."""

import doctest
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from transformers import MarianConfig, MarianMTModel
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from hf_cmal.models.nag import modeling_nag
from hf_cmal.models.nag.configuration_nag import NagConfig
from hf_cmal.models.nag.modeling_nag import (
    NagEncoderLayer,
    NagForCaptioning,
    NagForTranslation,
    NagModel,
    NagSinusoidalPositions,
    attendable,
    eager_attention_forward,
    word_loss,
)
from tests.models.tiny_nag import (
    EOS,
    PAD,
    TINY,
    VOCABULARY,
    feature_batch,
    source_batch,
    tiny_captioner,
    tiny_translator,
)

LABELS = torch.tensor([[12, 9, 14], [6, 20, -100]])
LENGTHS = torch.tensor([3, 2])
OPUS = {"activation_function": "swish", "scale_embedding": True}


def marian_like_opus() -> MarianMTModel:
    """A MarianMT model of the tiny sizes with OPUS's options, random weights and random final_logits_bias."""
    torch.manual_seed(1)
    sizes = {name: value for name, value in TINY.items() if name != "max_length_offset"}
    marian = MarianMTModel(MarianConfig(**{**sizes, **OPUS}, decoder_start_token_id=PAD)).eval()
    marian.final_logits_bias.copy_(torch.randn(1, VOCABULARY))
    return marian


# --- Eqs. (1), (2) and Marian --------------------------------------------------------------------------


def test_attention_weighs_values_by_the_softmax_of_scaled_scores() -> None:
    # head width 4, so scores are divided by 2: (2 ln 3) / 2 = ln 3 against 0, weights 3/4 and 1/4
    query = torch.tensor([[[[2 * math.log(3), 0.0, 0.0, 0.0]]]])
    key = torch.tensor([[[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]]]])
    value = torch.tensor([[[[4.0, 0.0, 0.0, 8.0], [0.0, 4.0, 0.0, 0.0]]]])
    output, weights = eager_attention_forward(torch.nn.Identity().eval(), query, key, value, None, 4**-0.5)
    torch.testing.assert_close(weights[0, 0, 0], torch.tensor([0.75, 0.25]))
    torch.testing.assert_close(output[0, 0, 0], torch.tensor([3.0, 1.0, 0.0, 6.0]))


def test_the_feed_forward_network_is_two_linear_maps_with_a_relu_between() -> None:
    torch.manual_seed(0)
    config = NagConfig(**TINY)
    config._attn_implementation = "eager"
    layer = NagEncoderLayer(config).eval()
    seen: dict[str, torch.Tensor] = {}
    layer.self_attn_layer_norm.register_forward_hook(lambda module, args, output: seen.update(x=output))
    layer.fc2.register_forward_hook(lambda module, args, output: seen.update(ffn=output))
    layer(torch.randn(2, 3, 16))
    w1, b1, w2, b2 = layer.fc1.weight.T, layer.fc1.bias, layer.fc2.weight.T, layer.fc2.bias
    expected = torch.maximum(torch.tensor(0.0), seen["x"] @ w1 + b1) @ w2 + b2
    torch.testing.assert_close(seen["ffn"], expected)
    assert (seen["x"] @ w1 + b1 < 0).any()  # the ReLU has something to cut


@pytest.mark.parametrize(("positions", "dim"), [(12, 16), (7, 5)])
def test_positions_are_marians_sines_then_cosines(positions: int, dim: int) -> None:
    expected = MarianSinusoidalPositionalEmbedding(positions, dim).create_weight()
    torch.testing.assert_close(NagSinusoidalPositions(positions, dim).weight, expected)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_marians_weights_copied_by_name_give_marians_numbers(attention: str) -> None:
    marian, student = marian_like_opus(), tiny_translator(**OPUS, attn_implementation=attention)
    missing, unexpected = student.load_state_dict(marian.state_dict(), strict=False)
    assert sorted(missing) == ["model.length_predictor.bias", "model.length_predictor.weight"]
    positions = [f"model.{half}.embed_positions.weight" for half in ("decoder", "encoder")]
    assert sorted(unexpected) == sorted([*positions, "model.decoder.embed_tokens.weight"])
    batch = source_batch()
    agents = torch.tensor([[True, True, True], [True, True, False]])
    with torch.no_grad():
        states = marian.model.encoder(**batch).last_hidden_state
        # Marian's decoder that reads no words and has no causal mask is the NAG decoder
        decoded = marian.model.decoder(
            inputs_embeds=torch.zeros(2, 3, 16),
            attention_mask=agents[:, None, None, :].expand(2, 1, 3, 3),
            encoder_hidden_states=states,
            encoder_attention_mask=batch["attention_mask"],
            use_cache=False,
        ).last_hidden_state
        expected = marian.lm_head(decoded) + marian.final_logits_bias
        output = student(**batch, target_lengths=LENGTHS)
    real = batch["attention_mask"].bool()
    torch.testing.assert_close(output.encoder_last_hidden_state[real], states[real])
    torch.testing.assert_close(output.logits[agents], expected[agents])
    assert not torch.allclose(output.logits[agents], (expected - marian.final_logits_bias)[agents])


# --- Eqs. (4), (5) and the losses ------------------------------------------------------------------------


def test_no_agent_sees_a_word_only_the_source() -> None:
    student, batch = tiny_translator(), source_batch()
    logits = student(**batch, labels=LABELS).logits
    other_words = torch.where(LABELS == -100, LABELS, LABELS.flip(0).clamp(min=1) + 1)
    assert torch.equal(logits, student(**batch, labels=other_words).logits)
    other_source = {**batch, "input_ids": batch["input_ids"].clone()}
    other_source["input_ids"][0, 0] += 1
    assert not torch.allclose(logits[0], student(**other_source, labels=LABELS).logits[0])


def test_the_word_loss_is_the_mean_cross_entropy_of_the_labels() -> None:
    # probabilities (3/4, 1/4) for every agent; labels 0, 1 and none: (ln 4/3 + ln 4) / 2
    logits = torch.tensor([[[math.log(3), 0.0]] * 3])
    loss = word_loss(logits, torch.tensor([[0, 1, -100]]))
    torch.testing.assert_close(loss, torch.tensor((math.log(4 / 3) + math.log(4)) / 2))


def test_each_label_supervises_its_own_agent_the_first_included() -> None:
    logits = torch.zeros(1, 3, 4, requires_grad=True)
    word_loss(logits, torch.tensor([[2, 0, -100]])).backward()
    # softmax minus one-hot over two labels: (1/4 - 1)/2 at the label, 1/8 elsewhere, nothing at -100
    expected = torch.full((1, 3, 4), 0.125)
    expected[0, 0, 2] = expected[0, 1, 0] = -0.375
    expected[0, 2] = 0.0
    torch.testing.assert_close(logits.grad, expected)


def test_the_fixed_mode_supervises_the_eos_and_ignores_what_follows() -> None:
    captioner = tiny_captioner()
    output = captioner(**feature_batch(), labels=torch.tensor([[7, EOS, -100], [7, 8, EOS]]))
    output.logits.retain_grad()
    output.loss.backward()
    supervised = output.logits.grad.abs().sum(-1) > 0
    assert supervised.tolist() == [[True, True, False, False, False], [True, True, True, False, False]]
    assert output.logits.grad[0, 1].argmin() == EOS  # the eos is pushed up


def test_a_caption_longer_than_the_agents_is_cut() -> None:
    captioner, batch = tiny_captioner(), feature_batch()
    long = torch.tensor([[7, 8, 9, 10, 11, 12, EOS], [7, EOS, -100, -100, -100, -100, -100]])
    assert torch.equal(captioner(**batch, labels=long).loss, captioner(**batch, labels=long[:, :5]).loss)
    assert not torch.equal(captioner(**batch, labels=long).loss, captioner(**batch, labels=long[:, :4]).loss)


def test_the_loss_is_the_word_loss_plus_the_weighted_length_loss() -> None:
    student, batch = tiny_translator(length_loss_weight=0.1), source_batch()
    output = student(**batch, labels=LABELS)
    log_probs = output.length_logits.log_softmax(-1)
    # targets 3 and 2, sources 5 and 3: offsets -2 and -1, classes 1 and 2 of -3..3
    length_loss = -(log_probs[0, 1] + log_probs[1, 2]) / 2
    torch.testing.assert_close(output.loss, word_loss(output.logits, LABELS) + 0.1 * length_loss)


def test_the_length_loss_is_given_per_input_and_clamps_offsets() -> None:
    student = tiny_translator(max_length_offset=1)
    # probabilities (1/2, 1/4, 1/4) of the offsets -1, 0, 1; true offsets -4, 0, +2 become -1, 0, +1
    logits = torch.tensor([[math.log(2), 0.0, 0.0]] * 3)
    losses = student.length_loss(logits, torch.tensor([9, 5, 1]), torch.tensor([5, 5, 3]))
    torch.testing.assert_close(losses, torch.tensor([math.log(2), math.log(4), math.log(4)]))


def test_without_labels_there_is_no_loss() -> None:
    assert tiny_translator()(**source_batch()).loss is None
    assert tiny_translator()(**source_batch(), target_lengths=LENGTHS).loss is None
    assert tiny_captioner()(**feature_batch()).loss is None


def test_a_batch_without_any_label_has_a_finite_loss() -> None:
    student = tiny_translator()
    output = student(**source_batch(), labels=torch.full((2, 3), -100))
    output.loss.backward()
    assert torch.isfinite(output.loss)
    assert all(torch.isfinite(p.grad).all() for p in student.parameters())


def test_the_loss_stays_a_mean_of_the_batch_when_gradients_are_accumulated() -> None:
    assert tiny_translator().accepts_loss_kwargs is False


# --- the number of agents ----------------------------------------------------------------------------------


def test_the_number_of_agents_comes_from_lengths_else_labels_else_the_predictor() -> None:
    student, batch = tiny_translator(), source_batch()
    with torch.no_grad():
        student.model.length_predictor.weight.zero_()
        student.model.length_predictor.bias.copy_(torch.tensor([0.0, 0, 0, 0, 0, 1, 0]))  # offset +2
    by_lengths = student(**batch, target_lengths=torch.tensor([4, 1]))
    assert by_lengths.agent_mask.tolist() == [[True] * 4, [True, False, False, False]]
    assert student(**batch, labels=LABELS).agent_mask.sum(-1).tolist() == [3, 2]
    assert student(**batch).agent_mask.sum(-1).tolist() == [7, 5]


def test_predicted_lengths_stay_between_one_and_the_maximum() -> None:
    model = tiny_translator(max_target_length=6).model
    least, most = torch.eye(7)[[0]], torch.eye(7)[[6]]  # offsets -3 and +3
    assert model.predict_target_lengths(least, torch.tensor([2])).tolist() == [1]
    assert model.predict_target_lengths(least, torch.tensor([9])).tolist() == [6]
    assert model.predict_target_lengths(most, torch.tensor([2])).tolist() == [5]
    assert model.predict_target_lengths(most, torch.tensor([5])).tolist() == [6]


def test_the_length_predictor_reads_the_mean_of_the_real_source_states() -> None:
    model = tiny_translator().model
    with torch.no_grad():
        model.length_predictor.weight.zero_()
        model.length_predictor.bias.zero_()
        model.length_predictor.weight[0, 0] = 1.0
    states = torch.zeros(3, 4, 16)
    states[:, :, 0] = torch.tensor([[1.0, 3.0, 5.0, 7.0], [1.0, 3.0, 5.0, 7.0], [1.0, 3.0, 5.0, 7.0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]])
    # means of (1 3 5 7), of (1 3), and of nothing
    assert model.predict_length_logits(states, mask)[:, 0].tolist() == [4.0, 2.0, 0.0]
    assert model.predict_length_logits(states, None)[:, 0].tolist() == [4.0, 4.0, 4.0]


def test_fixed_mode_agents_are_as_many_as_configured_and_all_real() -> None:
    output = tiny_captioner(num_agents=5)(**feature_batch())
    assert output.logits.shape == (2, 5, VOCABULARY)
    assert output.agent_mask.all()
    assert output.length_logits is None
    assert not [name for name, _ in tiny_captioner().named_parameters() if "length_predictor" in name]


def test_labels_padded_further_than_needed_change_nothing() -> None:
    student, batch = tiny_translator(), source_batch()
    wide = torch.nn.functional.pad(LABELS, (0, 5), value=-100)
    assert student(**batch, labels=wide).logits.shape[1] == 3
    assert torch.equal(student(**batch, labels=wide).loss, student(**batch, labels=LABELS).loss)


@pytest.mark.parametrize(
    ("labels", "lengths"),
    [
        (LABELS, torch.tensor([3, 3])),  # more agents than labels
        (LABELS, torch.tensor([3, 1])),  # fewer
        (LABELS, torch.tensor([4, 2])),  # longer than the labels are wide
        (torch.tensor([[5, -100, 6]]).expand(2, 3), None),  # a hole
    ],
)
def test_labels_that_contradict_the_lengths_are_refused(
    labels: torch.Tensor, lengths: torch.Tensor | None
) -> None:
    with pytest.raises(ValueError, match="contradict each other"):
        tiny_translator()(**source_batch(), labels=labels, target_lengths=lengths)


def test_a_batch_of_empty_targets_has_one_masked_agent() -> None:
    output = tiny_translator()(**source_batch(), target_lengths=torch.tensor([0, 0]))
    assert output.agent_mask.tolist() == [[False], [False]]
    assert torch.isfinite(output.logits).all()


# --- who sees whom ------------------------------------------------------------------------------------


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_row_alone_equals_the_row_in_a_padded_batch(attention: str) -> None:
    student, batch = tiny_translator(attn_implementation=attention), source_batch()
    together = student(**batch, labels=LABELS)
    alone = student(input_ids=batch["input_ids"][1:, :3], labels=LABELS[1:, :2])
    torch.testing.assert_close(together.logits[1:, :2], alone.logits)
    torch.testing.assert_close(together.length_logits[1:], alone.length_logits)
    unmasked = student(input_ids=batch["input_ids"], labels=LABELS)
    assert not torch.allclose(unmasked.logits[1:, :2], alone.logits)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_picture_alone_equals_the_picture_in_a_padded_batch(attention: str) -> None:
    captioner, batch = tiny_captioner(attn_implementation=attention), feature_batch()
    together = captioner(**batch).logits
    alone = captioner(features=batch["features"][1:, :2]).logits
    torch.testing.assert_close(together[1:], alone)
    assert not torch.allclose(captioner(features=batch["features"]).logits[1:], alone)


def test_a_row_without_a_real_key_attends_to_all_of_its_keys() -> None:
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    assert attendable(mask).tolist() == [[True, True, False], [True, True, True]]


@pytest.mark.parametrize("second_row_is_empty", [False, True])
def test_eager_and_sdpa_give_the_same_numbers(second_row_is_empty: bool) -> None:
    batch = source_batch()
    if second_row_is_empty:
        batch["attention_mask"][1] = 0
    outputs = [
        tiny_translator(attn_implementation=name)(**batch, labels=LABELS) for name in ("eager", "sdpa")
    ]
    torch.testing.assert_close(outputs[0].logits, outputs[1].logits)
    torch.testing.assert_close(outputs[0].loss, outputs[1].loss)


def test_agents_talk_in_both_directions() -> None:
    student, source = tiny_translator(), {"input_ids": source_batch()["input_ids"][:1]}
    three = student(**source, target_lengths=torch.tensor([3])).logits
    four = student(**source, target_lengths=torch.tensor([4])).logits
    # a fourth agent changes what the first one says: nothing is causal
    assert not torch.allclose(three[:, 0], four[:, 0])


def test_the_order_of_tokens_and_of_agents_matters_that_of_pictures_regions_does_not() -> None:
    student, ids = tiny_translator(), source_batch()["input_ids"][:1]
    logits = student(input_ids=ids, target_lengths=torch.tensor([3])).logits
    swapped = student(input_ids=ids[:, [1, 0, 2, 3, 4]], target_lengths=torch.tensor([3])).logits
    assert not torch.allclose(logits, swapped)
    assert not torch.allclose(logits[:, 0], logits[:, 1])
    captioner, features = tiny_captioner(), feature_batch()["features"]
    torch.testing.assert_close(
        captioner(features=features).logits, captioner(features=features[:, [2, 0, 3, 1]]).logits
    )


def test_feature_vectors_pass_a_linear_map_and_a_relu() -> None:
    encoder = tiny_captioner().model.encoder
    seen: dict[str, torch.Tensor] = {}
    encoder.layers[0].register_forward_pre_hook(lambda module, args: seen.update(x=args[0]))
    features = feature_batch()["features"]
    encoder(features=features)
    linear = features @ encoder.embed_features.weight.T + encoder.embed_features.bias
    torch.testing.assert_close(seen["x"], torch.maximum(linear, torch.tensor(0.0)))
    assert (linear < 0).any()


# --- numbers: half precision, gradients, checkpointing ----------------------------------------------------


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_fully_padded_row_is_finite_forward_and_backward(dtype: torch.dtype, attention: str) -> None:
    student = tiny_translator(attn_implementation=attention).to(dtype)
    batch = source_batch()
    batch["attention_mask"][1] = 0
    labels = torch.tensor([[12, 9, 14], [-100, -100, -100]])
    output = student(**batch, labels=labels)
    assert output.logits.dtype == dtype
    assert output.loss.dtype == torch.float32
    output.loss.backward()
    for value in (output.loss, output.logits, output.length_logits):
        assert torch.isfinite(value).all()
    assert all(torch.isfinite(p.grad).all() for p in student.parameters())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_picture_without_a_single_region_is_finite(dtype: torch.dtype, attention: str) -> None:
    captioner = tiny_captioner(attn_implementation=attention).to(dtype)
    batch = feature_batch()
    batch["feature_mask"][0] = 0
    output = captioner(**batch, labels=torch.tensor([[7, EOS], [8, EOS]]))
    output.loss.backward()
    assert torch.isfinite(output.logits).all()
    assert all(torch.isfinite(p.grad).all() for p in captioner.parameters())


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_of_a_translator_gets_a_gradient(tied: bool) -> None:
    student = tiny_translator(tie_word_embeddings=tied).train()
    student(**source_batch(), labels=LABELS).loss.backward()
    assert [name for name, p in student.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("mode", ["fixed", "predicted"])
def test_every_parameter_of_a_captioner_gets_a_gradient(mode: str, tied: bool) -> None:
    captioner = tiny_captioner(length_mode=mode, tie_word_embeddings=tied).train()
    captioner(**feature_batch(), labels=torch.tensor([[7, 8, EOS], [9, EOS, -100]])).loss.backward()
    assert [name for name, p in captioner.named_parameters() if p.grad is None] == []


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_gives_the_same_loss_and_gradients(use_reentrant: bool) -> None:
    batch, results = source_batch(), []
    for checkpoint in (False, True):
        student = tiny_translator(dropout=0.0).train()
        layer, calls = student.model.decoder.layers[0].fc1, []
        layer.register_forward_hook(lambda *args, calls=calls: calls.append(1))
        if checkpoint:
            student.activation_checkpointing_enable({"use_reentrant": use_reentrant})
            student.enable_input_require_grads()
        loss = student(**batch, labels=LABELS).loss
        loss.backward()
        results.append((loss, {name: p.grad for name, p in student.named_parameters()}, len(calls)))
    (loss, gradients, calls), (loss_checkpointed, gradients_checkpointed, calls_checkpointed) = results
    assert (calls, calls_checkpointed) == (1, 2)  # the layer ran again in the backward pass
    torch.testing.assert_close(loss, loss_checkpointed)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients_checkpointed[name])


def test_dropout_acts_in_training_mode_alone() -> None:
    student, batch = tiny_translator(dropout=0.5), source_batch()
    assert torch.equal(student(**batch, labels=LABELS).logits, student(**batch, labels=LABELS).logits)
    student.train()
    assert not torch.equal(student(**batch, labels=LABELS).logits, student(**batch, labels=LABELS).logits)


# --- suppressed words ---------------------------------------------------------------------------------------


def suppressed(model: NagForTranslation | NagForCaptioning) -> list[int]:
    logits = torch.zeros(2, 3, VOCABULARY)
    out = model.suppress_tokens(logits)
    assert torch.equal(logits, torch.zeros_like(logits))  # the raw logits stay as they are
    words = torch.isneginf(out).all(0).all(0).nonzero().flatten().tolist()
    assert torch.isneginf(out).sum() == 2 * 3 * len(words)
    return words


def test_the_predicted_mode_suppresses_eos_bos_and_pad() -> None:
    assert suppressed(tiny_translator(bos_token_id=1)) == [EOS, 1, PAD]
    assert suppressed(tiny_translator()) == [EOS, PAD]


def test_the_fixed_mode_suppresses_bos_and_pad_but_not_eos() -> None:
    assert suppressed(tiny_captioner(bos_token_id=1)) == [1, PAD]
    # Marian-like tokenizers may use one id for bos and eos; an eos must stay possible
    assert suppressed(tiny_captioner(bos_token_id=EOS)) == [PAD]


def test_logits_are_returned_raw() -> None:
    assert torch.isfinite(tiny_translator()(**source_batch(), labels=LABELS).logits).all()


def test_a_suppressed_word_has_no_gradient_and_spoils_none() -> None:
    student = tiny_translator()
    logits = torch.randn(1, 2, VOCABULARY, requires_grad=True)
    student.suppress_tokens(logits).log_softmax(-1)[0, 0, 5].backward()
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[0, 0, EOS] == 0


# --- loading and saving ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_translator_gives_the_same_logits(tied: bool, tmp_path: Path) -> None:
    student = tiny_translator(tie_word_embeddings=tied)
    student.final_logits_bias.normal_()
    student.save_pretrained(tmp_path)
    loaded = NagForTranslation.from_pretrained(tmp_path)
    batch = source_batch()
    assert torch.equal(loaded(**batch, labels=LABELS).logits, student(**batch, labels=LABELS).logits)
    assert loaded.lm_head.weight.data_ptr() != student.lm_head.weight.data_ptr()


@pytest.mark.parametrize("tied", [True, False])
def test_a_saved_captioner_gives_the_same_logits(tied: bool, tmp_path: Path) -> None:
    captioner = tiny_captioner(tie_word_embeddings=tied)
    captioner.save_pretrained(tmp_path)
    loaded = NagForCaptioning.from_pretrained(tmp_path)
    assert torch.equal(loaded(**feature_batch()).logits, captioner(**feature_batch()).logits)


def test_tied_weights_are_one_matrix_and_saved_once(tmp_path: Path) -> None:
    tiny_translator().save_pretrained(tmp_path)
    loaded = NagForTranslation.from_pretrained(tmp_path)
    assert loaded.lm_head.weight is loaded.model.shared.weight
    assert loaded.model.encoder.embed_tokens.weight is loaded.model.shared.weight
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        names = set(file.keys())
    assert {"model.shared.weight", "final_logits_bias"} <= names
    assert not {"lm_head.weight", "model.encoder.embed_tokens.weight"} & names
    assert not [name for name in names if "positions" in name]


def test_untied_weights_are_two_matrices() -> None:
    student = tiny_translator(tie_word_embeddings=False)
    assert not torch.equal(student.lm_head.weight, student.model.encoder.embed_tokens.weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_loads_in_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    student = tiny_translator()
    student.save_pretrained(tmp_path)
    loaded = NagForTranslation.from_pretrained(tmp_path, dtype=dtype)
    output = loaded(**source_batch(), labels=LABELS)
    assert output.logits.dtype == dtype
    expected = student(**source_batch(), labels=LABELS).logits
    torch.testing.assert_close(output.logits.float(), expected, atol=0.5, rtol=0.1)


def test_the_base_model_loads_from_a_translator(tmp_path: Path) -> None:
    student = tiny_translator()
    student.save_pretrained(tmp_path)
    base = NagModel.from_pretrained(tmp_path)
    batch = source_batch()
    states = base(**batch, target_lengths=LENGTHS).last_hidden_state
    torch.testing.assert_close(states, student.model(**batch, target_lengths=LENGTHS).last_hidden_state)
    assert student.base_model is student.model


def test_features_are_cast_to_the_weights_dtype() -> None:
    captioner = tiny_captioner().to(torch.bfloat16)
    assert captioner(**feature_batch()).logits.dtype == torch.bfloat16


def test_encoder_outputs_can_be_handed_over() -> None:
    student, batch = tiny_translator(), source_batch()
    encoded = student.get_encoder()(**batch)
    reused = student(encoder_outputs=encoded, attention_mask=batch["attention_mask"], labels=LABELS)
    assert torch.equal(reused.logits, student(**batch, labels=LABELS).logits)


def test_a_tuple_is_returned_on_request() -> None:
    student, batch = tiny_translator(), source_batch()
    loss, logits, *_ = student(**batch, labels=LABELS, return_dict=False)
    assert torch.equal(logits, student(**batch, labels=LABELS).logits)
    assert loss.ndim == 0


# --- bad input ----------------------------------------------------------------------------------------


def test_more_positions_than_the_model_has_are_refused() -> None:
    student = tiny_translator(max_position_embeddings=6)
    with pytest.raises(ValueError, match="7 positions asked for, but max_position_embeddings=6"):
        student(input_ids=torch.ones(1, 7, dtype=torch.long), target_lengths=torch.tensor([2]))
    with pytest.raises(ValueError, match="7 positions asked for, but max_position_embeddings=6"):
        student(input_ids=torch.ones(1, 3, dtype=torch.long), target_lengths=torch.tensor([7]))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: NagForTranslation(NagConfig(**TINY, feature_size=6)), "use NagForCaptioning"),
        (lambda: NagForCaptioning(NagConfig(**TINY)), "use NagForTranslation"),
        (lambda: tiny_translator()(), "reads input_ids"),
        (lambda: tiny_captioner()(), "reads features"),
        (lambda: tiny_captioner()(features=torch.zeros(1, 2, 7)), "7 wide, but feature_size=6"),
    ],
)
def test_a_source_of_the_wrong_kind_is_refused(build: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        build()


def test_a_teachers_folder_is_refused_as_a_student(tmp_path: Path) -> None:
    marian_like_opus().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="'marian' model.*init_student_from_teacher"):
        NagForTranslation.from_pretrained(tmp_path)


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(modeling_nag)
    assert result.attempted > 0
    assert result.failed == 0
