"""One-pass decoding: exactly one call of each half, what it returns, and what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, Seq2SeqTrainer, Seq2SeqTrainingArguments

from hf_cmal.models.nag.generation_nag import NagGenerateOutput, NagGenerationConfig
from hf_cmal.models.nag.modeling_nag import NagForCaptioning, NagForTranslation
from tests.models.tiny_nag import (
    EOS,
    PAD,
    VOCABULARY,
    feature_batch,
    source_batch,
    tiny_captioner,
    tiny_translator,
)


def translator_that_says(words: list[list[float]], *, offset: int = 0, **options: Any) -> NagForTranslation:
    """A student whose agent i has the logits words[i] for the words 1, 2, 3, ... whatever the source."""
    student = tiny_translator(**options)
    force_words(student, words)
    with torch.no_grad():
        student.model.length_predictor.weight.zero_()
        student.model.length_predictor.bias.copy_(torch.eye(7)[offset + 3])
    return student


def captioner_that_says(words: list[list[float]], **options: Any) -> NagForCaptioning:
    """A captioner whose agent i has the logits words[i] for the words 0 (eos), 1, 2, ..."""
    captioner = tiny_captioner(num_agents=len(words), **options)
    force_words(captioner, words, first_word=0)
    return captioner


def force_words(
    model: NagForTranslation | NagForCaptioning, words: list[list[float]], first_word: int = 1
) -> None:
    table = torch.full((len(words), VOCABULARY), -9.0)
    for agent, logits in enumerate(words):
        table[agent, first_word : first_word + len(logits)] = torch.tensor(logits)
    model.lm_head.register_forward_hook(lambda module, args, out: table[: out.shape[1]].expand_as(out))


def count_calls(model: NagForTranslation | NagForCaptioning) -> dict[str, int]:
    calls = {"encoder": 0, "decoder": 0, "lm_head": 0}

    def count(name: str) -> Any:
        def hook(*args: Any) -> None:
            calls[name] += 1

        return hook

    model.model.encoder.register_forward_hook(count("encoder"))
    model.model.decoder.register_forward_hook(count("decoder"))
    model.lm_head.register_forward_hook(count("lm_head"))
    return calls


# --- one call -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_length_candidates": 5},
        {"remove_consecutive_duplicates": True},
        {"return_dict_in_generate": True, "output_scores": True},
        {"num_beams": 1, "do_sample": False, "max_length": 7},
    ],
)
def test_generate_calls_encoder_and_decoder_once_whatever_the_options(options: dict[str, Any]) -> None:
    student = tiny_translator()
    calls = count_calls(student)
    student.generate(**source_batch(), **options)
    assert calls == {"encoder": 1, "decoder": 1, "lm_head": 1}


def test_a_captioner_calls_encoder_and_decoder_once() -> None:
    captioner = tiny_captioner()
    calls = count_calls(captioner)
    captioner.generate(**feature_batch())
    assert calls == {"encoder": 1, "decoder": 1, "lm_head": 1}


def test_encoder_outputs_spare_the_encoder_call() -> None:
    student, batch = tiny_translator(), source_batch()
    encoded = student.get_encoder()(**batch)
    expected = student.generate(**batch)
    calls = count_calls(student)
    generated = student.generate(encoder_outputs=encoded, attention_mask=batch["attention_mask"])
    assert torch.equal(generated, expected)
    assert calls == {"encoder": 0, "decoder": 1, "lm_head": 1}


# --- what is decoded ------------------------------------------------------------------------------------


def test_generate_takes_the_likeliest_words_of_forward() -> None:
    student, batch = tiny_translator(), source_batch()
    student.final_logits_bias.normal_(std=4.0, generator=torch.Generator().manual_seed(0))
    output = student(**batch)
    expected = student.suppress_tokens(output.logits).argmax(-1).masked_fill(~output.agent_mask, PAD)
    assert torch.equal(student.generate(**batch), expected)


def test_the_predicted_number_of_agents_speaks_and_the_rest_is_padding() -> None:
    # offset -1: sources of 5 and 3 tokens become 4 and 2 words
    student = translator_that_says([[0.0, 5.0], [5.0, 0.0], [0.0, 5.0], [5.0, 0.0]], offset=-1)
    assert student.generate(**source_batch()).tolist() == [[2, 1, 2, 1], [2, 1, PAD, PAD]]


def test_a_translation_never_holds_eos_or_pad_even_where_they_are_likeliest() -> None:
    student = tiny_translator()
    student.final_logits_bias[:, [EOS, PAD]] = 100.0
    output = student.generate(**source_batch(), return_dict_in_generate=True)
    words = output.sequences[student(**source_batch()).agent_mask]
    assert not ((words == EOS) | (words == PAD)).any()
    raw = student(**source_batch()).logits.argmax(-1)
    assert ((raw == EOS) | (raw == PAD)).all()


def test_a_caption_ends_at_its_first_eos_which_is_kept() -> None:
    # likeliest words: 2, eos, 1, eos
    captioner = captioner_that_says([[0, 0, 5], [5, 0, 0], [0, 5, 0], [5, 0, 0]])
    assert captioner.generate(**feature_batch()).tolist() == [[2, EOS, PAD, PAD]] * 2


def test_a_caption_without_an_eos_uses_every_agent() -> None:
    captioner = captioner_that_says([[0, 0, 5], [0, 5, 0], [0, 0, 5]])
    assert captioner.generate(**feature_batch()).tolist() == [[2, 1, 2]] * 2


def test_a_row_alone_is_decoded_as_in_a_padded_batch() -> None:
    student, batch = tiny_translator(), source_batch()
    together = student.generate(**batch)
    alone = student.generate(batch["input_ids"][1:, :3])
    assert torch.equal(together[1, : alone.shape[1]], alone[0])
    assert (together[1, alone.shape[1] :] == PAD).all()


# --- options --------------------------------------------------------------------------------------------


def test_consecutive_duplicates_are_removed_on_request_alone() -> None:
    words = [[5.0, 0.0], [5.0, 0.0], [0.0, 5.0], [0.0, 5.0], [5.0, 0.0]]
    student, batch = translator_that_says(words), source_batch()
    assert student.generate(**batch).tolist() == [[1, 1, 2, 2, 1], [1, 1, 2, PAD, PAD]]
    cleaned = student.generate(**batch, remove_consecutive_duplicates=True)
    assert cleaned.tolist() == [[1, 2, 1, PAD, PAD], [1, 2, PAD, PAD, PAD]]


def test_removing_duplicates_keeps_the_eos_of_a_caption() -> None:
    captioner = captioner_that_says([[0, 5], [0, 5], [5, 0], [5, 0]])
    cleaned = captioner.generate(**feature_batch(), remove_consecutive_duplicates=True)
    assert cleaned.tolist() == [[1, EOS, PAD, PAD]] * 2


def test_the_length_candidate_with_the_best_mean_log_probability_wins() -> None:
    # Agent 2 is unsure, the others are nearly certain: of the lengths 1, 2, 3 around 2 the first is best, and
    # of 2, 3, 4 around 3 the last is, since the unsure agent has the smallest share in its mean.
    words = [[9.0, 0.0], [1.0, 0.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0]]
    source = {"input_ids": torch.tensor([[4, 8, EOS]])}
    around_two = translator_that_says(words, offset=-1)
    assert around_two.generate(**source).shape[1] == 2
    assert around_two.generate(**source, num_length_candidates=3).shape[1] == 1
    around_three = translator_that_says(words, offset=0)
    assert around_three.generate(**source, num_length_candidates=3).shape[1] == 4


def test_each_row_keeps_its_own_best_length() -> None:
    words = [[9.0, 0.0], [1.0, 0.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0], [9.0, 0.0]]
    student = translator_that_says(words, offset=-1)
    output = student.generate(**source_batch(), num_length_candidates=3, return_dict_in_generate=True)
    # around 4 the best of 3, 4, 5 is 5; around 2 the best of 1, 2, 3 is 1
    assert output.target_lengths.tolist() == [5, 1]
    assert output.sequences.tolist() == [[1] * 5, [1, PAD, PAD, PAD, PAD]]
    assert output.sequences_scores is None


def test_the_candidate_of_the_predicted_length_says_what_it_says_alone() -> None:
    # with one candidate forced by the cap, candidates are a plain decode: the source is repeated row by row
    student, batch = tiny_translator(), source_batch()
    capped = student.generate(**batch, num_length_candidates=3, max_length=1)
    assert torch.equal(capped, student.generate(**batch, max_length=1))


def test_candidates_never_exceed_the_longest_target() -> None:
    words = [[1.0, 0.0]] + [[9.0, 0.0]] * 5  # the longer the better
    student = translator_that_says(words, offset=0, max_target_length=3)
    source = {"input_ids": torch.tensor([[4, 8, EOS]])}
    assert student.generate(**source, num_length_candidates=3, max_length=20).shape[1] == 3


def test_scores_are_log_probabilities_of_the_words_and_their_mean() -> None:
    # logits (ln 3, 0) give 3/4 to word 1 and (0, ln 9) give 9/10 to word 2, once all other words are shut off
    words = [[math_log(3), 0.0], [0.0, math_log(9)]]
    student = translator_that_says(words, offset=-1)
    student.lm_head.register_forward_hook(lambda module, args, out: shut_off_others(out))
    source = {"input_ids": torch.tensor([[4, 8, EOS]])}
    output = student.generate(**source, return_dict_in_generate=True, output_scores=True)
    assert isinstance(output, NagGenerateOutput)
    expected = torch.tensor([[0.75, 0.9]]).log()
    torch.testing.assert_close(output.token_scores, expected)
    torch.testing.assert_close(output.sequences_scores, expected.mean(-1))
    assert output.target_lengths.tolist() == [2]


def math_log(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float64).log())


def shut_off_others(logits: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isin(torch.arange(VOCABULARY), torch.tensor([1, 2])), logits, -1e9)


def test_scores_follow_their_words_when_duplicates_are_removed() -> None:
    words = [[5.0, 0.0], [9.0, 0.0], [0.0, 5.0]]
    student = translator_that_says(words, offset=0)
    source = {"input_ids": torch.tensor([[4, 8, EOS]])}
    asked = {"return_dict_in_generate": True, "output_scores": True}
    plain = student.generate(**source, **asked)
    cleaned = student.generate(**source, **asked, remove_consecutive_duplicates=True)
    assert cleaned.sequences.tolist() == [[1, 2, PAD]]
    assert cleaned.token_scores[0, :2].tolist() == plain.token_scores[0, [0, 2]].tolist()
    assert cleaned.token_scores[0, 2] == 0
    assert torch.equal(cleaned.sequences_scores, plain.sequences_scores)


def test_a_captions_scores_stop_at_its_eos() -> None:
    captioner = captioner_that_says([[0, 0, 5], [5, 0, 0], [0, 5, 0]])
    output = captioner.generate(**feature_batch(), return_dict_in_generate=True, output_scores=True)
    assert (output.token_scores[:, 2] == 0).all()
    torch.testing.assert_close(output.sequences_scores, output.token_scores[:, :2].mean(-1))
    assert output.target_lengths.tolist() == [2, 2]


def test_max_length_caps_the_number_of_agents() -> None:
    student = translator_that_says([[5.0, 0.0]] * 5)
    assert student.generate(**source_batch(), max_length=4).tolist() == [[1] * 4, [1, 1, 1, PAD]]
    assert student.generate(**source_batch(), max_length=4, max_new_tokens=2).tolist() == [[1, 1]] * 2
    captioner = captioner_that_says([[0, 5]] * 4)
    assert captioner.generate(**feature_batch(), max_length=3).tolist() == [[1] * 3] * 2


def test_generate_neither_tracks_gradients_nor_changes_the_mode() -> None:
    student = tiny_translator(dropout=0.5).train()
    output = student.generate(**source_batch(), return_dict_in_generate=True, output_scores=True)
    assert not output.sequences_scores.requires_grad
    assert student.training
    student.eval()
    student.generate(**source_batch())
    assert not student.training


# --- generation_config.json -------------------------------------------------------------------------------


def test_settings_are_saved_in_generation_config_json_and_come_back(tmp_path: Path) -> None:
    words = [[5.0, 0.0]] * 6
    student = translator_that_says(words)
    student.generation_config.remove_consecutive_duplicates = True
    student.generation_config.num_length_candidates = 3
    student.save_pretrained(tmp_path)
    assert "remove_consecutive_duplicates" not in (tmp_path / "config.json").read_text()
    loaded = NagForTranslation.from_pretrained(tmp_path)
    assert isinstance(loaded.generation_config, NagGenerationConfig)
    assert loaded.generation_config.num_length_candidates == 3
    force_words(loaded, words)
    assert (loaded.generate(**source_batch())[:, 1:] == PAD).all()
    assert loaded.generate(**source_batch(), remove_consecutive_duplicates=False)[0].tolist()[:2] == [1, 1]


def test_a_folder_without_generation_settings_gets_those_of_its_configuration(tmp_path: Path) -> None:
    tiny_captioner().save_pretrained(tmp_path)
    (tmp_path / "generation_config.json").unlink()
    loaded = NagForCaptioning.from_pretrained(tmp_path)
    assert isinstance(loaded.generation_config, NagGenerationConfig)
    assert (loaded.generation_config.pad_token_id, loaded.generation_config.max_length) == (PAD, 5)


def test_a_typo_in_generation_config_json_is_an_error(tmp_path: Path) -> None:
    tiny_translator().save_pretrained(tmp_path)
    file = tmp_path / "generation_config.json"
    file.write_text(file.read_text().replace("num_length_candidates", "num_length_candidate"))
    with pytest.raises(ValueError, match="num_length_candidate.*num_length_candidates"):
        NagForTranslation.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_length_candidates": 2}, "odd"),
        ({"num_length_candidates": 0}, "odd"),
        ({"num_length_candidates": True}, "odd"),
        ({"remove_consecutive_duplicates": "yes"}, "True or False"),
        ({"max_length": 0}, "at least 1"),
        ({"num_beams": 4}, "num_beams=4.*num_beams=1.*num_length_candidates"),
        ({"do_sample": True}, "do_sample=True.*do_sample=False"),
        ({"num_return_sequences": 2}, "num_return_sequences=1"),
    ],
)
def test_an_illegal_setting_is_refused_in_the_config_and_in_the_call(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        NagGenerationConfig(**options)
    with pytest.raises(ValueError, match=says):
        tiny_translator().generate(**source_batch(), **options)


def test_length_candidates_need_the_predicted_mode() -> None:
    with pytest.raises(ValueError, match="needs length_mode='predicted'"):
        tiny_captioner().generate(**feature_batch(), num_length_candidates=3)


def test_an_unknown_keyword_is_an_error_that_names_the_legal_ones() -> None:
    with pytest.raises(TypeError, match=r"\['num_beam'\].*num_beams"):
        tiny_translator().generate(**source_batch(), num_beam=1)
    with pytest.raises(TypeError, match=r"\['input_ids'\].*features"):
        tiny_captioner().generate(input_ids=torch.tensor([[1]]))


def test_a_missing_or_doubled_source_is_an_error() -> None:
    with pytest.raises(ValueError, match="needs a source: input_ids"):
        tiny_translator().generate()
    with pytest.raises(ValueError, match="given twice"):
        tiny_translator().generate(torch.tensor([[1]]), input_ids=torch.tensor([[1]]))


def test_a_generation_config_may_be_handed_over_a_plain_one_too() -> None:
    student, batch = translator_that_says([[5.0, 0.0]] * 5), source_batch()
    own = NagGenerationConfig(remove_consecutive_duplicates=True)
    assert student.generate(**batch, generation_config=own)[0].tolist() == [1, PAD, PAD, PAD, PAD]
    plain = GenerationConfig(max_new_tokens=3)
    assert student.generate(**batch, generation_config=plain)[0].tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="remove_duplicates"):
        student.generate(**batch, generation_config=GenerationConfig(remove_duplicates=True))


def test_a_call_does_not_change_the_models_settings() -> None:
    student = tiny_translator()
    before = student.generation_config.to_dict()
    student.generate(**source_batch(), num_length_candidates=3, max_length=4)
    assert student.generation_config.to_dict() == before


# --- with transformers ------------------------------------------------------------------------------------


def test_a_trainers_batch_is_taken_whole_and_its_labels_and_lengths_are_not_used() -> None:
    student, batch = tiny_translator(), source_batch()
    labels = torch.full((2, 9), 5)
    generated = student.generate(
        **batch, labels=labels, target_lengths=torch.tensor([9, 9]), synced_gpus=False, use_cache=True
    )
    assert torch.equal(generated, student.generate(**batch))


def test_seq2seq_trainer_decodes_with_it(tmp_path: Path) -> None:
    student = translator_that_says([[5.0, 0.0]] * 22, offset=2)
    # 20 source tokens: 22 words, more than the 20 tokens that transformers' default max_length would leave
    rows = [
        {"input_ids": [4] * 19 + [EOS], "attention_mask": [1] * 20, "labels": [7] * 22, "target_lengths": 22}
        for _ in range(4)
    ]
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(tmp_path),
        predict_with_generate=True,
        per_device_eval_batch_size=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Seq2SeqTrainer(model=student, args=arguments, eval_dataset=rows)
    predictions = trainer.predict(rows, num_beams=1).predictions
    assert predictions.shape == (4, student.config.max_target_length)
    assert (predictions[:, :22] == 1).all()
    assert (predictions[:, 22:] == PAD).all()
