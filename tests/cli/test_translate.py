"""`hf-cmal translate` with a tiny teacher and a tiny student, through the command line's own entry."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from hf_cmal.cli.default_model import MODEL_VARIABLE
from hf_cmal.cli.main import main
from hf_cmal.cli.translator import CHUNK, Translator
from hf_cmal.data.toy import toy_translation

SENTENCES = list(toy_translation(8, seed=0, split="test")["source"])


NAMES_THE_MODEL = re.compile(r"^hf-cmal: \w+ \(it has no card that names its domain and licence\)\n", re.M)


@pytest.fixture(autouse=True)
def no_model_from_outside(monkeypatch):
    monkeypatch.delenv(MODEL_VARIABLE, raising=False)


@pytest.fixture
def student(translators) -> str:
    return f"{translators}/student"


@pytest.fixture
def run(capsys):
    """words -> (exit code, standard output, standard error without the line that names the model)."""

    def run(*words):
        code = 0
        try:
            main(["translate", *map(str, words)])
        except SystemExit as stop:
            code = stop.code
        captured = capsys.readouterr()
        return code, captured.out, NAMES_THE_MODEL.sub("", captured.err)

    return run


@pytest.fixture(scope="module")
def expected(translators) -> dict[str, str]:
    """Each sentence by itself, through the model's own `generate`."""
    translator = Translator(f"{translators}/student")
    written = {}
    for sentence in SENTENCES:
        tokens = translator.model.generate(
            **translator.tokenizer(sentence, return_tensors="pt"), remove_consecutive_duplicates=True
        )
        written[sentence] = translator.tokenizer.decode(tokens[0], skip_special_tokens=True)
    assert len({written[sentence] for sentence in SENTENCES[:3]}) == 3  # else any order would do
    return written


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_sentences_of_the_command_line_come_out_one_a_line_in_order(run, student, expected):
    code, out, err = run("--model", student, *SENTENCES[:3])
    assert (code, out) == (0, "".join(expected[s] + "\n" for s in SENTENCES[:3]))
    assert err == ""  # no bars, no warnings


def test_a_line_on_standard_error_names_the_model(student, capsys):
    main(["translate", "--model", student, SENTENCES[0]])
    assert NAMES_THE_MODEL.fullmatch(capsys.readouterr().err)


def test_the_model_can_come_from_the_environment(run, student, expected, monkeypatch):
    monkeypatch.setenv(MODEL_VARIABLE, student)
    assert run(SENTENCES[0])[1] == expected[SENTENCES[0]] + "\n"


def test_a_file_keeps_its_order_and_its_empty_lines(run, student, expected, tmp_path):
    lines = ["", SENTENCES[2], SENTENCES[0], "", "  ", SENTENCES[1]]
    code, out, _ = run(
        "--model", student, "--input", write(tmp_path / "in.txt", lines), "--output", tmp_path / "out"
    )
    assert (code, out) == (0, "")
    written = (tmp_path / "out").read_text(encoding="utf-8")
    assert written == "".join(expected.get(line, "") + "\n" for line in lines)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", "out"]


def test_windows_line_ends_and_a_byte_order_mark_are_no_words(run, student, expected, tmp_path):
    (tmp_path / "in.txt").write_bytes(b"\xef\xbb\xbf" + f"{SENTENCES[0]}\r\n{SENTENCES[1]}".encode())
    out = run("--model", student, "--input", tmp_path / "in.txt")[1]
    assert out == f"{expected[SENTENCES[0]]}\n{expected[SENTENCES[1]]}\n"


def test_standard_input_is_read_where_nothing_else_is_given(run, student, expected, tmp_path, monkeypatch):
    with open(write(tmp_path / "in.txt", SENTENCES[:2])) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert run("--model", student)[1] == f"{expected[SENTENCES[0]]}\n{expected[SENTENCES[1]]}\n"


def test_a_teachers_folder_works_too_with_the_beams_of_its_generation_config(run, translators):
    translator = Translator(f"{translators}/teacher")
    assert translator.model.generation_config.num_beams == 4
    tokens = translator.model.generate(**translator.tokenizer(SENTENCES[0], return_tensors="pt"), num_beams=4)
    text = translator.tokenizer.decode(tokens[0], skip_special_tokens=True)
    assert run("--model", f"{translators}/teacher", SENTENCES[0])[:2] == (0, text + "\n")


