"""METEOR as a reward: against pycocoevalcap's own class where there is Java, and how it is asked, with a
program in Java's place that speaks the same lines.
"""

import gc
import os
import re
import shutil
import subprocess
import sys
import threading
import warnings
from importlib import metadata
from pathlib import Path

import pytest
import torch

from hf_cmal.rewards import get_reward
from hf_cmal.rewards.meteor import MeteorProgram, MeteorReward
from hf_cmal.sampling import Edits
from hf_cmal.training.cmal_trainer import CmalTrainer
from tests.training.tiny import captioner, make_rows, make_trainer
from tests.training.tiny import decode as words_of

PATH = "hf_cmal.rewards.meteor.MeteorReward"
EOS = 0
WORDS = ["</s>", "a", "cat", "dog", "sat", "die", "oops"]

# Counts shared words instead of METEOR's alignment: "matches length" of the best reference are its
# statistics, their quotient is the score. What it is asked is written down; two words make it misbehave.
STAND_IN = """
import os, sys
log = open(os.environ["METEOR_LOG"], "a", encoding="utf-8")
print(os.getpid(), *sys.argv[1:], file=log, flush=True)
for line in sys.stdin.buffer:
    line = line.decode("utf-8")
    print(line, end="", file=log, flush=True)
    kind, *parts = [part.strip() for part in line.split("|||")]
    if "die" in line.split():
        sys.exit("java.lang.OutOfMemoryError")
    if kind == "SCORE":
        *references, said = [part.split() for part in parts]
        best = max(len(set(said) & set(r)) / max(len(said), len(r)) for r in references)
        print("oops" if "oops" in said else best, 1, flush=True)
    else:
        for part in [*parts, "0 1"]:
            print(part.split()[0], flush=True)
"""


@pytest.fixture
def java(tmp_path, monkeypatch) -> Path:
    """Puts the stand-in on PATH, alone; gives the file of what it was asked."""
    program, log = tmp_path / "bin" / "java", tmp_path / "log"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -IS{STAND_IN}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("METEOR_LOG", str(log))
    return log


@pytest.fixture
def program(java):
    program = MeteorProgram()
    yield program
    program.close()


def asked(log: Path) -> list[str]:
    """The lines since the start, without those that load the tables."""
    return log.read_text(encoding="utf-8").splitlines()[3:]


def decode(sentences) -> list[str]:
    return [" ".join(WORDS[word] for word in sentence) for sentence in sentences]


def make() -> MeteorReward:
    with pytest.warns(UserWarning, match="meteor takes about"):
        return get_reward(PATH, decode=decode)


# ---- against pycocoevalcap, with Java ---

SENTENCES = [
    ("a man rides a horse", ["a man riding horses", "the man is on a horse"]),  # stems
    ("A dog sits, on the couch!", ["the puppy is sitting on a sofa", "a dog on a couch"]),  # synonyms
    ("two cats", ["two cats"]),
    ("completely unrelated words", ["a dog on a couch"]),
    ("a a a a a a", ["a cat sat on the mat"]),
    ("", ["a cat sat on the mat"]),
    ("...", ["a cat sat on the mat"]),
    ("the mat on sat cat a", ["a cat sat on the mat"]),  # order
]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")
def test_scores_equal_those_of_pycocoevalcap_and_words_beyond_ascii_arrive_as_they_are(monkeypatch):
    from pycocoevalcap.meteor.meteor import Meteor

    monkeypatch.setenv("LC_ALL", "C")  # where Java's own guess is ASCII
    groups = dict(enumerate(references for _, references in SENTENCES))
    reference = Meteor()
    _, expected = reference.compute_score(groups, {i: [text] for i, (text, _) in enumerate(SENTENCES)})
    del reference
    program = MeteorProgram()
    ours = program.scores([text for text, _ in SENTENCES], list(groups.values()))
    assert ours == pytest.approx(expected, abs=1e-12)
    assert ours[2] == 1.0 and ours[3] == ours[5] == 0.0 and 0 < ours[7] < 0.9
    # asked in another order, and again: an answer belongs to its question
    assert program.scores([text for text, _ in SENTENCES][::-1], list(groups.values())[::-1]) == ours[::-1]
    same, other = program.scores(["der Bär", "der Bör"], [["der Bär"], ["der Bär"]])
    assert same == 1.0 and other < 0.9
    newline, separators = program.scores(["two\ncats", "two ||| cats"], [["two cats"], ["two ||| cats"]])
    assert newline == separators == 1.0
    program.close()


# ---- without Java ---


