"""The toy world is the same everywhere, keeps its splits apart, tells the truth and speaks correct German."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from datasets import Dataset

from hf_cmal.data.toy import (
    FEATURE_SIZE,
    Scene,
    Thing,
    draw_scene,
    make_scenes,
    region_features,
    sentences,
    toy_captions,
    toy_translation,
)
from hf_cmal.data.toy_picture import FEATURE_NOISE, PROJECTION, box_of
from hf_cmal.data.toy_scenes import COLOURS, SHAPES, SIZES

SCENES = make_scenes(60, seed=3)

# Written out here once more, independently of the grammar's tables.
ENGLISH_NOUNS = {
    "circle": "circle", "disc": "circle", "square": "square", "box": "square", "triangle": "triangle",
    "star": "star", "heart": "heart", "cross": "cross", "plus": "cross", "diamond": "diamond",
    "rhombus": "diamond", "ring": "ring", "hoop": "ring",
}  # fmt: skip
GERMAN_NOUNS = {
    "Kreis": "circle", "Scheibe": "circle", "Quadrat": "square", "Viereck": "square", "Dreieck": "triangle",
    "Stern": "star", "Herz": "heart", "Kreuz": "cross", "Raute": "diamond", "Rhombus": "diamond",
    "Ring": "ring", "Reif": "ring",
}  # fmt: skip
MASCULINE, FEMININE = {"Kreis", "Stern", "Rhombus", "Ring", "Reif"}, {"Scheibe", "Raute"}
GERMAN_STEMS = {
    "rot": "red", "blau": "blue", "grün": "green", "gelb": "yellow", "schwarz": "black", "weiß": "white",
    "braun": "brown", "grau": "grey", "violett": "purple", "golden": "golden",
    "klein": "small", "winzig": "small", "groß": "large", "riesig": "large",
}  # fmt: skip
ENGLISH_SIZES = {
    "small": "small", "little": "small", "tiny": "small", "large": "large", "big": "large", "huge": "large",
}  # fmt: skip
DIRECTIONS = {
    "left": "left", "right": "right", "above": "above", "over": "above", "below": "below", "under": "below",
    "links": "left", "rechts": "right", "über": "above", "oberhalb": "above", "unter": "below",
    "unterhalb": "below",
}  # fmt: skip
# Article and adjective ending after it, by case and gender.
GERMAN_AGREEMENT = {
    "nominative": {"m": ("ein", "er"), "f": ("eine", "e"), "n": ("ein", "es")},
    "accusative": {"m": ("einen", "en"), "f": ("eine", "e"), "n": ("ein", "es")},
    "dative": {"m": ("einem", "en"), "f": ("einer", "en"), "n": ("einem", "en")},
}


def read(sentence: str) -> list[tuple[str | None, str, list[str], str]]:
    """The noun phrases in order as (direction in front of it or None, article, adjectives, noun)."""
    phrases, direction, open_phrase = [], None, None
    for word in sentence.split():
        if open_phrase is not None:
            if word in ENGLISH_NOUNS or word in GERMAN_NOUNS:
                phrases.append((*open_phrase, word))
                open_phrase, direction = None, None
            else:
                open_phrase[2].append(word)
        elif word in DIRECTIONS:
            direction = DIRECTIONS[word]
        elif re.fullmatch(r"a|ein(e|en|em|er)?", word):
            open_phrase = (direction, word, [])
    return phrases


def meaning(adjectives: list[str], noun: str) -> frozenset[str]:
    """Colour, shape and (if named) size, in the words of the scene."""
    if noun in ENGLISH_NOUNS:
        return frozenset([ENGLISH_NOUNS[noun], *(ENGLISH_SIZES.get(word, word) for word in adjectives)])
    return frozenset(
        [GERMAN_NOUNS[noun], *(GERMAN_STEMS[re.sub(r"(e|er|es|en)$", "", word)] for word in adjectives)]
    )


def is_true(scene: Scene, sentence: str) -> bool:
    phrases = read(sentence)
    things = []
    for _, _, adjectives, noun in phrases:
        said = meaning(adjectives, noun)
        things.append(next((t for t in scene.things if said <= {t.colour, t.shape, t.size}), None))
    if None in things or len(set(things)) != len(scene.things):
        return False
    (hub,) = (thing for thing, phrase in zip(things, phrases, strict=True) if phrase[0] is None)
    for thing, (direction, *_) in zip(things, phrases, strict=True):
        ok = {
            None: True,
            "left": hub.column < thing.column and hub.row == thing.row,
            "right": hub.column > thing.column and hub.row == thing.row,
            "above": hub.row < thing.row and hub.column == thing.column,
            "below": hub.row > thing.row and hub.column == thing.column,
        }
        if not ok[direction]:
            return False
    return True


def test_one_seed_gives_the_same_world_whatever_pythons_hash_seed() -> None:
    code = (
        "import hashlib, sys; from hf_cmal.data.toy import *\n"
        "scenes = make_scenes(20, seed=5)\n"
        "text = ''.join(''.join(sentences(s, 'en') + sentences(s, 'de')) for s in scenes).encode()\n"
        "text += b''.join(region_features(s).tobytes() + draw_scene(s).tobytes() for s in scenes)\n"
        "print(hashlib.sha256(text).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(digests) == 1
    assert make_scenes(20, seed=5) == make_scenes(20, seed=5)
    assert make_scenes(20, seed=5) != make_scenes(20, seed=6)


def test_more_scenes_of_one_seed_begin_with_the_same_scenes() -> None:
    assert make_scenes(30, seed=5)[:20] == make_scenes(20, seed=5)


def test_splits_share_no_facts_whatever_the_seeds() -> None:
    facts = {
        split: {scene.facts for seed in (0, 1) for scene in make_scenes(300, seed=seed, split=split)}
        for split in ("train", "unlabeled", "validation", "test")
    }
    assert all(len(found) > 300 for found in facts.values())  # the seeds are not one seed
    names = sorted(facts)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            assert not facts[one] & facts[other]


def test_no_two_scenes_of_a_split_say_the_same() -> None:
    scenes = make_scenes(500, seed=0)
    assert len({scene.facts for scene in scenes}) == 500


def test_a_pair_has_the_same_facts_from_either_side() -> None:
    circle, star = Thing("red", "circle", "small", 0, 2), Thing("blue", "star", "large", 3, 2)
    assert (
        Scene((circle, star)).facts == Scene((star, circle)).facts == "small red circle; left large blue star"
    )
    moved = Thing("blue", "star", "large", 0, 3)
    assert Scene((circle, moved)).facts == "small red circle; above large blue star"


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_sentence_is_true_of_its_scene_and_false_of_its_mirror_image(language: str) -> None:
    for scene in SCENES:
        mirrored = Scene(
            tuple(Thing(t.colour, t.shape, t.size, 3 - t.column, 3 - t.row) for t in scene.things)
        )
        for sentence in sentences(scene, language):
            assert is_true(scene, sentence), sentence
            assert not is_true(mirrored, sentence), sentence


@pytest.mark.parametrize("language", ["en", "de"])
def test_sentences_are_five_different_ones_of_eight_to_fifteen_words(language: str) -> None:
    for scene in make_scenes(500, seed=0):
        found = sentences(scene, language)
        assert len(set(found)) == 5
        assert all(8 <= len(sentence.split()) <= 15 for sentence in found), found


@pytest.mark.parametrize("language", ["en", "de"])
def test_no_true_sentence_says_a_word_twice_in_a_row(language: str) -> None:
    """So that each repetition in a model's output is a fault."""
    for scene in SCENES:
        for sentence in sentences(scene, language):
            words = sentence.split()
            assert all(one != other for one, other in pairwise(words)), sentence


