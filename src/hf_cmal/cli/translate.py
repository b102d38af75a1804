"""`hf-cmal translate`: sentences from the command line, a file or standard input; one translation a line.

Student and teacher folders work alike; a teacher decodes with the beams of its generation config. The output
keeps the order of the input, an empty line stays an empty line. An output file appears when it is complete,
not before. The translating itself is `translator.py`'s.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from transformers.utils import logging as transformers_logging

from hf_cmal.cli.compare import compare
from hf_cmal.cli.default_model import describe_model, find_model
from hf_cmal.cli.translator import Translator

NAMED_LINES = 5  # how many of the lines that were cut the warning names


def translate(
    texts: Sequence[str],
    *,
    model: str | None,
    input_file: str | None = None,
    output_file: str | None = None,
    batch_size: int = 64,
    remove_consecutive_duplicates: bool = True,
    compare_with: str | None = None,
) -> None:
    """Writes one translation a line, or with `compare_with` a block a sentence.

    stderr gets a line that names the model, its domain and its licence, and one if sentences were cut.

    Raises:
        ValueError: no model named, both sentences and a file given, a batch size below 1, a model that
            translates nothing, or input that is not UTF-8.
        OSError: a file or the model's folder can't be opened.
    """
    folder = find_model(model)
    if texts and input_file:
        raise ValueError("give sentences or --input, not both")
    if batch_size < 1:
        raise ValueError(f"--batch-size is {batch_size}; give 1 or more")
    if input_file and output_file and Path(input_file).resolve() == Path(output_file).resolve():
        raise ValueError(f"--input and --output are the same file {input_file}; give two")
    if compare_with is not None and Path(compare_with).resolve() == Path(folder).resolve():
        raise ValueError(f"--compare names the model itself, {compare_with}; give its teacher")
    _check_files(input_file, output_file)
    typed = not texts and input_file is None and sys.stdin.isatty()
    # the bar of loading the weights says nothing about the sentences
    transformers_logging.disable_progress_bar()
    try:
        with _reading(texts, input_file) as lines, _writing(output_file) as target:
            translator = Translator(folder, remove_consecutive_duplicates=remove_consecutive_duplicates)
            print(f"hf-cmal: {describe_model(folder)}", file=sys.stderr)
            if compare_with is not None:
                written = compare(lines, student=translator, teacher=Translator(compare_with))
            elif typed:
                print("hf-cmal: type a sentence a line, end with Ctrl-D", file=sys.stderr)
                written = (text for line in lines for text in translator.translate([line]))
            else:
                written = translator.translate(lines, batch_size=batch_size)
            for translation in written:
                print(translation, file=target, flush=typed)
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


def _check_files(input_file: str | None, output_file: str | None) -> None:
    """Before a model is loaded: is there something to read, and a place to write to?"""
    if input_file is not None and not Path(input_file).exists():
        raise FileNotFoundError(f"--input is {input_file}, which does not exist")
    for option, name in (("--input", input_file), ("--output", output_file)):
        if name is not None and Path(name).is_dir():
            raise IsADirectoryError(f"{option} is {name}, a folder; give a file")
    if output_file is not None and not Path(output_file).resolve().parent.is_dir():
        raise FileNotFoundError(f"--output is {output_file}, but its folder does not exist; create it first")


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
