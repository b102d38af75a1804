"""The toy world as data sets: translation (English to German) and captioning (region features to English).

Both read the same scenes (toy_scenes.py), described by one grammar (toy_grammar.py) and shown by one picture
(toy_picture.py). Everything is decided by the seed, and no two splits share the facts of a scene. The
sentences need a tokenizer before a model sees them; this file does not encode.
"""

from datasets import Dataset, Features, List, Value

from .columns import FEATURES, IMAGE_ID, REFERENCES, SOURCE
from .toy_grammar import sentences
from .toy_picture import FEATURE_SIZE, draw_scene, region_features
from .toy_scenes import Scene, Thing, make_scenes

__all__ = [
    "FEATURE_SIZE",
    "Scene",
    "Thing",
    "draw_scene",
    "make_scenes",
    "region_features",
    "sentences",
    "toy_captions",
    "toy_translation",
]


def toy_translation(num_examples: int, *, seed: int, split: str = "train", labeled: bool = True) -> Dataset:
    """English sentences with five German translations each.

    Args:
        num_examples: how many scenes, each one example.
        seed: decides which scenes.
        split: "train", "unlabeled", "validation" or "test"; the splits share no facts.
        labeled: False leaves `references` empty, for inputs that only a teacher translates (CMAL Sec. 4.6).

    Returns:
        A data set with columns `source` (str), `references` (list of str) and `image_id` (str).
    """
    scenes = make_scenes(num_examples, seed=seed, split=split)
    columns = {
        SOURCE: [sentences(scene, "en", num=1)[0] for scene in scenes],
        REFERENCES: [sentences(scene, "de") if labeled else [] for scene in scenes],
        IMAGE_ID: [scene.image_id for scene in scenes],
    }
    schema = {SOURCE: Value("string"), REFERENCES: List(Value("string")), IMAGE_ID: Value("string")}
    return Dataset.from_dict(columns, features=Features(schema))


def toy_captions(num_examples: int, *, seed: int, split: str = "train", labeled: bool = True) -> Dataset:
    """Region features with five English captions each.

    Args:
        num_examples: how many scenes, each one example.
        seed: decides which scenes.
        split: "train", "unlabeled", "validation" or "test"; the splits share no facts.
        labeled: False leaves `references` empty, for inputs that only a teacher describes (CMAL Sec. 4.6).

    Returns:
        A data set with columns `features` (float32 [L, FEATURE_SIZE], L varies), `references` (list of str)
        and `image_id` (str).
    """
    scenes = make_scenes(num_examples, seed=seed, split=split)
    columns = {
        FEATURES: [region_features(scene) for scene in scenes],
        REFERENCES: [sentences(scene, "en") if labeled else [] for scene in scenes],
        IMAGE_ID: [scene.image_id for scene in scenes],
    }
    schema = {
        FEATURES: List(List(Value("float32"))),
        REFERENCES: List(Value("string")),
        IMAGE_ID: Value("string"),
    }
    return Dataset.from_dict(columns, features=Features(schema))