@pytest.mark.parametrize("language", ["en", "de"])
def test_wording_and_order_are_free(language: str) -> None:
    """The five sentences name things in different orders and with different nouns."""
    orders, nouns = 0, 0
    for scene in SCENES:
        read_ones = [read(sentence) for sentence in sentences(scene, language)]
        said = [[meaning(adjectives, noun) for _, _, adjectives, noun in phrases] for phrases in read_ones]
        orders += len({tuple(one) for one in said}) > 1
        nouns += len({frozenset(phrase[-1] for phrase in phrases) for phrases in read_ones}) > 1
    assert orders > 0.8 * len(SCENES)
    assert nouns > 0.3 * len(SCENES)


def test_german_articles_and_endings_agree() -> None:
    cases_seen = set()
    for scene in make_scenes(200, seed=1):
        for sentence in sentences(scene, "de"):
            takes_accusative = "es gibt" in sentence or "man" in sentence.split()
            for direction, article, adjectives, noun in read(sentence):
                gender = "m" if noun in MASCULINE else "f" if noun in FEMININE else "n"
                case = "dative" if direction else "accusative" if takes_accusative else "nominative"
                wanted_article, wanted_ending = GERMAN_AGREEMENT[case][gender]
                assert article == wanted_article, sentence
                for adjective in adjectives:
                    assert re.sub(r"(e|er|es|en)$", "", adjective) + wanted_ending == adjective, sentence
                cases_seen.add((case, gender))
    assert len(cases_seen) == 9


