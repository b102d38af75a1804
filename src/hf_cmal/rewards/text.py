"""Any function on strings as a reward, in TRL's signature: function(prompts, completions, **columns) ->
list[float].

The road for metrics without a kernel (CMAL Sec. 4.2 takes any sentence-level reward): sentences are decoded,
equal ones of an input are scored once, counterfactuals are written out. It is as fast as the function is.
`word_gleu` is such a function: GLEU on whitespace-separated words instead of subword ids.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hf_cmal.models.nag.sequences_nag import alive_mask, length_mask
from hf_cmal.rewards.base import check_actions, check_edits, package_version, score_written_out
from hf_cmal.rewards.gleu import GleuReward
from hf_cmal.sampling.proposals import Edits

TextFunction = Callable[..., Sequence[float | None]]
Decode = Callable[[list[list[int]]], list[str]]


@dataclass(frozen=True)
class BoundTextReward:
    """See `BoundReward`. Nothing is known about which words matter: no candidates, OTHER is never exact."""

    function: TextFunction
    function_name: str
    decode: Decode
    agent_mask: Tensor
    eos_token_id: int | None
    prompts: Sequence[Any]
    columns: Mapping[str, Sequence[Any]]
    candidates: None = None
    other_is_exact: bool = False

    def score(self, actions: Tensor) -> Tensor:
        """long [B, R, N] -> float64 [B, R].

        Raises:
            ValueError: wrong shape, OTHER among the words, or the function returned something else than one
                finite number per completion.
        """
        num_inputs, num_agents = self.agent_mask.shape
        check_actions(actions, (num_inputs, num_agents))
        tokens = actions.detach().cpu()
        alive = alive_mask(tokens, self.agent_mask[:, None], self.eos_token_id)
        if self.eos_token_id is not None:
            alive &= tokens != self.eos_token_id
        if bool((alive & (tokens < 0)).any()):
            raise ValueError("the word OTHER (-1) cannot be decoded: a reward on strings knows no candidates")

        sentences = [tuple(row[keep].tolist()) for row, keep in _rows(tokens, alive)]
        distinct = list(dict.fromkeys(sentences))
        decoded = self.decode([list(sentence) for sentence in distinct])
        if len(decoded) != len(distinct):
            raise ValueError(f"decode returned {len(decoded)} strings for {len(distinct)} sentences")
        text = dict(zip(distinct, decoded, strict=True))

        num_rows = actions.shape[1]
        keys = [(index // num_rows, text[sentence]) for index, sentence in enumerate(sentences)]
        unique = list(dict.fromkeys(keys))
        rewards = dict(zip(unique, self._call(unique), strict=True))
        values = torch.tensor([rewards[key] for key in keys], dtype=torch.float64)
        return values.reshape(num_inputs, num_rows).to(actions.device)

    def score_edits(self, actions: Tensor, edits: Edits) -> Tensor:
        """long [B, R >= S, N], edits [B, S, M] -> float64 [B, S, M], 0 where edits.mask is False."""
        check_edits(edits, actions)
        return score_written_out(self.score, actions, edits)

    def _call(self, completions: list[tuple[int, str]]) -> list[float]:
        """The function's rewards of (input, text) pairs."""
        if not completions:
            return []
        inputs = [index for index, _ in completions]
        columns = {name: [column[index] for index in inputs] for name, column in self.columns.items()}
        returned = self.function(
            prompts=[self.prompts[index] for index in inputs],
            completions=[text for _, text in completions],
            **columns,
        )
        rewards = [float("nan") if value is None else float(value) for value in returned]
        if len(rewards) != len(completions):
            raise ValueError(
                f"the reward function {self.function_name} returned {len(rewards)} values for "
                f"{len(completions)} completions: it must return one number per completion, in their order"
            )
        bad = [index for index, value in enumerate(rewards) if not np.isfinite(value)]
        if bad:
            raise ValueError(
                f"the reward function {self.function_name} returned {len(bad)} of {len(rewards)} values "
                f"that are not finite, the first {rewards[bad[0]]} for {completions[bad[0]][1]!r}: return a "
                "finite number for every completion"
            )
        return rewards


