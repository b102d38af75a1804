"""Scenes of the toy world: two or three coloured shapes on a grid and the facts that are true of them.

A scene is decided by a seeded numpy generator with integer draws only, so one seed gives the same scenes on
every machine. Everything else (sentences, picture, region features) is a function of the scene alone. The
split of a scene is a digest of its facts, so no two splits share them, whatever the seeds. It writes no text.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

COLOURS = ("red", "blue", "green", "yellow", "black", "white", "brown", "grey", "purple", "golden")
SHAPES = ("circle", "square", "triangle", "star", "heart", "cross", "diamond", "ring")
SIZES = ("small", "large")
GRID = 4  # cells per side
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}

# Tenths of the space of facts that belong to each split.
SPLIT_BUCKETS = {
    "train": range(0, 6),
    "unlabeled": range(6, 8),
    "validation": range(8, 9),
    "test": range(9, 10),
}


@dataclass(frozen=True)
class Thing:
    """One coloured shape; `column` counts from the left and `row` from the top, both in [0, GRID)."""

    colour: str
    shape: str
    size: str
    column: int
    row: int


@dataclass(frozen=True)
class Scene:
    """Two or three things. Thing 0 is the hub: each other thing shares its row or its column.

    With three things, thing 1 lies in the hub's row and thing 2 in its column.
    """

    things: tuple[Thing, ...]

    @property
    def relations(self) -> tuple[str, ...]:
        """Where the hub is, seen from thing 1 and (if it exists) thing 2: left, right, above, below."""
        return tuple(_relation(self.things[0], other) for other in self.things[1:])

    @property
    def names_sizes(self) -> bool:
        """Whether its sentences name sizes: three things with sizes would take too many words."""
        return len(self.things) == 2

    @property
    def image_id(self) -> str:
        """A name unique to what the scene's picture shows."""
        parts = [f"{t.size}-{t.colour}-{t.shape}-{t.column}{t.row}" for t in self.things]
        return "_".join(parts)

    @property
    def facts(self) -> str:
        """What the sentences of the scene say, in one spelling: equal for scenes that read the same."""
        names = [
            f"{t.size} {t.colour} {t.shape}" if self.names_sizes else f"{t.colour} {t.shape}"
            for t in self.things
        ]
        relations = self.relations
        if len(names) == 2 and relations[0] in ("right", "below"):  # A right of B is B left of A
            names.reverse()
            relations = (OPPOSITE[relations[0]],)
        return "; ".join([names[0], *(f"{r} {name}" for r, name in zip(relations, names[1:], strict=True))])


def _relation(thing: Thing, other: Thing) -> str:
    if thing.row == other.row:
        return "left" if thing.column < other.column else "right"
    return "above" if thing.row < other.row else "below"


def digest(*words: str) -> int:
    """A 64-bit number that depends on the words only, on every machine (unlike `hash`)."""
    return int.from_bytes(hashlib.blake2b("|".join(words).encode(), digest_size=8).digest(), "big")


def split_of(scene: Scene) -> str:
    """The one split that may hold the scene."""
    bucket = digest("split", scene.facts) % 10
    return next(name for name, buckets in SPLIT_BUCKETS.items() if bucket in buckets)


def make_scenes(num: int, *, seed: int, split: str = "train") -> list[Scene]:
    """Draws `num` scenes that say different things, all of one split.

    Args:
        num: how many scenes.
        seed: decides which scenes; two seeds of one split may share scenes, two splits never do.
        split: "train", "unlabeled", "validation" or "test".

    Raises:
        ValueError: for an unknown split or a negative `num`.
    """
    if split not in SPLIT_BUCKETS:
        raise ValueError(f"unknown split {split!r} of the toy world; use one of {sorted(SPLIT_BUCKETS)}")
    if num < 0:
        raise ValueError(f"num is {num}; ask for zero or more scenes")
    generator = np.random.default_rng(seed)
    scenes: list[Scene] = []
    seen: set[str] = set()
    while len(scenes) < num:
        scene = _draw_things(generator)
        facts = scene.facts
        if facts not in seen and split_of(scene) == split:
            seen.add(facts)
            scenes.append(scene)
    return scenes


def _draw_things(generator: np.random.Generator) -> Scene:
    def below(bound: int) -> int:
        return int(generator.integers(bound))

    def other_than(taken: int) -> int:
        return (taken + 1 + below(GRID - 1)) % GRID

    column, row = below(GRID), below(GRID)
    in_row, in_column = (other_than(column), row), (column, other_than(row))
    cells = [[(column, row), in_row], [(column, row), in_column], [(column, row), in_row, in_column]]
    chosen = cells[below(3)]
    kinds: list[int] = []
    while len(kinds) < len(chosen):
        kind = below(len(COLOURS) * len(SHAPES))
        if kind not in kinds:  # no two things of one scene answer to the same name
            kinds.append(kind)
    things = [
        Thing(COLOURS[kind // len(SHAPES)], SHAPES[kind % len(SHAPES)], SIZES[below(2)], *cell)
        for kind, cell in zip(kinds, chosen, strict=True)
    ]
    return Scene(tuple(things))
