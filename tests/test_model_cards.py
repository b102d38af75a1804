"""The published translators: complete, true to the measured result, and found by the commands."""

import gzip
import json
import os
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_cmal.cli.default_model import CLONE, MODEL_VARIABLE, STUDENT, TEACHER, describe_model, find_model
from hf_cmal.cli.demo import SENTENCES
from hf_cmal.cli.main import main
from hf_cmal.evaluation.report import HEADLINE, read_results
from hf_cmal.metrics.bleu import translation_scores
from tests.hub.isolation import run_isolated
from tests.training.miniature import miniature, write_pairs

ROOT = Path(__file__).resolve().parents[1]
CARDS = ROOT / "model_cards"
NAMES = [STUDENT, TEACHER]


def card(name: str) -> ModelCard:
    return ModelCard.load(CARDS / name / "README.md")


def translations(name: str, sentences: list[str], **settings) -> list[str]:
    model = AutoModelForSeq2SeqLM.from_pretrained(CARDS / name).eval()
    tokenizer = AutoTokenizer.from_pretrained(CARDS / name)
    inputs = tokenizer(sentences, return_tensors="pt", padding=True)
    return tokenizer.batch_decode(model.generate(**inputs, **settings), skip_special_tokens=True)


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_are_small_half_precision_on_disk_and_float32_in_memory(name):
    weights = CARDS / name / "model.safetensors"
    assert weights.stat().st_size <= 20e6
    assert {tensor.dtype for tensor in load_file(weights).values()} == {torch.float16}
    assert json.loads((CARDS / name / "config.json").read_text())["dtype"] == "float32"
    assert AutoModelForSeq2SeqLM.from_pretrained(CARDS / name).dtype == torch.float32


@pytest.mark.parametrize("name", NAMES)
def test_the_card_says_licence_domain_and_exactly_what_was_measured(name):
    data = card(name).data
    assert (data.license, data.license_name) == ("other", "non-commercial-research")
    assert data.get("domain") == "image descriptions"
    assert "non-commercial research only" in " ".join((CARDS / name / "LICENSE").read_text().split())
    measured = [
        {scores[key.removesuffix("_signature")] for key in scores if key.endswith("_signature")}
        for result in read_results(ROOT / "recipes" / HEADLINE)
        for scores in result["systems"].values()
    ]
    claimed = {entry.metric_value for entry in data.eval_results}
    assert any(claimed <= scores for scores in measured)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_without_hf_cmal_the_folder_gives_the_same_translations(name, tmp_path):
    code = f"""
import importlib.util, json
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
assert importlib.util.find_spec("hf_cmal") is None
folder = {str(CARDS / name)!r}
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True).eval()
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
inputs = tokenizer({list(SENTENCES)!r}, return_tensors="pt", padding=True)
print(json.dumps(tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)))
"""
    found = run_isolated(code, hidden=["hf_cmal"], home=tmp_path)
    assert found == translations(name, list(SENTENCES))
    assert all(text.endswith(".") and len(text.split()) > 3 for text in found)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_snippet_of_the_card_runs_in_the_clone_without_hf_cmal(name, tmp_path):
    (tmp_path / "model_cards").symlink_to(CARDS, target_is_directory=True)
    snippet = card(name).content.split("```python\n")[1].split("```")[0]
    code = f"""
import contextlib, io, json
with contextlib.redirect_stdout(io.StringIO()) as output:
    exec({snippet!r}, {{}})
print(json.dumps(output.getvalue()))
"""
    printed = run_isolated(code, hidden=["hf_cmal"], home=tmp_path)
    assert len(printed.split()) > 3


def test_the_student_is_what_translate_uses_where_nothing_is_named(monkeypatch):
    monkeypatch.delenv(MODEL_VARIABLE, raising=False)
    assert Path(find_model(None)) == CARDS / STUDENT
    assert CLONE == ROOT
    assert describe_model(find_model(None)) == (
        f"{STUDENT}, for image descriptions; licence: non-commercial-research"
    )


def test_a_thousand_lines_come_out_in_their_order(tmp_path, monkeypatch):
    """Lines of all lengths, shuffled, an empty one among them; each is translated as it is alone."""
    monkeypatch.delenv(MODEL_VARIABLE, raising=False)
    lines = [" ".join(SENTENCES[i % 5].split()[: 1 + i % 9]) if i != 500 else "" for i in range(1000)]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    main(["translate", "--input", str(tmp_path / "in.txt"), "--output", str(tmp_path / "out.txt")])
    written = (tmp_path / "out.txt").read_text(encoding="utf-8").split("\n")
    assert written.pop() == "" and len(written) == 1000
    alone = {line: translations(STUDENT, [line])[0] for line in sorted(set(lines)) if line} | {"": ""}
    assert written == [alone[line] for line in lines]


@pytest.mark.slow
@pytest.mark.skipif("HF_CMAL_DATA" not in os.environ, reason="HF_CMAL_DATA names no folder with multi30k")
@pytest.mark.parametrize("name", NAMES)
def test_the_published_weights_have_the_bleu_of_their_card(name):
    """On the test sentences, decoded as the card says; half precision moves BLEU by a rounding only."""
    folder = Path(os.environ["HF_CMAL_DATA"]) / "multi30k"
    sources, targets = (
        gzip.open(folder / f"test_2016_flickr.{side}.gz", "rt", encoding="utf-8").read().splitlines()
        for side in ("en", "de")
    )
    hypotheses = [text for i in range(0, 1000, 100) for text in translations(name, sources[i : i + 100])]
    scores = translation_scores(hypotheses, [[target] for target in targets])
    claimed = {entry.metric_name: entry.metric_value for entry in card(name).data.eval_results}
    assert scores["bleu"] == pytest.approx(claimed["BLEU"], abs=0.1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*held out", "ignore:.*decoding limit", "ignore:.*wrote nothing")
def test_the_published_teacher_makes_a_student_of_ones_own_text(tmp_path):
    """`recipes/own_teacher` in small: its student has the teacher's words and shape, and translates."""
    write_pairs(tmp_path, 60)
    root = tmp_path / "made"
    files = f"data.train=[{tmp_path}/train.en,{tmp_path}/train.de]"
    lengths = ["data.max_source_length=64", "data.max_target_length=64"]
    recipes = miniature("own_teacher", tmp_path / "recipes")
    main(["run", str(recipes), f"root={root}", f"teacher={CARDS / TEACHER}", files, *lengths])
    student = AutoModelForSeq2SeqLM.from_pretrained(root / "05_cmal")
    teacher = AutoModelForSeq2SeqLM.from_pretrained(CARDS / TEACHER)
    assert student.config.d_model == teacher.config.d_model
    words = AutoTokenizer.from_pretrained(root / "05_cmal").get_vocab()
    assert words == AutoTokenizer.from_pretrained(CARDS / TEACHER).get_vocab()
    result = json.loads((root / "07_evaluate" / "result.json").read_text())
    assert result["systems"]["teacher_beam4"]["parameters"] == teacher.num_parameters()
