"""Joint actions to rewards: the numbers that CMAL maximises (Sec. 4.2, the team reward).

Reading order: `base.py` (what a reward is), `gleu.py`, `bleu.py`, `cider.py`, `repetition.py` (options and
definitions), `document_frequencies.py` (of CIDEr-D), `mixture.py` (weighted sums), `text.py` (any function on
strings), `references.py`, `rows.py` and `bound.py` (a batch), `tables.py`, `ngrams.py` and `lcs.py` (the
kernels). A new reward is one file and one line in REWARDS, whose entries work on token ids alone; others are
named by a dotted path, as is METEOR, a Java program (`meteor.py`). Reported scores are in `metrics`.
"""

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, cast

from hf_cmal.rewards.base import BoundReward, Reward, score_written_out
from hf_cmal.rewards.bleu import BleuReward
from hf_cmal.rewards.cider import CiderDReward
from hf_cmal.rewards.document_frequencies import DocumentFrequencies
from hf_cmal.rewards.gleu import GleuReward
from hf_cmal.rewards.mixture import MixtureReward, parse_mixture
from hf_cmal.rewards.repetition import RepetitionReward
from hf_cmal.rewards.rouge import RougeLReward
from hf_cmal.rewards.text import Decode, TextReward, word_gleu

__all__ = [
    "BleuReward",
    "BoundReward",
    "CiderDReward",
    "DocumentFrequencies",
    "GleuReward",
    "MixtureReward",
    "REWARDS",
    "RepetitionReward",
    "Reward",
    "RougeLReward",
    "TextReward",
    "get_reward",
    "score_written_out",
    "word_gleu",
]

METEOR = "hf_cmal.rewards.meteor.MeteorReward"
REWARDS: dict[str, Callable[..., Reward]] = {
    "gleu": GleuReward,
    "cider-d": CiderDReward,
    "bleu": BleuReward,
    "rouge-l": RougeLReward,
    "repetition": RepetitionReward,
}


def get_reward(name: str, *, decode: Decode | None = None, **options: Any) -> Reward:
    """Makes a reward from its name and options.

    Args:
        name: a key of REWARDS, or "package.module.attribute", or a weighted sum of such, e.g.
            "gleu + 0.5 * repetition". The attribute is a class with `bind` (a reward
            of one's own), or a function (prompts, completions, **columns) -> list[float], which becomes a
            `TextReward`.
        decode: lists of token ids -> strings. A reward on strings needs it, the others are not given it.
        **options: of that reward; of a sum, each part is given those that it knows.

    Raises:
        ValueError: no reward of this name, or nothing at the dotted path.
        TypeError: an option that the reward does not know, or a missing one.

    Example:
        >>> get_reward("gleu", max_order=3)
        >>> get_reward("gleu + 0.5 * repetition")
        >>> get_reward("hf_cmal.rewards.text.word_gleu", decode=tokenizer.batch_decode)
    """
    parts = [(weight, _maker(part)) for weight, part in parse_mixture(name)]
    known = list(dict.fromkeys(option for _, make in parts for option in _options(make)))
    unknown = sorted(set(options) - set(known))
    if unknown:
        legal = ", ".join(known) or "none"
        raise TypeError(f"the reward {name!r} has no option {unknown[0]!r}; its options: {legal}")
    if decode is not None:
        options["decode"] = decode
    made = [(weight, _make(name, make, options)) for weight, make in parts]
    return made[0][1] if len(made) == 1 and made[0][0] == 1.0 else MixtureReward(made)


def _make(name: str, make: Callable[..., Reward], options: dict[str, Any]) -> Reward:
    parameters = _options(make)
    missing = [option for option in parameters if _is_required(parameters[option]) and option not in options]
    if missing:
        raise TypeError(
            f"the reward {name!r} needs the option {missing[0]!r}; its options: {', '.join(parameters)}"
        )
    return make(**{option: value for option, value in options.items() if option in parameters})


def _maker(name: str) -> Callable[..., Reward]:
    return REWARDS[name] if name in REWARDS else _load(name)


def _options(make: Callable[..., Reward]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(make).parameters
    return {option: value for option, value in parameters.items() if option not in ("function", "name")}


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty and parameter.kind not in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    )


def _load(path: str) -> Callable[..., Reward]:
    module_name, _, attribute = path.rpartition(".")
    legal = (
        f"legal names: {', '.join(REWARDS)}, or a dotted path 'package.module.attribute', e.g. {METEOR} "
        "(which needs Java)"
    )
    if not module_name:
        raise ValueError(f"unknown reward {path!r}; {legal}")
    try:
        loaded = getattr(import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"unknown reward {path!r} ({error}); {legal}") from error
    if isinstance(loaded, type):
        return cast("Callable[..., Reward]", loaded)
    if not callable(loaded):
        raise ValueError(f"reward {path!r} is {loaded!r}, which is neither a class nor a function; {legal}")
    return partial(TextReward, loaded, name=attribute)
