"""recipes/own_teacher: a MarianMT model and two text files in, a student of it out, by one command."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
)

from hf_cmal.cli.main import main
from hf_cmal.training.ladder import ladder_paths, run_ladder
from hf_cmal.training.stage_report import read_stage_reports
from tests.training.miniature import RECIPES, miniature, write_pairs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*decoding limit", "ignore:.*held out", "ignore:.*wrote nothing"),
]


def save_teacher(folder: Path, sentences: list[str]) -> Path:
    """A random Marian of options unlike ours, with a word tokenizer that needs no sentencepiece."""
    words = sorted({word for sentence in sentences for word in sentence.split()})
    entries = {word: index for index, word in enumerate(["</s>", "<unk>", *words, "<pad>"])}
    backend = Tokenizer(models.WordLevel(entries, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", unk_token="<unk>", pad_token="<pad>", model_max_length=40
    )
    config = MarianConfig(
        vocab_size=len(entries), d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=20, activation_function="swish",
        scale_embedding=True, max_position_embeddings=40, pad_token_id=len(entries) - 1, eos_token_id=0,
        decoder_start_token_id=len(entries) - 1, forced_eos_token_id=0, init_std=0.3,
    )  # fmt: skip
    teacher = MarianMTModel(config)
    teacher.generation_config.bad_words_ids = [[len(entries) - 1]]
    teacher.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, Path]:
    """A folder with the teacher and the text, and the folder that the command filled."""
    given = tmp_path_factory.mktemp("given")
    sources, targets = write_pairs(given, 60)
    save_teacher(given / "teacher", [*sources, *targets])
    root = given / "made"
    main(["run", str(miniature("own_teacher", given / "recipes")), *words(given, root)])
    return given, root


def words(given: Path, root: Path) -> list[str]:
    return [
        f"root={root}",
        f"teacher={given}/teacher",
        f"data.train=[{given}/train.en,{given}/train.de]",
        "data.max_source_length=36",
        "data.max_target_length=36",
        "model.max_length_offset=8",
    ]


def test_the_student_has_the_teachers_tokenizer_shape_and_options(made):
    given, root = made
    teacher, student = (
        AutoModelForSeq2SeqLM.from_pretrained(f) for f in (given / "teacher", root / "05_cmal")
    )
    for name in (
        "vocab_size", "d_model", "encoder_layers", "decoder_layers", "decoder_attention_heads",
        "encoder_ffn_dim", "decoder_ffn_dim", "activation_function", "scale_embedding", "pad_token_id",
    ):  # fmt: skip
        assert getattr(student.config, name) == getattr(teacher.config, name), name
    vocabularies = [
        AutoTokenizer.from_pretrained(f).get_vocab() for f in (given / "teacher", root / "05_cmal")
    ]
    assert vocabularies[0] == vocabularies[1]


def test_the_result_compares_the_student_with_the_very_teacher(made):
    _given, root = made
    result = json.loads((root / "07_evaluate" / "result.json").read_text())
    assert list(result["systems"]) == ["teacher_beam4", "nat_xe", "nat_cmal", "nat_cmal_postprocess"]
    assert result["rows"] == 2  # a twentieth of what validation leaves
    assert result["systems"]["teacher_beam4"]["kind"] == "teacher"


def test_what_was_skipped_and_held_out_stands_in_the_reports_and_in_the_result(made):
    _given, root = made
    reports = read_stage_reports(root)
    assert list(reports) == ["03_distill", "04_student_xe", "05_cmal", "07_evaluate"]
    for report in reports.values():
        assert report["seconds"] > 0
        skipped = "\n".join(report["skipped"])
        assert "Skipped 1 of 61 pairs with an empty line" in skipped
        assert "data.validation is empty: 3 of 60 training pairs are held out" in skipped
        assert "data.test is empty: 2 of 57 training pairs are held out" in skipped
    result = json.loads((root / "07_evaluate" / "result.json").read_text())
    assert result["stages"]["05_cmal"] == reports["05_cmal"]


def test_the_command_started_again_finds_its_work_done(made):
    given, root = made
    weights = (root / "05_cmal" / "model.safetensors").read_bytes()
    announced = []
    run_ladder(given / "recipes", words(given, root), announce=lambda path: announced.append(path.stem))
    assert announced == ["03_distill", "04_student_xe", "05_cmal", "07_evaluate"]
    assert (root / "05_cmal" / "model.safetensors").read_bytes() == weights


def test_a_teacher_of_few_positions_is_refused_before_it_writes_beyond_them(made, tmp_path):
    """The sentences are short, but a teacher that does not find an end writes up to the limit."""
    given, _ = made
    options = [word for word in words(given, tmp_path / "new") if not word.startswith("data.max")]
    with pytest.raises(ValueError, match="knows 40 positions, but sequences may have 129 tokens.*at most 39"):
        run_ladder(given / "recipes", options)
    assert not list((tmp_path / "new" / "03_distill").glob("shard*"))


def test_a_mistake_in_the_last_recipe_is_found_before_the_first_is_run(made, tmp_path):
    given, _ = made
    folder = miniature("own_teacher", tmp_path / "recipes")
    with (folder / "07_evaluate.yaml").open("a") as file:
        file.write("seeds: 3\n")
    with pytest.raises(ValueError, match=r"07_evaluate\.yaml: unknown key 'seeds'"):
        run_ladder(folder, words(given, tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_without_a_teacher_or_text_the_command_asks_for_them(capsys):
    with pytest.raises(SystemExit):
        main(["run", str(RECIPES / "own_teacher")])
    assert "add data.train=... teacher=..." in capsys.readouterr().err


def test_a_folder_without_recipes_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"no numbered recipes in {tmp_path}"):
        ladder_paths(tmp_path)
