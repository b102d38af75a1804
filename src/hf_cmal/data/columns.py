"""Names of the dataset columns that every stage of the road agrees on.

A row of raw data has `source` (translation) or `features` (captioning) and a list of `references`, which is
empty for unlabeled inputs. `target` is the one string that word-by-word training imitates: a reference or a
teacher's sentence. The encoded columns (`input_ids`, `labels`, `reference_ids`) stand beside the strings,
they do not replace them.
"""

SOURCE = "source"
REFERENCES = "references"
TARGET = "target"
FEATURES = "features"
IMAGE_ID = "image_id"

INPUT_IDS = "input_ids"
LABELS = "labels"
REFERENCE_IDS = "reference_ids"

PASSTHROUGH_COLUMNS = (REFERENCE_IDS, REFERENCES, SOURCE, IMAGE_ID)
"""Columns that rewards and metrics read: collators hand them on as Python lists."""
