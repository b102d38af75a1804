"""Whom a model owes its words to: for every data set of a ladder its authors, its terms and its limits.

A model of other data passes a `TrainingData` of its own. No data is read here.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class TrainingData:
    """A data set, as the card and the licence of a model speak of it.

    Attributes:
        identifier: id on the Hub ("owner/name"), or a plain name if it is not there.
        name: what people call it.
        attribution: what it is and who made it, without a full stop.
        terms: under which terms its authors give it, one or two sentences.
        limits: what a model trained on it has not seen, sentences for "Intended use and limits".
        command: what trains and measures a ladder on it in a clone of hf_cmal; None: nothing there does.
        citation: BibTeX of its papers; None: there is none.
        non_commercial: its terms forbid a licence of free use.
    """

    identifier: str
    name: str
    attribution: str
    terms: str
    limits: str
    command: str | None = None
    citation: str | None = None
    non_commercial: bool = False


TRAINING_DATA = {
    "toy": TrainingData(
        identifier="toy",
        name="the toy world of hf_cmal",
        attribution="sentences about coloured shapes that hf_cmal draws from a seed",
        terms="These sentences are part of hf_cmal, under the Apache License 2.0.",
        limits="It knows a few dozen words about coloured shapes and nothing else.",
        command="hf-cmal demo",
    ),
    "bentrevett/multi30k": TrainingData(
        identifier="bentrevett/multi30k",
        name="Multi30k",
        attribution=(
            "professional German translations of English image descriptions by Elliott, Frank, Sima'an and "
            "Specia (2016); the English descriptions are captions of Flickr30k by Young, Lai, Hodosh and "
            "Hockenmaier (2014)"
        ),
        terms="Its authors give these texts for non-commercial research only.",
        non_commercial=True,
        limits=(
            "It has read descriptions of pictures only: single short sentences in the present tense about "
            "people, animals and what they do. News, conversation, questions, names and technical text are "
            "foreign to it, and so is every word that its training text lacks. What the describers took for "
            "granted about the people in the pictures (age, gender, work) is in its sentences too."
        ),
        command="hf-cmal run recipes/multi30k",
        citation="""\
@inproceedings{elliott-etal-2016-multi30k,
  title     = {Multi30K: Multilingual English-German Image Descriptions},
  author    = {Elliott, Desmond and Frank, Stella and Sima'an, Khalil and Specia, Lucia},
  booktitle = {Proceedings of the 5th Workshop on Vision and Language},
  year      = {2016},
  pages     = {70--74}
}
@article{young-etal-2014-image,
  title   = {From image descriptions to visual denotations: New similarity metrics for semantic inference
             over event descriptions},
  author  = {Young, Peter and Lai, Alice and Hodosh, Micah and Hockenmaier, Julia},
  journal = {Transactions of the Association for Computational Linguistics},
  volume  = {2},
  year    = {2014},
  pages   = {67--78}
}""",
    ),
}


def training_data(dataset: str | TrainingData) -> TrainingData:
    """The entry of a data set, or the given one.

    Raises:
        ValueError: nothing is known of a data set of that name.
    """
    if isinstance(dataset, TrainingData):
        return dataset
    if dataset not in TRAINING_DATA:
        raise ValueError(
            f"dataset is {dataset!r}, of which neither authors nor terms are known; give one of "
            f"{', '.join(TRAINING_DATA)}, or a TrainingData that says them"
        )
    return TRAINING_DATA[dataset]
