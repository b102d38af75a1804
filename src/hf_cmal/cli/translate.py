"""`hf-cmal translate`: sentences from the command line, a file or standard input; one translation a line.

Batches hold sentences of similar length, the output keeps the order of the input. An empty line stays an
empty line. Student and teacher folders work alike; a teacher decodes with the beams of its generation
config.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from transformers import AutoTokenizer

from hf_cmal.evaluation.loading import is_student, load_model

MODEL_VARIABLE = "HF_CMAL_MODEL"
CHUNK = 64  # batches that are sorted by length together; bounds the memory for files of any length


def translate(
    texts: Sequence[str],
    *,
    model: str | None,
    input_file: str | None = None,
    output_file: str | None = None,
    batch_size: int = 64,
    remove_consecutive_duplicates: bool = True,
) -> None:
    """Writes one translation a line.

    Raises:
        ValueError: no model named, both sentences and a file given, or a batch size below 1.
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
        raise ValueError(
            f"--input and --output are the same file {input_file}; it would be overwritten while read"
        )
    translator = Translator(folder, remove_consecutive_duplicates=remove_consecutive_duplicates)
    source = open(input_file, encoding="utf-8", newline="\n") if input_file else None
    target = open(output_file, "w", encoding="utf-8", newline="\n") if output_file else sys.stdout
    try:
        lines: Iterable[str] = texts or source or sys.stdin
        for translation in translator.translate(lines, batch_size=batch_size):
            target.write(translation + "\n")
    finally:
        if source is not None:
            source.close()
        if target is not sys.stdout:
            target.close()


class Translator:
    """A translator's folder, opened: student or teacher."""

    def __init__(self, folder: str, *, remove_consecutive_duplicates: bool = True) -> None:
        self.model = load_model(folder).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.max_source_length = min(
            self.tokenizer.model_max_length, self.model.config.max_position_embeddings
        )
        self.settings = (
            {"remove_consecutive_duplicates": remove_consecutive_duplicates} if is_student(self.model) else {}
        )

    def translate(self, lines: Iterable[str], *, batch_size: int = 64) -> Iterator[str]:
        """Translations in the order of the lines; a chunk of batches is in memory at a time."""
        stream = iter(lines)
        while chunk := list(islice(stream, batch_size * CHUNK)):
            yield from self._translate_chunk([line.strip() for line in chunk], batch_size)

    def _translate_chunk(self, lines: list[str], batch_size: int) -> list[str]:
        translations = [""] * len(lines)
        order = sorted(
            (index for index, line in enumerate(lines) if line), key=lambda index: len(lines[index])
        )
        for start in range(0, len(order), batch_size):
            indexes = order[start : start + batch_size]
            batch = self.tokenizer([lines[index] for index in indexes])
            cut = sum(len(ids) > self.max_source_length for ids in batch["input_ids"])
            if cut:
                print(
                    f"hf-cmal: {cut} sentences longer than {self.max_source_length} tokens are cut",
                    file=sys.stderr,
                )
            inputs = self.tokenizer(
                [lines[index] for index in indexes],
                return_tensors="pt",
                padding=True,
                truncation=True,
                max_length=self.max_source_length,
            )
            with torch.inference_mode():
                tokens = self.model.generate(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], **self.settings
                )
            for index, text in zip(
                indexes, self.tokenizer.batch_decode(tokens, skip_special_tokens=True), strict=True
            ):
                translations[index] = text
        return translations