def test_without_java_it_says_what_to_install_before_anything_is_scored(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"no `java` on PATH: install .*or choose a reward"):
        get_reward(PATH, decode=decode)
    with pytest.raises(FileNotFoundError, match="no `java` on PATH"):
        get_reward(f"gleu + 0.5 * {PATH}", decode=decode)
    assert get_reward("gleu + 0.5 * repetition")


def test_a_java_that_does_not_start_is_named_with_what_it_said(java):
    (java.parent / "bin" / "java").write_text(
        "#!/bin/sh\necho 'Could not reserve enough space' >&2\nexit 1\n"
    )
    with pytest.raises(ChildProcessError, match=r"ended with code 1 and said: Could not reserve.*2 GB"):
        MeteorProgram()


# ---- how it is asked ---


def test_it_is_asked_in_the_words_of_pycocoevalcap(program, java):
    assert program.scores(["a cat", "a dog sat"], [["a cat sat", "cat"], ["a dog sat"]]) == [2 / 3, 1.0]
    assert asked(java) == [
        "SCORE ||| a cat sat ||| cat ||| a cat",
        "SCORE ||| a dog sat ||| a dog sat",
        f"EVAL ||| {2 / 3} 1 ||| 1.0 1",
    ]
    started = java.read_text().splitlines()[0].split()
    assert started[1:] == [
        "-Xmx2G", "-jar", "meteor-1.5.jar", "-", "-", "-stdio", "-l", "en", "-norm",
    ]  # fmt: skip


def test_line_breaks_and_separators_do_not_reach_the_protocol(program, java):
    texts = ["a\ncat", "a\r\ncat\u2028", "a ||| cat", "a|||cat", "a \t cat ", "ä ||| cat"]
    assert program.scores(texts, [["a ||| cat\n"]] * 6) == [1.0] * 5 + [0.5]
    assert asked(java)[:6] == ["SCORE ||| a cat ||| a cat"] * 5 + ["SCORE ||| a cat ||| ä cat"]


def test_an_empty_sentence_is_worth_nothing_and_is_not_asked(program, java):
    assert program.scores(["", "a cat", " |||\n"], [["a cat"]] * 3) == [0.0, 1.0, 0.0]
    assert len(asked(java)) == 2
    assert program.scores([""], [["a cat"]]) == [0.0]
    assert program.scores([], []) == []
    assert len(asked(java)) == 2


@pytest.mark.parametrize("references", [[], [""], ["a cat", " ||| \n"]])
def test_a_sentence_without_a_reference_is_refused_and_the_next_one_is_answered(program, references):
    with pytest.raises(ValueError, match="'a dog' against .*none that is empty"):
        program.scores(["a cat", "a dog"], [["a cat"], references])
    assert program.scores(["a cat"], [["a cat"]]) == [1.0]


# ---- its death ---


def test_its_death_is_an_error_that_says_why_and_never_a_wrong_score(program):
    with pytest.raises(ChildProcessError, match=r"ended with code 1 and said: java\.lang\.OutOfMemoryError"):
        program.scores(["a cat", "die"], [["a cat"], ["a dog"]])
    with pytest.raises(ChildProcessError, match="was ended: make a new reward"):
        program.scores(["a cat"], [["a cat"]])


def test_an_answer_that_is_no_number_is_an_error_and_the_last(program):
    with pytest.raises(ChildProcessError, match="answered no number: .*oops"):
        program.scores(["oops", "a cat"], [["a cat"], ["a cat"]])
    with pytest.raises(ChildProcessError, match="was ended"):
        program.scores(["a cat"], [["a cat"]])


def test_killed_from_outside_it_is_an_error(program, java):
    os.kill(int(java.read_text().split()[0]), 9)
    with pytest.raises(ChildProcessError, match="ended with code -9"):
        program.scores(["a cat"], [["a cat"]])


def test_an_interrupted_question_does_not_become_the_answer_to_the_next(program, monkeypatch):
    def interrupted(line: str) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(program, "_ask", interrupted)
        program.scores(["a cat"], [["a cat"]])
    with pytest.raises(ChildProcessError, match="was ended"):
        program.scores(["a dog"], [["a cat"]])


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_it_ends_when_it_is_closed_and_when_nobody_has_it_any_more(java):
    for end in ("close", "forget"):
        program = MeteorProgram()
        pid = int(re.findall(r"^(\d+) -X", java.read_text(), re.MULTILINE)[-1])
        assert is_running(pid)
        if end == "close":
            program.close()
            program.close()
        else:
            del program
            gc.collect()
        assert not is_running(pid)


def test_it_ends_with_python(java):
    code = "from hf_cmal.rewards.meteor import MeteorProgram; kept = MeteorProgram()"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert not is_running(int(java.read_text().split()[0]))


