"""Document frequencies in a file: an exact round trip, and what `load` refuses."""

import json
import re

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from hf_cmal.rewards import CiderDReward, DocumentFrequencies
from hf_cmal.rewards.document_frequencies import vocabulary_fingerprint
from hf_cmal.rewards.ngrams import _child
from tests.rewards.plain import WIDE_WORDS, pad, random_batch

EOS = 0


def ngrams(frequencies: DocumentFrequencies, words) -> dict[tuple[int, ...], int]:
    """Every n-gram with its count, found by walking the trie from the root through all words."""
    found, open_nodes = {}, [((), 0)]
    while open_nodes:
        gram, node = open_nodes.pop()
        for word in words:
            child = _child(frequencies.keys, frequencies.children, node, word)
            if child >= 0:
                found[*gram, word] = int(frequencies.counts[child])
                open_nodes.append(((*gram, word), child))
    return found


@pytest.fixture
def saved(tmp_path):
    """Frequencies that were counted, and the file that they were saved in; its folder did not exist."""
    documents = [[[1, 2, 3], [1, 2]], [[2, 3, 2]], [[4]]]
    frequencies = DocumentFrequencies.from_references(documents, eos_token_id=EOS, vocabulary="abc")
    return frequencies, frequencies.save(tmp_path / "new" / "df.safetensors")


def test_a_saved_file_gives_every_ngram_with_its_count_and_nothing_else(saved):
    # Written out by hand: three images, eos 0 at the end of each reference.
    counted, path = saved
    expected = {
        (1,): 1, (2,): 2, (3,): 2, (0,): 3, (4,): 1,
        (1, 2): 1, (2, 3): 2, (3, 0): 1, (2, 0): 2, (3, 2): 1, (4, 0): 1,
        (1, 2, 3): 1, (2, 3, 0): 1, (1, 2, 0): 1, (2, 3, 2): 1, (3, 2, 0): 1,
        (1, 2, 3, 0): 1, (2, 3, 2, 0): 1,
    }  # fmt: skip
    loaded = DocumentFrequencies.load(path)
    assert ngrams(counted, range(6)) == expected
    assert ngrams(loaded, range(6)) == expected
    assert loaded.num_ngrams == len(expected)


@pytest.mark.parametrize("eos", [EOS, None])
def test_a_saved_file_gives_the_same_rewards_to_the_last_bit(tmp_path, eos):
    """More than a thousand n-grams, so that the table grows several times; words up to 2**31 - 1."""
    words = (*WIDE_WORDS, *range(1, 60))
    hypotheses, references = random_batch(5, 300, 3, words)
    counted = DocumentFrequencies.from_references(references, eos_token_id=eos, name="own", vocabulary=None)
    loaded = DocumentFrequencies.load(counted.save(tmp_path / "df.safetensors"))
    assert counted.num_ngrams > 5000
    assert (loaded.num_documents, loaded.eos_token_id, loaded.name, loaded.vocabulary) == (
        300, eos, "own", None,
    )  # fmt: skip
    np.testing.assert_array_equal(loaded.counts, counted.counts)
    assert loaded.counts.dtype == counted.counts.dtype
    actions, mask = pad(hypotheses)
    one, other = (
        CiderDReward(frequencies).bind(references, mask, eos_token_id=eos).score(actions)
        for frequencies in (counted, loaded)
    )
    assert torch.equal(one, other) and one.max() > 0.5
    assert CiderDReward(loaded).signature == CiderDReward(counted).signature
    # of half of the images they are different
    half = DocumentFrequencies.from_references(references[:150], eos_token_id=eos)
    assert not torch.equal(one, CiderDReward(half).bind(references, mask, eos_token_id=eos).score(actions))


def test_an_identical_caption_on_a_single_image_scores_ten_with_the_frequencies_of_a_file(tmp_path):
    documents = [[[1, 2, 3, 4, 5]], [[6, 7]], [[8]]]
    path = DocumentFrequencies.from_references(documents, eos_token_id=EOS).save(tmp_path / "df.safetensors")
    bound = CiderDReward(DocumentFrequencies.load(path)).bind(
        [[[1, 2, 3, 4, 5]]], torch.ones(1, 6, dtype=torch.bool), eos_token_id=EOS
    )
    identical, other = bound.score(torch.tensor([[[1, 2, 3, 4, 5, EOS], [1, 2, 3, 4, 6, EOS]]]))[0].tolist()
    assert identical == pytest.approx(10.0, abs=1e-12)
    assert other < 9


def test_what_was_loaded_is_saved_as_the_same_file_again(saved, tmp_path):
    _, path = saved
    again = DocumentFrequencies.load(path).save(tmp_path / "again.safetensors")
    one, other = load_file(path), load_file(again)
    assert one.keys() == other.keys() == {"parents", "words", "counts"}
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def test_a_file_has_twelve_bytes_for_each_ngram_and_no_empty_places(tmp_path):
    documents = random_batch(6, 400, 3, tuple(range(1, 60)))[1]
    frequencies = DocumentFrequencies.from_references(documents, eos_token_id=EOS)
    size = frequencies.save(tmp_path / "df.safetensors").stat().st_size
    assert 12 * frequencies.num_ngrams < size < 12 * frequencies.num_ngrams + 1000
    assert list(tmp_path.iterdir()) == [tmp_path / "df.safetensors"]