def test_features_hold_one_global_row_and_a_readable_row_per_thing() -> None:
    """Solving for the attribute code undoes the projection: each thing's colour, shape and size stand out."""
    names = list(PROJECTION)
    matrix = np.stack([PROJECTION[name] for name in names])
    for scene in SCENES:
        features = region_features(scene)
        assert features.dtype == np.float32
        assert features.shape == (len(scene.things) + 1, FEATURE_SIZE)
        found = set()
        for row in features[1:]:
            code = dict(zip(names, np.linalg.lstsq(matrix.T, row, rcond=None)[0], strict=True))
            read_off = tuple(max(group, key=code.__getitem__) for group in (COLOURS, SHAPES, SIZES))
            thing = next(t for t in scene.things if (t.colour, t.shape) == read_off[:2])
            assert read_off[2] == thing.size
            assert code["x0"] == pytest.approx(2 * box_of(thing)[0] / 96 - 1, abs=0.45)
            found.add(thing)
        assert found == set(scene.things)


def test_features_are_noisy_and_scenes_without_the_same_things_have_other_features() -> None:
    at_left, at_right = Thing("red", "circle", "small", 0, 0), Thing("red", "circle", "small", 2, 0)
    star = Thing("blue", "star", "large", 3, 0)
    one, other = region_features(Scene((at_left, star))), region_features(Scene((at_right, star)))
    # The global rows stand for the same ground and count: only the noise differs.
    assert 0 < np.abs(one[0] - other[0]).max() <= 2 * FEATURE_NOISE
    assert np.array_equal(one, region_features(Scene((at_left, star))))


def test_things_do_not_stand_in_a_telling_order() -> None:
    first = 0
    for scene in SCENES:
        row, code = region_features(scene)[1], PROJECTION
        closest = min(
            scene.things,
            key=lambda t: np.abs(row - code[t.colour] - code[t.shape] - code[t.size]).sum(),
        )
        first += closest == scene.things[0]
    assert 0.2 * len(SCENES) < first < 0.7 * len(SCENES)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", SIZES)
def test_picture_shows_each_shape_inside_its_box_and_nothing_elsewhere(shape: str, size: str) -> None:
    thing = Thing("blue", shape, size, 1, 2)
    far = Thing("red", "circle", "small", 3, 2)
    picture = np.asarray(draw_scene(Scene((thing, far))))
    assert picture.shape == (96, 96, 3)
    blue = (picture == (38, 84, 204)).all(-1)
    rows, columns = np.nonzero(blue)
    left, top, right, bottom = box_of(thing)
    assert (columns.min(), rows.min(), columns.max(), rows.max()) >= (left, top, 0, 0)
    assert columns.max() <= right and rows.max() <= bottom
    assert columns.max() - columns.min() >= 0.8 * (right - left)
    assert blue[60, 36] != (shape == "ring")  # the middle of cell (1, 2); a ring is hollow


def test_translation_rows_pair_a_source_with_the_references_of_its_scene() -> None:
    data = toy_translation(10, seed=4, split="validation")
    assert data.column_names == ["source", "references", "image_id"]
    for scene, row in zip(make_scenes(10, seed=4, split="validation"), data, strict=True):
        assert is_true(scene, row["source"])
        assert len(row["references"]) == 5
        assert all(is_true(scene, reference) for reference in row["references"])


def test_caption_rows_pair_features_with_the_references_of_their_scene() -> None:
    data = toy_captions(10, seed=4, split="test")
    assert data.column_names == ["features", "references", "image_id"]
    assert len(set(data["image_id"])) == 10
    for scene, row in zip(make_scenes(10, seed=4, split="test"), data, strict=True):
        assert np.array_equal(np.asarray(row["features"], dtype=np.float32), region_features(scene))
        assert all(is_true(scene, reference) for reference in row["references"])


@pytest.mark.parametrize("build", [toy_translation, toy_captions])
def test_unlabeled_rows_have_no_references(build: Callable[..., Dataset]) -> None:
    data = build(3, seed=0, split="unlabeled", labeled=False)
    assert data["references"][:] == [[], [], []]
    assert build(0, seed=0).num_rows == 0


def test_wrong_arguments_are_named_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"'dev'.*'test', 'train', 'unlabeled', 'validation'"):
        make_scenes(1, seed=0, split="dev")
    with pytest.raises(ValueError, match="num is -1"):
        make_scenes(-1, seed=0)
    with pytest.raises(ValueError, match="'fr'"):
        sentences(SCENES[0], "fr")
