"""Repeats marked in sentences, and what Markdown would take for marks."""

import pytest

from hf_cmal.evaluation.repeated_words import bold_repeats, sentences_table


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        ("Ein Hund Hund rennt .", "Ein Hund <b>Hund</b> rennt ."),
        ("ein ein ein", "ein <b>ein</b> <b>ein</b>"),
        ("Ein Hund Hund.", "Ein Hund <b>Hund</b>."),  # the point is a sign of its own
        ("Eltern , , ,", "Eltern , <b>,</b> <b>,</b>"),
        ("2 2 Männer", "2 <b>2</b> Männer"),
    ],
)
def test_a_word_that_equals_the_one_before_it_is_bold(text, marked):
    assert bold_repeats(text) == marked


@pytest.mark.parametrize(
    "text", ["Ein ein Hund", "Hund Hunde", "ein Hund und ein Hund", "GroßGroßeltern", "Hund, Hund", ""]
)
def test_other_words_are_not(text):
    assert bold_repeats(text) == text


def test_what_markdown_or_html_would_take_for_a_mark_is_escaped():
    assert bold_repeats("a|b *c* <d> & _e_ $f$") == r"a\|b \*c\* &lt;d&gt; &amp; \_e\_ \$f\$"
    assert bold_repeats("* *") == r"\* <b>\*</b>"


def test_a_line_break_does_not_end_the_row_of_a_table():
    assert bold_repeats("a\nb") == "a b"


def test_a_table_has_the_source_above_what_every_system_wrote():
    sentences = [
        {"source": "a dog | runs runs", "systems": {"teacher": "ein Hund", "nat_xe": "ein ein Hund"}},
        {"source": "a cat", "systems": {"teacher": "eine Katze", "nat_xe": ""}},
    ]
    assert sentences_table(sentences) == (
        "| source | a dog \\| runs runs |\n|---|---|\n"
        "| teacher | ein Hund |\n| nat_xe | ein <b>ein</b> Hund |\n\n"
        "| source | a cat |\n|---|---|\n| teacher | eine Katze |\n| nat_xe |  |"
    )