def test_an_interrupted_save_leaves_the_old_file_whole(saved, monkeypatch):
    counted, path = saved
    before = path.read_bytes()

    def killed(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    with pytest.raises(KeyboardInterrupt):
        DocumentFrequencies.from_references([[[9]], [[8]]], eos_token_id=EOS).save(path)
    assert path.read_bytes() == before
    assert ngrams(DocumentFrequencies.load(path), range(6)) == ngrams(counted, range(6))


def test_a_missing_file_names_the_command_that_makes_it(tmp_path):
    path = tmp_path / "nowhere.safetensors"
    with pytest.raises(
        FileNotFoundError,
        match=re.escape(f"{path}; make it with `hf-cmal document-frequencies RECIPE --output {path}`"),
    ):
        DocumentFrequencies.load(path)
    with pytest.raises(FileNotFoundError, match="there are no document frequencies"):
        DocumentFrequencies.load(tmp_path)  # a folder


@pytest.mark.parametrize("kept", [0.0, 0.05, 0.5, 0.99])
def test_a_torn_file_is_refused(saved, kept):
    _, path = saved
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(ValueError, match=r"df\.safetensors is no file of .*not a whole one.*make it with"):
        DocumentFrequencies.load(path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    text = tmp_path / "df.json"
    text.write_text(json.dumps({"a cat": 3}))
    with pytest.raises(ValueError, match=r"df\.json is no file of document frequencies"):
        DocumentFrequencies.load(text)
    model = tmp_path / "model.safetensors"
    save_file({"weight": np.zeros(3)}, model)
    with pytest.raises(ValueError, match=r"model\.safetensors holds something else"):
        DocumentFrequencies.load(model)


def rewrite(path, *, metadata=None, **arrays) -> None:
    """The file with other arrays or metadata."""
    old = {
        "format": "hf_cmal.document_frequencies", "version": "1", "num_documents": "3",
        "eos_token_id": "0", "name": "train", "vocabulary": "none",
    }  # fmt: skip
    save_file({**load_file(path), **arrays}, path, old | (metadata or {}))


def test_a_file_of_a_later_version_is_refused(saved):
    _, path = saved
    rewrite(path)
    DocumentFrequencies.load(path)
    rewrite(path, metadata={"version": "2"})
    with pytest.raises(ValueError, match="has version 2 of the format, this hf_cmal reads version 1"):
        DocumentFrequencies.load(path)


def test_a_file_whose_ngrams_cannot_be_is_refused(saved):
    _, path = saved
    parents, words = (load_file(path)[name] for name in ("parents", "words"))
    later = parents.copy()
    later[3] = 4  # the fourth n-gram is node 4: its own beginning
    twice_parents, twice_words = parents.copy(), words.copy()
    twice_parents[5], twice_words[5] = parents[4], words[4]
    for change, message in (
        ({"parents": later}, "without its beginning"),
        ({"words": np.where(words == 4, -1, words).astype(np.int32)}, "without its beginning"),
        ({"parents": twice_parents, "words": twice_words}, "an n-gram twice"),
    ):
        rewrite(path, parents=parents, words=words)
        DocumentFrequencies.load(path)
        rewrite(path, **change)
        with pytest.raises(ValueError, match=message):
            DocumentFrequencies.load(path)


@pytest.mark.parametrize(
    ("eos", "vocabulary", "message"),
    [
        (1, "abc", r"x\.safetensors was counted with eos 0, but this model writes eos 1; make it with"),
        (None, "abc", "counted with eos 0, but this model writes no eos"),
        (EOS, "abd", r"another vocabulary \(abc\) than this model's \(abd\)"),
    ],
)
def test_frequencies_of_another_eos_or_vocabulary_are_refused(saved, eos, vocabulary, message):
    frequencies = DocumentFrequencies.load(saved[1])
    with pytest.raises(ValueError, match=message):
        frequencies.check_counted_with(eos_token_id=eos, vocabulary=vocabulary, where="x.safetensors")


def test_frequencies_of_the_same_eos_and_vocabulary_or_an_unknown_one_are_taken(saved):
    frequencies = DocumentFrequencies.load(saved[1])
    for vocabulary in ("abc", None):
        frequencies.check_counted_with(eos_token_id=EOS, vocabulary=vocabulary, where="x")
    unknown = DocumentFrequencies.from_references([[[1]]], eos_token_id=EOS)
    unknown.check_counted_with(eos_token_id=EOS, vocabulary="abc", where="x")


def test_a_fingerprint_differs_where_a_word_or_an_id_does_and_not_in_the_order():
    prints = {
        vocabulary_fingerprint(vocabulary)
        for vocabulary in (
            {"cat": 1, "dog": 2}, {"dog": 2, "cat": 1},
            {"cat": 2, "dog": 1}, {"cat": 1, "hog": 2}, {"cat": 1}, {"cat": 1, "dog": 2, "ü": 3},
        )
    }  # fmt: skip
    assert len(prints) == 5
    assert all(re.fullmatch("[0-9a-f]{16}", text) for text in prints)
