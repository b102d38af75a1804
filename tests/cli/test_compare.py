"""`hf-cmal translate --compare`: a student and its teacher, sentence by sentence."""

import re
import shutil
from pathlib import Path

import pytest

from hf_cmal.cli.main import main
from hf_cmal.cli.translator import Translator
from hf_cmal.data.toy import toy_translation

SENTENCES = list(toy_translation(3, seed=0, split="test")["source"])
TIMED = re.compile(r"  (\S+) +(\d+\.\d) ms  (.*)")


def test_each_sentence_stands_above_both_translations_with_their_times(translators, capsys):
    student, teacher = f"{translators}/student", f"{translators}/teacher"
    main(["translate", "--model", student, "--compare", teacher, *SENTENCES, " "])
    *blocks, mean = capsys.readouterr().out.splitlines()
    assert blocks[::3] == SENTENCES
    rows = [[TIMED.fullmatch(line) for line in blocks[start::3]] for start in (1, 2)]
    assert all(match for row in rows for match in row)
    for row, folder in zip(rows, (student, teacher), strict=True):
        assert {match[1] for match in row} == {Path(folder).name}
        assert [match[3] for match in row] == list(Translator(folder).translate(SENTENCES, batch_size=1))
    times = [[float(match[2]) for match in row] for row in rows]
    printed = re.fullmatch(r"mean: (\d+\.\d) ms and (\d+\.\d) ms, (\d+\.\d) x faster", mean)
    assert printed
    for value, row in zip(printed.groups()[:2], times, strict=True):
        assert float(value) == pytest.approx(sum(row) / 3, abs=0.11)
    assert float(printed[3]) == pytest.approx(sum(times[1]) / sum(times[0]), rel=0.1, abs=0.06)


def test_the_faster_teacher_is_said_to_be_so(translators, capsys):
    """The teacher in the student's place: the ratio never reads "0.1 x faster"."""
    main(
        ["translate", "--model", f"{translators}/teacher", "--compare", f"{translators}/student", *SENTENCES]
    )
    mean = capsys.readouterr().out.splitlines()[-1]
    ratio, verdict = re.search(r"ms, (\d+\.\d) x (\w+)", mean).groups()
    assert (float(ratio), verdict) >= (1.0, "slower")


def test_a_model_is_not_compared_with_itself(translators, capsys):
    with pytest.raises(SystemExit):
        main(["translate", "--model", f"{translators}/student", "--compare", f"{translators}/student", "a"])
    assert "--compare names the model itself" in capsys.readouterr().err


def test_two_folders_of_one_name_are_told_apart(translators, tmp_path, capsys):
    (tmp_path / "student").symlink_to(translators / "teacher")
    paths = [f"{translators}/student", f"{tmp_path}/student"]
    # the name of what a link leads to is the model's
    main(["translate", "--model", paths[0], "--compare", paths[1], SENTENCES[0]])
    assert [TIMED.fullmatch(line)[1] for line in capsys.readouterr().out.splitlines()[1:3]] == [
        "student",
        "teacher",
    ]
    copy = shutil.copytree(translators / "student", tmp_path / "copy" / "student")
    main(["translate", "--model", paths[0], "--compare", str(copy), SENTENCES[0]])
    shown = capsys.readouterr().out
    assert paths[0] in shown and str(copy) in shown


def test_a_sentence_that_was_cut_is_marked(translators, capsys):
    long = " ".join(SENTENCES * 20)
    main(["translate", "--model", f"{translators}/student", "--compare", f"{translators}/teacher", long])
    assert capsys.readouterr().out.count("(cut to 48 tokens)") == 2


def test_without_a_sentence_nothing_is_compared(translators, tmp_path, capsys):
    (tmp_path / "empty").write_text("\n\n")
    words = ["--model", f"{translators}/student", "--compare", f"{translators}/teacher"]
    main(["translate", *words, "--input", str(tmp_path / "empty")])
    assert capsys.readouterr().out == ""


def test_an_unknown_teacher_is_named(translators, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["translate", "--model", f"{translators}/student", "--compare", "/nowhere", SENTENCES[0]])
    assert stop.value.code == 2
    assert "/nowhere" in capsys.readouterr().err
