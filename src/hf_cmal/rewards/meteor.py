"""METEOR (Denkowski and Lavie 2014) of English sentences as a reward, by a Java program: METEOR 1.5, which
comes with pycocoevalcap.

It is slow: every counterfactual sentence is written out and sent to Java. What a sentence takes is measured
at the start and said. The program is asked as pycocoevalcap's `Meteor` asks it, whose scores these are; that
class is not used, for it keeps its lock when the program dies, and then waits for itself for ever. Named by
its dotted path, because every entry of REWARDS works without Java.
"""

import shutil
import subprocess
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata, resources
from itertools import product
from pathlib import Path
from typing import IO, Any, ClassVar

from torch import Tensor

from hf_cmal.rewards.base import package_version
from hf_cmal.rewards.text import BoundTextReward, Decode, TextReward
from hf_cmal.sampling.proposals import Edits

JAR = "meteor-1.5.jar"
OPTIONS = ("-Xmx2G", "-jar", JAR, "-", "-", "-stdio", "-l", "en", "-norm")
SEPARATOR = "|||"


class MeteorProgram:
    """METEOR 1.5 for English, kept running. Threads that ask at once are answered one after the other.

    Raises:
        FileNotFoundError: no `java` on PATH.
        ChildProcessError: METEOR does not start.

    Example:
        >>> program = MeteorProgram()
        >>> program.scores(["a cat"], [["a cat"]])
        [1.0]
        >>> program.close()
    """

    def __init__(self) -> None:
        java = shutil.which("java")
        if java is None:
            raise FileNotFoundError(
                "the reward meteor is a Java program and there is no `java` on PATH: install a Java runtime, "
                "e.g. `apt install default-jre-headless`, or choose a reward that needs none, e.g. cider-d"
            )
        self._lock = threading.Lock()
        self._complaints = tempfile.TemporaryFile()  # a pipe would fill up and stop the program
        self._process = subprocess.Popen(
            [java, *OPTIONS],
            cwd=Path(str(resources.files("pycocoevalcap.meteor") / JAR)).parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            encoding="utf-8",
            errors="replace",
        )
        # when the object goes, and when Python ends
        self._finalizer = weakref.finalize(self, _stop, self._process, self._complaints)
        self.scores(["a cat"], [["a cat"]])  # loads its tables

    def scores(self, sentences: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Scores sentences one by one.

        Args:
            sentences: of any case and punctuation; METEOR normalizes both sides. An empty one is worth 0.
            references: for each sentence its references, at least one; the best counts.

        Returns:
            One number in [0, 1] per sentence.

        Raises:
            ValueError: a sentence without references, or with an empty one.
            ChildProcessError: the program has ended, or answered something else than numbers.
        """
        questions = [
            _question(sentence, group) for sentence, group in zip(sentences, references, strict=True)
        ]
        with self._lock:
            try:
                statistics = {index: self._ask(line) for index, line in enumerate(questions) if line}
                answers = dict(zip(statistics, self._evaluate(list(statistics.values())), strict=True))
            except BaseException:
                self.close()  # what is half asked would be the answer to the next question
                raise
        return [answers.get(index, 0.0) for index in range(len(questions))]

    def close(self) -> None:
        """Ends the program; asking it afterwards is an error."""
        self._finalizer()

    def _ask(self, line: str) -> str:
        self._say(line)
        return self._hear()

    def _evaluate(self, statistics: list[str]) -> list[float]:
        if not statistics:
            return []
        self._say(f" {SEPARATOR} ".join(["EVAL", *statistics]))
        answers = [self._hear() for _ in statistics]
        self._hear()  # of all sentences together
        try:
            return [float(answer) for answer in answers]
        except ValueError as error:
            raise ChildProcessError(f"METEOR answered no number: {error}") from error

    def _say(self, line: str) -> None:
        stdin = self._process.stdin
        assert stdin is not None  # it is a pipe
        try:
            stdin.write(f"{line}\n")
            stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._ended() from error

    def _hear(self) -> str:
        stdout = self._process.stdout
        assert stdout is not None  # it is a pipe
        try:
            line = stdout.readline()
        except ValueError as error:
            raise self._ended() from error
        if not line:
            raise self._ended()
        return line.strip()

    def _ended(self) -> ChildProcessError:
        if self._complaints.closed:
            return ChildProcessError("the Java program METEOR was ended: make a new reward")
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        self._complaints.seek(0)
        said = self._complaints.read().decode("utf-8", "replace").strip() or "nothing"
        return ChildProcessError(
            f"the Java program METEOR ended with code {self._process.returncode} and said: {said[-500:]}. It "
            "wants 2 GB of memory; a training goes on from its last checkpoint when it is started again"
        )


@dataclass(frozen=True)
class BoundMeteorReward:
    """See `BoundReward`: a bound reward on strings that says once what the edits of a batch cost."""

    text: BoundTextReward
    say_price: Callable[[int], None]
    candidates: None = None
    other_is_exact: bool = False

    def score(self, actions: Tensor) -> Tensor:
        """long [B, R, N] -> float64 [B, R]."""
        return self.text.score(actions)

    def score_edits(self, actions: Tensor, edits: Edits) -> Tensor:
        """long [B, R >= S, N], edits [B, S, M] -> float64 [B, S, M], 0 where edits.mask is False."""
        self.say_price(int(edits.mask.sum()) + actions.shape[0] * actions.shape[1])
        return self.text.score_edits(actions, edits)


class MeteorReward:
    """METEOR 1.5 in [0, 1] of decoded English sentences; an identical one scores 1.

    Starts Java, measures what a sentence takes, and warns of it.

    Args:
        decode: lists of token ids -> strings, e.g. a tokenizer's batch_decode.

    Raises:
        FileNotFoundError: no `java` on PATH; the message says what to install.
        ChildProcessError: METEOR does not start.

    Example:
        >>> reward = get_reward("hf_cmal.rewards.meteor.MeteorReward", decode=tokenizer.batch_decode)
        >>> bound = reward.bind(batch_ids, agent_mask, eos_token_id=0, columns={"references": batch_texts})
    """

    name: ClassVar[str] = "meteor"

    def __init__(self, *, decode: Decode) -> None:
        self._text = TextReward(self._score, decode=decode, name=self.name)
        self._program = MeteorProgram()
        self.seconds_per_sentence = measure_seconds(self._program)
        self._price_is_said = False
        warnings.warn(
            f"meteor takes about {1000 * self.seconds_per_sentence:.1f} ms per sentence here, and asks Java "
            "for every sampled and every counterfactual sentence; where that is too slow, take a reward on "
            "n-grams, e.g. cider-d",
            UserWarning,
            stacklevel=2,
        )

    @property
    def signature(self) -> str:
        package = metadata.version("pycocoevalcap")
        return f"{self.name}|on:text|lang:en|norm:yes|pycocoevalcap:{package}|v:{package_version()}"

    def bind(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> BoundMeteorReward:
        """See `Reward.bind`. The references are the strings in the column `references`.

        Raises:
            ValueError: no such column, or a column that has not one entry per input.
        """
        if "references" not in (columns or {}):
            raise ValueError("meteor reads strings: the batch needs a column 'references', lists of strings")
        text = self._text.bind(references, agent_mask, eos_token_id=eos_token_id, columns=columns)
        return BoundMeteorReward(text, self._say_price)

    def close(self) -> None:
        """Ends the Java program, which otherwise ends with this object."""
        self._program.close()

    def _score(
        self, prompts: Sequence[Any], completions: Sequence[str], *, references: Any, **columns: Any
    ) -> list[float]:
        return self._program.scores(completions, references)

    def _say_price(self, num_sentences: int) -> None:
        if self._price_is_said:
            return
        self._price_is_said = True
        warnings.warn(
            f"meteor: a step on this batch asks for at most {num_sentences} sentences (equal ones once) = "
            f"{num_sentences * self.seconds_per_sentence:.1f} s",
            UserWarning,
            stacklevel=3,
        )


def measure_seconds(program: MeteorProgram) -> float:
    """Seconds per sentence, the mean over 32 sentences of seven to nine words with five references each. They
    are scored before, while Java compiles.
    """
    parts = (("a man", "two dogs"), ("in red sits", "is running", "jumps high", "stands still"))
    places = ("on the long beach", "near a house", "in the snow", "under some trees")
    sentences = [" ".join(words) for words in product(*parts, places)]
    references = [(2 * sentences)[i + 1 : i + 6] for i in range(len(sentences))]
    program.scores(sentences, references)
    start = time.perf_counter()
    program.scores(sentences, references)
    return (time.perf_counter() - start) / len(sentences)


def _question(sentence: str, references: Sequence[str]) -> str | None:
    """The line that asks for a sentence's statistics; None for an empty sentence."""
    cleaned = [_one_line(reference) for reference in references]
    if not cleaned or not all(cleaned):
        raise ValueError(
            f"meteor cannot score {sentence!r} against {list(references)!r}: give at least one reference, "
            "and none that is empty"
        )
    hypothesis = _one_line(sentence)
    return f" {SEPARATOR} ".join(["SCORE", *cleaned, hypothesis]) if hypothesis else None


def _one_line(text: str) -> str:
    """Without what the protocol would take for its own: line breaks and separators."""
    return " ".join(text.replace(SEPARATOR, " ").split())


def _stop(process: subprocess.Popen[str], complaints: IO[bytes]) -> None:
    process.kill()
    for stream in (process.stdin, process.stdout, complaints):
        if stream is not None:
            with suppress(BrokenPipeError):  # of what it did not read any more
                stream.close()
    process.wait()
