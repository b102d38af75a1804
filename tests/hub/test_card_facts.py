"""A card is read for what it says, and a folder without one does no harm."""

import pytest

from hf_cmal.hub.card_facts import CardFacts, read_card_facts

CARD = """\
---
license: other
license_name: non-commercial-research
domain: image descriptions
model-index:
- name: some-model
  results: []
---
# Title
"""


def facts_of(tmp_path, text: str) -> CardFacts:
    (tmp_path / "README.md").write_text(text)
    return read_card_facts(str(tmp_path))


def test_name_domain_and_licence_are_those_of_the_front_matter(tmp_path):
    assert facts_of(tmp_path, CARD) == CardFacts(
        "some-model", "image descriptions", "non-commercial-research"
    )


def test_a_licence_that_the_hub_knows_goes_by_its_identifier(tmp_path):
    assert facts_of(tmp_path, "---\nlicense: mit\nlicense_name: ignored\n---\n").license == "mit"


def test_another_licence_without_a_name_is_other(tmp_path):
    assert facts_of(tmp_path, "---\nlicense: other\n---\n") == CardFacts(license="other")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# A page without front matter\n\ndomain: not this\n",
        "---\n---\n",
        "---\n- a\n- list\n---\n",
        "---\nlicense: [unclosed\n---\n",
        "---\nlicense: [a, b]\ndomain: 3\nmodel-index: []\n---\n",
        "---\nmodel-index: some text\n---\n",
    ],
)
def test_a_card_that_does_not_say_it_gives_none(tmp_path, text):
    assert facts_of(tmp_path, text) == CardFacts(None, None, None)


def test_no_card_no_folder_and_a_hub_id_give_none(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere", "Helsinki-NLP/opus-mt-en-de"):
        assert read_card_facts(folder) == CardFacts(None, None, None)


def test_a_card_that_is_no_text_gives_none(tmp_path):
    (tmp_path / "README.md").write_bytes(b"---\nlicense: \xff\n---\n")
    assert read_card_facts(tmp_path) == CardFacts()
