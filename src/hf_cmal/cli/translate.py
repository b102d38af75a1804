"""`hf-cmal translate`: sentences from the command line, a file or standard input; one translation a line.

Batches hold sentences of similar length, the output keeps the order of the input. An empty line stays an
empty line. Student and teacher folders work alike; a teacher decodes with the beams of its generation
config. An output file appears when it is complete, not before.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TextIO

import torch
from transformers.utils import logging as transformers_logging

from hf_cmal.evaluation.loading import is_student, load_model, load_tokenizer

MODEL_VARIABLE = "HF_CMAL_MODEL"
CHUNK = 64  # batches that are sorted by length together; bounds the memory for files of any length
NAMED_LINES = 5  # how many of the lines that were cut the warning names


def translate(
    texts: Sequence[str],
    *,
    model: str | None,
    input_file: str | None = None,
    output_file: str | None = None,
    batch_size: int = 64,
    remove_consecutive_duplicates: bool = True,
) -> None:
    """Writes one translation a line; says on stderr how many sentences were cut.

    Raises:
        ValueError: no model named, both sentences and a file given, a batch size below 1, a model that
            translates nothing, or input that is not UTF-8.
        OSError: a file or the model's folder can't be opened.
    """
    folder = model or os.environ.get(MODEL_VARIABLE)
    if not folder:
        raise ValueError(
            f"no model: give --model FOLDER or set {MODEL_VARIABLE}; `hf-cmal train` makes one, "
            "see recipes/README.md"
        )
    if texts and input_file:
        raise ValueError("give sentences or --input, not both")
    if batch_size < 1:
        raise ValueError(f"--batch-size is {batch_size}; give 1 or more")
    if input_file and output_file and Path(input_file).resolve() == Path(output_file).resolve():
        raise ValueError(f"--input and --output are the same file {input_file}; give two")
    # the bar of loading the weights says nothing about the sentences
    transformers_logging.disable_progress_bar()
    try:
        with _reading(texts, input_file) as lines, _writing(output_file) as target:
            translator = Translator(folder, remove_consecutive_duplicates=remove_consecutive_duplicates)
            for translation in translator.translate(lines, batch_size=batch_size):
                target.write(translation + "\n")
    except BrokenPipeError:
        # who reads standard output, e.g. `head`, has enough; what is still buffered goes nowhere
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return
    if translator.cut_lines:
        first = ", ".join(map(str, translator.cut_lines[:NAMED_LINES]))
        print(
            f"hf-cmal: {len(translator.cut_lines)} sentences are longer than "
            f"{translator.max_source_length} tokens and were cut (first lines: {first})",
            file=sys.stderr,
        )


class Translator:
    """A translator's folder, opened: student or teacher.

    Attributes:
        cut_lines: numbers, from 1, of the lines translated so far that were too long and were cut.
    """

    def __init__(self, folder: str, *, remove_consecutive_duplicates: bool = True) -> None:
        self.model = load_model(folder, task="translation").eval()
        self.tokenizer = load_tokenizer(folder)
        self.max_source_length = min(
            self.tokenizer.model_max_length, self.model.config.max_position_embeddings
        )
        self.settings = (
            {"remove_consecutive_duplicates": remove_consecutive_duplicates} if is_student(self.model) else {}
        )
        self.cut_lines: list[int] = []

    def translate(self, lines: Iterable[str], *, batch_size: int = 64) -> Iterator[str]:
        """Translations in the order of the lines; a chunk of batches is in memory at a time."""
        stream, done = iter(lines), 0
        while chunk := list(islice(stream, batch_size * CHUNK)):
            yield from self._translate_chunk(
                [line.strip() for line in chunk], batch_size, first_line=done + 1
            )
            done += len(chunk)

    def _translate_chunk(self, lines: list[str], batch_size: int, *, first_line: int) -> list[str]:
        translations, cut = [""] * len(lines), []
        order = sorted(
            (index for index, line in enumerate(lines) if line), key=lambda index: len(lines[index])
        )
        for start in range(0, len(order), batch_size):
            indexes = order[start : start + batch_size]
            texts = [lines[index] for index in indexes]
            # without verbose the tokenizer warns itself, of an error that cutting prevents
            whole = self.tokenizer(texts, verbose=False)["input_ids"]
            cut += [
                first_line + index
                for index, ids in zip(indexes, whole, strict=True)
                if len(ids) > self.max_source_length
            ]
            inputs = self.tokenizer(
                texts, return_tensors="pt", padding=True, truncation=True, max_length=self.max_source_length
            )
            with torch.inference_mode():
                tokens = self.model.generate(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], **self.settings
                )
            written = self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
            for index, text in zip(indexes, written, strict=True):
                # a subword vocabulary can write a line break, which would shift all lines below
                translations[index] = text.replace("\n", " ").replace("\r", " ")
        self.cut_lines += sorted(cut)
        return translations


@contextmanager
def _reading(texts: Sequence[str], input_file: str | None) -> Iterator[Iterable[str]]:
    """The sentences, the lines of the file, or those of standard input."""
    if texts:
        try:
            "".join(texts).encode()
        except UnicodeEncodeError as error:
            raise ValueError("the sentences on the command line are not UTF-8 text") from error
        yield texts
        return
    # utf-8-sig: some editors begin a file with a byte order mark
    file = open(
        input_file or sys.stdin.fileno(), encoding="utf-8-sig", newline="\n", closefd=bool(input_file)
    )
    with file as lines:
        try:
            yield lines
        except UnicodeDecodeError as error:
            raise ValueError(f"{input_file or 'standard input'} is not UTF-8 text: {error}") from error


@contextmanager
def _writing(output_file: str | None) -> Iterator[TextIO]:
    """Standard output, or a file that gets its name, and replaces an older one, once all is written."""
    if output_file is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    path = Path(output_file).resolve()
    if path.exists() and not path.is_file():  # a device or a named pipe is written to, never replaced
        with open(path, "w", encoding="utf-8", newline="\n") as target:
            yield target
        return
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "w", encoding="utf-8", newline="\n") as target:
            yield target
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