def test_duplicates_are_removed_unless_they_are_kept(run, student):
    removed, kept = (run("--model", student, *words, *SENTENCES)[1] for words in ((), ("--keep-duplicates",)))
    assert len(removed) < len(kept)


def test_a_thousand_lines_keep_their_order_whatever_the_batches(student, expected):
    lines = [SENTENCES[(7 * i + i // 9) % len(SENTENCES)] if i % 10 else "" for i in range(1000)]
    translations = list(Translator(student).translate(lines, batch_size=8))
    assert translations == [expected.get(line, "") for line in lines]


def test_no_more_than_one_chunk_of_batches_is_read_ahead(student):
    taken = []

    def endless():
        while True:
            taken.append(None)
            yield SENTENCES[len(taken) % 2]

    next(Translator(student).translate(endless(), batch_size=2))
    assert len(taken) == 2 * CHUNK


def test_unknown_characters_are_translated_without_complaint(run, student):
    code, out, err = run("--model", student, "日本語 \U0001f600 \u0000 ß")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1


def test_a_line_break_that_the_model_writes_does_not_shift_the_lines(student):
    translator = Translator(student)
    (line_break,) = translator.tokenizer.convert_tokens_to_ids(["Ċ"])  # byte-level BPE writes "\n" so
    translator.model.final_logits_bias[..., line_break] = 1e4
    assert set(next(translator.translate([SENTENCES[0]]))) == {" "}


def test_a_very_long_sentence_is_cut_and_counted_in_one_warning(run, student, tmp_path):
    limit = Translator(student).max_source_length
    lines = [SENTENCES[0], "a " * (limit + 5), *[SENTENCES[1]] * 3, "b " * 5000]
    code, out, err = run("--model", student, "--input", write(tmp_path / "in.txt", lines), "--batch-size", 2)
    assert (code, out.count("\n")) == (0, 6)
    assert err == f"hf-cmal: 2 sentences are longer than {limit} tokens and were cut (first lines: 2, 6)\n"


def test_a_sentence_that_just_fits_is_not_cut(student):
    translator = Translator(student)
    words = " ".join(["a"] * (translator.max_source_length - 1))  # one id each, and the eos
    assert len(translator.tokenizer(words)["input_ids"]) == translator.max_source_length
    list(translator.translate([words]))
    assert translator.cut_lines == []
    list(translator.translate([words + " a"]))
    assert translator.cut_lines == [1]


def test_a_reader_that_stops_early_ends_it_quietly(student, monkeypatch, capsys):
    end_of_reader, end_of_writer = os.pipe()
    os.close(end_of_reader)  # as `head` does
    with os.fdopen(end_of_writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        main(["translate", "--model", student, SENTENCES[0]])
        stdout.write("what Python still writes while it ends")
    assert NAMES_THE_MODEL.fullmatch(capsys.readouterr().err)


# --- bad input: one line on stderr, exit code 2


def refused(result) -> str:
    code, out, err = result
    assert (code, out) == (2, "")
    assert err.startswith("hf-cmal: ")
    assert err.count("\n") == 1, "more than one line"
    return err


@pytest.mark.parametrize("name", ["not/a/folder", "nobody/no-model"])
def test_a_folder_that_is_not_there_is_named(run, name):
    assert f"there is no folder '{name}'" in refused(run("--model", name, "x"))


def test_a_folder_without_a_model_is_named(run, tmp_path):
    assert f"'{tmp_path}' holds no model that can be opened" in refused(run("--model", tmp_path, "x"))


@pytest.mark.parametrize("content", [None, b"a file that was cut in the middle"])
def test_missing_and_broken_weights_are_named(run, student, tmp_path, content):
    shutil.copytree(student, tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.unlink()
    if content is not None:
        weights.write_bytes(content)
    assert f"'{tmp_path}/model' holds no model that can be opened" in refused(
        run("--model", tmp_path / "model", "x")
    )


def test_a_missing_tokenizer_is_named(run, student, tmp_path):
    shutil.copytree(student, tmp_path / "model")
    for path in (tmp_path / "model").glob("tokenizer*"):
        path.unlink()
    error = refused(run("--model", tmp_path / "model", "x"))
    assert f"'{tmp_path}/model' holds no tokenizer that can be opened" in error


@pytest.mark.parametrize("role", ["student", "teacher"])
def test_a_captioning_model_is_refused_by_name(run, captioners, role):
    error = refused(run("--model", f"{captioners}/{role}", "x"))
    assert f"{captioners}/{role} holds a captioning model" in error


def test_a_model_that_writes_nothing_is_refused_by_its_type(run, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "a model of type 'bert'" in refused(run("--model", tmp_path, "x"))


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one_is_refused(run, student, size):
    assert f"--batch-size is {size}; give 1 or more" in refused(
        run("--model", student, f"--batch-size={size}", "x")
    )


def test_sentences_and_a_file_together_are_refused(run, student):
    assert "not both" in refused(run("--model", student, "--input", "in.txt", "x"))


def test_an_input_that_is_not_there_is_named(run, student):
    assert "gone.txt" in refused(run("--model", student, "--input", "gone.txt"))


def test_input_that_is_not_utf8_is_named(run, student, tmp_path):
    (tmp_path / "latin.txt").write_bytes("schön\n".encode("latin-1"))
    output = tmp_path / "out"
    error = refused(run("--model", student, "--input", tmp_path / "latin.txt", "--output", output))
    assert f"{tmp_path}/latin.txt is not UTF-8" in error
    assert not output.exists()


def test_words_of_the_command_line_that_are_not_utf8_are_refused(run, student):
    assert "not UTF-8" in refused(run("--model", student, "sch\udcf6n"))


def test_the_input_is_not_overwritten(run, student, tmp_path):
    source = write(tmp_path / "in.txt", SENTENCES)
    (tmp_path / "link").symlink_to(source)
    for name in ("in.txt", "link"):
        assert "the same file" in refused(
            run("--model", student, "--input", source, "--output", tmp_path / name)
        )
    assert source.read_text(encoding="utf-8").splitlines() == SENTENCES


def test_an_older_output_survives_a_model_that_does_not_open(run, tmp_path):
    output = write(tmp_path / "out", ["what was here"])
    refused(run("--model", tmp_path / "gone", "--output", output, "x"))
    assert output.read_text() == "what was here\n"
    assert list(tmp_path.iterdir()) == [output]


def test_an_interrupted_run_leaves_no_half_output(run, student, tmp_path, monkeypatch):
    output = write(tmp_path / "out", ["what was here"])
    translate_chunk = Translator._translate_chunk

    def interrupted(self, lines, batch_size, *, first_line):
        if first_line > 1:
            raise KeyboardInterrupt
        return translate_chunk(self, lines, batch_size, first_line=first_line)

    monkeypatch.setattr(Translator, "_translate_chunk", interrupted)
    source = write(tmp_path / "in.txt", [SENTENCES[0]] * (CHUNK + 1))
    code, _, err = run("--model", student, "--batch-size", 1, "--input", source, "--output", output)
    assert (code, err.count("\n")) == (130, 1)
    assert output.read_text() == "what was here\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", "out"]


def test_a_device_is_written_to_and_not_replaced(run, student):
    assert run("--model", student, "--output", os.devnull, SENTENCES[0])[0] == 0
    assert not Path(os.devnull).is_file()


def test_an_output_in_a_folder_that_is_not_there_is_refused_before_the_model_is_opened(run, tmp_path):
    assert "gone/out" in refused(run("--model", "not/a/folder", "--output", tmp_path / "gone" / "out", "x"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--input", "{folder}/nothing.txt"], "--input is {folder}/nothing.txt, which does not exist"),
        (["--input", "{folder}"], "--input is {folder}, a folder; give a file"),
        (["--output", "{folder}", "a"], "--output is {folder}, a folder; give a file"),
        (
            ["--output", "{folder}/no/out.txt", "a"],
            "--output is {folder}/no/out.txt, but its folder does not exist; create it first",
        ),
    ],
)
def test_a_file_that_cannot_be_read_or_written_is_named_with_its_option(
    translators, tmp_path, capsys, words, message
):
    with pytest.raises(SystemExit):
        main(["translate", "--model", f"{translators}/student", *(w.format(folder=tmp_path) for w in words)])
    assert message.format(folder=tmp_path) in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
