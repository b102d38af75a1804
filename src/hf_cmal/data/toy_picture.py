"""What a toy scene looks like: its picture (Pillow) and its features (one vector per thing, one global).

The features stand for a detector's vectors: an attribute code and the box, mixed by a fixed random
projection, with noise. They use only additions and products of numpy's uniform draws, so they are the same
bit for bit on every machine. They are not computed from the picture's pixels.
"""

import numpy as np
from PIL import Image, ImageDraw

from .toy_scenes import COLOURS, GRID, SHAPES, SIZES, Scene, Thing, digest

FEATURE_SIZE = 32
CELL = 24  # pixels
PICTURE_SIZE = GRID * CELL
RADIUS = {"small": 6, "large": 10}  # pixels
FEATURE_NOISE = 0.1

_BACKGROUND = (236, 226, 205)
_PAINT = {
    "red": (214, 40, 40), "blue": (38, 84, 204), "green": (38, 150, 70), "yellow": (246, 214, 40),
    "black": (20, 20, 20), "white": (255, 255, 255), "brown": (122, 74, 34), "grey": (138, 138, 138),
    "purple": (132, 50, 160), "golden": (206, 160, 46),
}  # fmt: skip

# The fixed projection: a vector for each attribute value and for each number of the box.
_ROWS = (*COLOURS, *SHAPES, *SIZES, "x0", "y0", "x1", "y1", "area", "ground", "count")
PROJECTION = dict(
    zip(_ROWS, np.random.default_rng(20).uniform(-1.0, 1.0, (len(_ROWS), FEATURE_SIZE)), strict=True)
)


def box_of(thing: Thing) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of the thing in pixels."""
    centre_x, centre_y = thing.column * CELL + CELL // 2, thing.row * CELL + CELL // 2
    radius = RADIUS[thing.size]
    return centre_x - radius, centre_y - radius, centre_x + radius, centre_y + radius


def region_features(scene: Scene) -> np.ndarray:
    """One vector for the whole picture, then one per thing in no telling order.

    Returns:
        float32 array of shape [L, FEATURE_SIZE], L = number of things + 1.
    """
    generator = np.random.default_rng(digest("features", scene.image_id))
    order = generator.permutation(len(scene.things))
    rows = [PROJECTION["ground"] + len(scene.things) * PROJECTION["count"]]
    for thing in (scene.things[i] for i in order):
        left, top, right, bottom = (2.0 * side / PICTURE_SIZE - 1.0 for side in box_of(thing))
        row = PROJECTION[thing.colour] + PROJECTION[thing.shape] + PROJECTION[thing.size]
        row = row + left * PROJECTION["x0"] + top * PROJECTION["y0"]
        row = row + right * PROJECTION["x1"] + bottom * PROJECTION["y1"]
        rows.append(row + (right - left) * (bottom - top) * PROJECTION["area"])
    noise = generator.uniform(-FEATURE_NOISE, FEATURE_NOISE, (len(rows), FEATURE_SIZE))
    return (np.stack(rows) + noise).astype(np.float32)


def draw_scene(scene: Scene) -> Image.Image:
    """The scene as an RGB picture of PICTURE_SIZE x PICTURE_SIZE pixels."""
    picture = Image.new("RGB", (PICTURE_SIZE, PICTURE_SIZE), _BACKGROUND)
    pen = ImageDraw.Draw(picture)
    for thing in scene.things:
        _draw_thing(pen, thing)
    return picture


def _draw_thing(pen: ImageDraw.ImageDraw, thing: Thing) -> None:
    left, top, right, bottom = box = box_of(thing)
    paint, radius = _PAINT[thing.colour], RADIUS[thing.size]
    middle_x, middle_y = (left + right) // 2, (top + bottom) // 2
    if thing.shape == "circle":
        pen.ellipse(box, fill=paint)
    elif thing.shape == "ring":
        pen.ellipse(box, outline=paint, width=radius // 3 + 1)
    elif thing.shape == "square":
        pen.rectangle(box, fill=paint)
    elif thing.shape == "triangle":
        pen.polygon([(middle_x, top), (right, bottom), (left, bottom)], fill=paint)
    elif thing.shape == "diamond":
        pen.polygon([(middle_x, top), (right, middle_y), (middle_x, bottom), (left, middle_y)], fill=paint)
    elif thing.shape == "cross":
        arm = radius // 3
        pen.rectangle((middle_x - arm, top, middle_x + arm, bottom), fill=paint)
        pen.rectangle((left, middle_y - arm, right, middle_y + arm), fill=paint)
    elif thing.shape == "heart":
        pen.ellipse((left, top, middle_x, middle_y), fill=paint)
        pen.ellipse((middle_x, top, right, middle_y), fill=paint)
        pen.polygon(
            [(left, middle_y - radius // 2), (right, middle_y - radius // 2), (middle_x, bottom)], fill=paint
        )
    elif thing.shape == "star":
        # Outer points on the circle, inner ones at 0.4 of it; unit directions written out to a hundredth.
        outer = ((0, -100), (95, -31), (59, 81), (-59, 81), (-95, -31))
        inner = ((59, -81), (95, 31), (0, 100), (-95, 31), (-59, -81))
        points = [
            (middle_x + x * scale * radius / 1000, middle_y + y * scale * radius / 1000)
            for pair in zip(outer, inner, strict=True)
            for (x, y), scale in zip(pair, (10, 4), strict=True)
        ]
        pen.polygon(points, fill=paint)
    else:
        raise ValueError(f"no drawing for the shape {thing.shape!r}; the toy world knows {SHAPES}")
