"""English and German sentences about a toy scene.

Every sentence of a scene states the same facts, but the grammar leaves the words (circle or disc) and the
order (A left of B, B right of A, the place in front) open. That is the multi-modality of CMAL Sec. 1: a model
that fills each position on its own mixes two good sentences into a bad one, and says a word twice. The
choices lean on what the scene shows, so no single wording is right everywhere. It does not parse or learn.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from .toy_scenes import OPPOSITE, Scene, Thing, digest

Option = TypeVar("Option")

NUM_SENTENCES = 5

# How much more likely than its rival a choice can be: weights lie in [1, 1 + lean].
WORD_LEAN = 8.0
ORDER_LEAN = 2.0

ENGLISH_NOUNS = {
    "circle": ("circle", "disc"), "square": ("square", "box"), "triangle": ("triangle",),
    "star": ("star",), "heart": ("heart",), "cross": ("cross", "plus"), "diamond": ("diamond", "rhombus"),
    "ring": ("ring", "hoop"),
}  # fmt: skip
ENGLISH_SIZES = {"small": ("small", "little", "tiny"), "large": ("large", "big", "huge")}
ENGLISH_RELATIONS = {
    "left": ("left of", "to the left of", "on the left of"),
    "right": ("right of", "to the right of", "on the right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
}

# German nouns with their gender, which decides the endings below.
GERMAN_NOUNS = {
    "circle": (("Kreis", "m"), ("Scheibe", "f")), "square": (("Quadrat", "n"), ("Viereck", "n")),
    "triangle": (("Dreieck", "n"),), "star": (("Stern", "m"),), "heart": (("Herz", "n"),),
    "cross": (("Kreuz", "n"),), "diamond": (("Raute", "f"), ("Rhombus", "m")),
    "ring": (("Ring", "m"), ("Reif", "m")),
}  # fmt: skip
GERMAN_SIZES = {"small": ("klein", "winzig"), "large": ("groß", "riesig")}
GERMAN_COLOURS = {
    "red": "rot", "blue": "blau", "green": "grün", "yellow": "gelb", "black": "schwarz", "white": "weiß",
    "brown": "braun", "grey": "grau", "purple": "violett", "golden": "golden",
}  # fmt: skip
# All of these ask for the dative.
GERMAN_RELATIONS = {
    "left": ("links von", "links neben"),
    "right": ("rechts von", "rechts neben"),
    "above": ("über", "oberhalb von"),
    "below": ("unter", "unterhalb von"),
}
GERMAN_ARTICLES = {
    "nominative": {"m": "ein", "f": "eine", "n": "ein"},
    "accusative": {"m": "einen", "f": "eine", "n": "ein"},
    "dative": {"m": "einem", "f": "einer", "n": "einem"},
}
GERMAN_ENDINGS = {
    "nominative": {"m": "er", "f": "e", "n": "es"},
    "accusative": {"m": "en", "f": "e", "n": "es"},
    "dative": {"m": "en", "f": "en", "n": "en"},
}


# All frames are equally long, so that beam search, which favours long sentences, finds no easy favourite.
# Two that differ by a shift of one word make a parallel decoder say that word twice.
_FRAMES = {
    "en": {
        "plain": ("{hub} is seen {place}", "{hub} is {place} here", "here {hub} lies {place}"),
        "place_first": ("{place} there is {hub}", "{place} lies {hub} here", "{place} we see {hub}"),
        "there": ("there is {hub} {place}", "here is {hub} {place}", "we see {hub} {place}"),
    },
    "de": {
        "plain": ("{hub} befindet sich {place}", "{hub} liegt hier {place}", "{hub} ist {place} sichtbar"),
        "place_first": ("{place} liegt hier {hub}", "{place} ist {hub} sichtbar", "{place} sieht man {hub}"),
        "there": ("hier liegt {hub} {place}", "es gibt {hub} {place}", "man sieht {hub} {place}"),
    },
}
# In these the hub is what is seen or given, not what lies there.
_ACCUSATIVE_FRAMES = ("{place} sieht man {hub}", "es gibt {hub} {place}", "man sieht {hub} {place}")
_AND = {"en": "and", "de": "und"}


def sentences(scene: Scene, language: str, *, num: int = NUM_SENTENCES) -> list[str]:
    """`num` different sentences about the scene, the same on every machine.

    Args:
        scene: what to describe.
        language: "en" or "de".
        num: how many; the first ones do not depend on it.

    Raises:
        ValueError: for another language.
    """
    if language not in _FRAMES:
        raise ValueError(f"the toy world speaks {sorted(_FRAMES)}, not {language!r}")
    generator = np.random.default_rng(digest("sentences", language, scene.image_id))
    found: list[str] = []
    while len(found) < num:
        sentence = _sentence(scene, language, generator)
        if sentence not in found:
            found.append(sentence)
    return found


def _choose(
    generator: np.random.Generator,
    options: Sequence[Option],
    lean: float,
    *content: str,
    name: Callable[[Option], str] = str,
) -> Option:
    """One of the options; which are more likely depends on the content, between 1 and 1 + `lean` times."""
    weights = [1.0 + lean * (digest(name(option), *content) / 2.0**64) for option in options]
    threshold = float(generator.random()) * sum(weights)
    for option, weight in zip(options, weights, strict=True):
        threshold -= weight
        if threshold < 0:
            return option
    return options[-1]


def _sentence(scene: Scene, language: str, generator: np.random.Generator) -> str:
    things, relations = list(scene.things), list(scene.relations)
    about = [thing.colour for thing in things[:2]]
    if len(things) == 2 and _choose(generator, ("as is", "swapped"), ORDER_LEAN, *about) == "swapped":
        things.reverse()
        relations = [OPPOSITE[relations[0]]]
    order = _choose(generator, ("plain", "place_first", "there"), ORDER_LEAN, *about)
    frame = _choose(generator, _FRAMES[language][order], WORD_LEAN, things[0].colour)
    noun_phrase = _english_noun_phrase if language == "en" else _german_noun_phrase
    places = []
    for thing, relation in zip(things[1:], relations, strict=True):
        phrases = (ENGLISH_RELATIONS if language == "en" else GERMAN_RELATIONS)[relation]
        if len(things) == 3:  # keeps a sentence within 15 words
            phrases = tuple(
                p for p in phrases if len(p.split()) <= (2 if relation in ("left", "right") else 1)
            )
        phrase = _choose(generator, phrases, WORD_LEAN, thing.colour)
        places.append(f"{phrase} {noun_phrase(thing, 'dative', scene.names_sizes, generator)}")
    if (
        len(places) == 2
        and _choose(generator, ("row first", "column first"), ORDER_LEAN, *about) == "column first"
    ):
        places.reverse()
    case = "accusative" if frame in _ACCUSATIVE_FRAMES else "nominative"
    hub = noun_phrase(things[0], case, scene.names_sizes, generator)
    return frame.format(hub=hub, place=f" {_AND[language]} ".join(places))


def _english_noun_phrase(thing: Thing, case: str, with_size: bool, generator: np.random.Generator) -> str:
    noun = _choose(generator, ENGLISH_NOUNS[thing.shape], WORD_LEAN, thing.colour)
    return " ".join(["a", *_adjectives(thing, ENGLISH_SIZES, thing.colour, with_size, generator), noun])


def _german_noun_phrase(thing: Thing, case: str, with_size: bool, generator: np.random.Generator) -> str:
    noun, gender = _choose(generator, GERMAN_NOUNS[thing.shape], WORD_LEAN, thing.colour, name=lambda n: n[0])
    ending = GERMAN_ENDINGS[case][gender]
    adjectives = _adjectives(thing, GERMAN_SIZES, GERMAN_COLOURS[thing.colour], with_size, generator)
    return " ".join([GERMAN_ARTICLES[case][gender], *(f"{a}{ending}" for a in adjectives), noun])


def _adjectives(
    thing: Thing,
    size_words: dict[str, tuple[str, ...]],
    colour_word: str,
    with_size: bool,
    generator: np.random.Generator,
) -> list[str]:
    """Colour, and the size before or after it."""
    if not with_size:
        return [colour_word]
    size_word = _choose(generator, size_words[thing.size], WORD_LEAN, thing.shape)
    words = [size_word, colour_word]
    if (
        _choose(generator, ("size first", "colour first"), ORDER_LEAN, thing.colour, thing.shape)
        == "colour first"
    ):
        words.reverse()
    return words