def test_threads_get_the_answers_to_their_own_questions(program):
    """Thread k asks for k shared words of ten; with crossed answers some would differ."""
    words = [f"w{i}" for i in range(10)]
    got: dict[int, list[float]] = {}

    def ask(k: int) -> None:
        sentence = " ".join([*words[:k], *["other"] * (10 - k)])
        got[k] = [program.scores([sentence] * 3, [[" ".join(words)]] * 3)[1] for _ in range(30)]

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {k: [k / 10] * 30 for k in range(1, 6)}


# ---- the reward ---


def test_the_reward_scores_decoded_sentences_and_edits_against_the_strings_of_their_input(java):
    reward = make()
    columns = {"references": [["a cat sat"], ["dog"]], "source": ["x", "y"]}
    mask = torch.ones(2, 3, dtype=torch.bool)
    bound = reward.bind([[[1]], [[1]]], mask, eos_token_id=EOS, columns=columns)
    assert bound.candidates is None and bound.other_is_exact is False
    actions = torch.tensor([[[1, 2, EOS], [1, 2, 4]], [[3, EOS, 4], [EOS, 1, 1]]])
    # "a cat" and "a cat sat" against "a cat sat"; "dog" and "" against "dog"
    assert bound.score(actions).tolist() == [[2 / 3, 1.0], [1.0, 0.0]]
    position = torch.tensor([[[2], [1]], [[0], [0]]])
    words = torch.tensor([[[[4]], [[3]]], [[[4]], [[3]]]])
    edits = Edits(
        position=position,
        words=torch.cat([words, words], -1),
        width=torch.ones_like(position),
        mask=torch.tensor([[[True], [True]], [[True], [False]]]),
    )
    with pytest.warns(UserWarning, match="at most 7 sentences"):  # 4 rows and 3 edits
        edited = bound.score_edits(actions, edits)
    # "a cat sat", "a dog sat"; "sat", masked out
    assert edited.tolist() == [[[1.0], [2 / 3]], [[0.0], [0.0]]]
    reward.close()


def test_its_price_is_measured_at_the_start_and_said_of_the_first_batch_alone(java, recwarn):
    reward = get_reward(PATH, decode=decode)
    assert 0 < reward.seconds_per_sentence < 1
    bound = reward.bind(
        [[[1]]], torch.ones(1, 2, dtype=torch.bool), eos_token_id=EOS, columns={"references": [["a"]]}
    )
    none = torch.zeros(1, 1, 1, dtype=torch.long)
    edits = Edits(position=none, words=torch.ones(1, 1, 1, 2).long(), width=none + 1, mask=none == 0)
    reward.seconds_per_sentence = 0.25
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for _ in range(2):
            bound.score_edits(torch.tensor([[[1, 2], [2, 1]]]), edits)
    said = [str(warning.message) for warning in recwarn if "meteor" in str(warning.message)]
    assert len(said) == 2
    assert re.match(r"meteor takes about \d+\.\d ms per sentence here", said[0])
    assert re.fullmatch(r"meteor: a step on this batch asks for at most 3 sentences .* = 0\.8 s", said[1])
    reward.close()


def test_its_signature_says_what_was_used(java):
    reward = make()
    versions = f"pycocoevalcap:{metadata.version('pycocoevalcap')}|v:{metadata.version('hf-cmal')}"
    assert (reward.name, reward.signature) == ("meteor", f"meteor|on:text|lang:en|norm:yes|{versions}")
    reward.close()


def test_a_batch_without_the_strings_of_its_references_is_refused(java):
    reward = make()
    mask = torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="needs a column 'references', lists of strings"):
        reward.bind([[[1]]], mask, eos_token_id=EOS)
    reward.close()


def test_a_training_reads_it_and_without_java_stops_before_the_first_step(java, tmp_path, monkeypatch):
    model = captioner()
    options = {"reward": PATH, "max_steps": 1, "num_samples": 2, "trainer_options": {"decode": words_of}}
    with pytest.warns(UserWarning, match="meteor: a step on this batch asks for at most"):
        trainer = make_trainer(CmalTrainer, model, make_rows(model, 4), tmp_path, **options)
        trainer.train()
    assert 0 <= trainer.state.log_history[0]["rewards/meteor/mean"] < 1
    # the references are the strings of the rows, which the tokens of the samples were decoded to as well
    questions = [line for line in asked(java) if line.startswith("SCORE ||| w") and line.count("|||") == 2]
    assert len(questions) > 8
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="no `java` on PATH"):
        make_trainer(CmalTrainer, model, make_rows(model, 4), tmp_path, **options)


def test_an_unknown_short_name_tells_the_dotted_path():
    with pytest.raises(ValueError, match=rf"unknown reward 'meteor'.*{re.escape(PATH)} \(which needs Java\)"):
        get_reward("meteor", decode=decode)