def _rows(tokens: Tensor, alive: Tensor) -> list[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """The B * R sentences of [B, R, N] and what is alive in each."""
    num_agents = tokens.shape[-1]
    flat, keep = tokens.reshape(-1, num_agents).numpy(), alive.reshape(-1, num_agents).numpy()
    return list(zip(flat, keep, strict=True))


@dataclass(frozen=True)
class TextReward:
    """A function on strings as a reward.

    Args:
        function: called as function(prompts=..., completions=..., **columns) with lists of equal length, one
            entry per distinct completion; returns one finite number each. Columns are those of the batch
            (`references`, the strings, among them), repeated per completion; a function ignores what it does
            not need by `**columns`.
        decode: lists of token ids (without eos and what follows it) -> strings, e.g. a tokenizer's
        batch_decode. name: used in logged metrics, the signature and errors.

    Example:
        >>> def shortness(prompts, completions, **columns):
        ...     return [-float(len(completion)) for completion in completions]
        >>> reward = TextReward(shortness, decode=tokenizer.batch_decode, name="shortness")
    """

    function: TextFunction
    decode: Decode
    name: str

    def __init__(self, function: TextFunction, *, decode: Decode, name: str) -> None:
        for option, value in (("function", function), ("decode", decode)):
            if not callable(value):
                raise TypeError(f"{option} of the reward {name!r} must be callable, got {value!r}")
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "decode", decode)
        object.__setattr__(self, "name", name)

    @property
    def signature(self) -> str:
        return f"{self.name}|on:text|v:{package_version()}"

    def bind(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> BoundTextReward:
        """See `Reward.bind`. The column `source` becomes the prompts, None for each input where it is absent.

        References as token ids are not used: the function gets the column `references`, the strings.

        Raises:
            ValueError: a column that has not one entry per input.
        """
        num_inputs = agent_mask.shape[0]
        columns = dict(columns or {})
        for column, values in columns.items():
            if len(values) != num_inputs:
                raise ValueError(
                    f"column {column!r} has {len(values)} entries for {num_inputs} inputs of the batch"
                )
        prompts = columns.pop("source", [None] * num_inputs)
        for taken in ("prompts", "completions"):
            if taken in columns:
                raise ValueError(
                    f"the batch has a column {taken!r}, which rewards on strings are called with: rename it"
                )
        return BoundTextReward(
            function=self.function,
            function_name=self.name,
            decode=self.decode,
            agent_mask=agent_mask.detach().cpu(),
            eos_token_id=eos_token_id,
            prompts=prompts,
            columns=columns,
        )


def word_gleu(
    prompts: Sequence[Any], completions: Sequence[str], *, references: Sequence[Sequence[str]], **columns: Any
) -> list[float]:
    """Sentence GLEU (Wu et al. 2016) on whitespace-separated words, the best of several references.

    Args:
        prompts: unused, part of the signature.
        completions: decoded sentences.
        references: for each completion its references, at least one.

    Returns:
        One number in [0, 1] per completion.

    Example:
        >>> word_gleu([None], ["a cat sat"], references=[["a cat sat down", "the cat sat"]])  # 6/10 and 3/6
        [0.6]
    """
    ids: dict[str, int] = {}
    numbered = [[ids.setdefault(word, len(ids)) for word in completion.split()] for completion in completions]
    # Two completions of one input share the list object of their references.
    split: dict[int, list[list[int]]] = {}
    for group in references:
        if id(group) not in split:
            split[id(group)] = [[ids.setdefault(word, len(ids)) for word in text.split()] for text in group]
    lengths = torch.tensor([len(words) for words in numbered], dtype=torch.long)
    num_words = max(1, int(lengths.max())) if numbered else 1
    actions = torch.tensor([words + [0] * (num_words - len(words)) for words in numbered], dtype=torch.long)
    bound = GleuReward().bind(
        [split[id(group)] for group in references], length_mask(lengths, num_words), eos_token_id=None
    )
    scores: list[float] = bound.score(actions.reshape(len(numbered), 1, num_words))[:, 0].tolist()
    return scores
