"""A translator's folder, opened: lines in, their translations out, in the same order.

Lines are read in chunks, and the batches of a chunk hold sentences of similar length, so that little is spent
on padding and the memory does not grow with the input. It opens no text files and prints nothing.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import torch

from hf_cmal.evaluation.loading import is_student, load_model, load_tokenizer

CHUNK = 64  # batches that are sorted by length together; bounds the memory for files of any length


class Translator:
    """A translator's folder, opened: student or teacher.

    Attributes:
        folder: as it was given.
        cut_lines: numbers, from 1, of the lines translated so far that were too long and were cut.
    """

    def __init__(self, folder: str, *, remove_consecutive_duplicates: bool = True) -> None:
        self.folder = folder
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
