"""Sentences to Markdown with repeated words in bold, as CMAL Table VII shows them in gray.

A repeat is what a reader sees: a word, number or sign that equals the one just before it. The repetition
rate of the tables counts subwords instead. It changes no sentence.
"""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
MARKDOWN = re.compile(r"([\\`*_~|\[\]$#])")


def bold_repeats(text: str) -> str:
    """Markdown of a sentence in which every word that equals the word before it is bold.

    The mark is `<b>`, because `**` marks no sign that touches a letter. What Markdown would take for marks is
    escaped.

    Example:
        >>> bold_repeats("Ein Hund Hund rennt.")
        'Ein Hund <b>Hund</b> rennt.'
    """
    parts, end, before = [], 0, None
    for found in WORD.finditer(text):
        parts.append(_escape(text[end : found.start()]))
        word = _escape(found.group())
        parts.append(f"<b>{word}</b>" if found.group() == before else word)
        end, before = found.end(), found.group()
    return "".join(parts) + _escape(text[end:])


def sentences_table(sentences: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table per sentence: what every system made of it.

    Args:
        sentences: as `translate_own_sources` gives them.
    """
    tables = []
    for sentence in sentences:
        rows = [f"| {name} | {bold_repeats(text)} |" for name, text in sentence["systems"].items()]
        tables.append("\n".join([f"| source | {_escape(sentence['source'])} |", "|---|---|", *rows]))
    return "\n\n".join(tables)


def _escape(text: str) -> str:
    return MARKDOWN.sub(r"\\\1", html.escape(re.sub(r"[\r\n]+", " ", text), quote=False))
