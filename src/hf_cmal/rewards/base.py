"""What a reward is: options, bound to the references of a batch, then asked what joint actions are worth.

`reward.bind(...)` gives a bound reward; `bound.score` rates whole sentences (CMAL Sec. 4.2, the team reward
R(u)), `bound.score_edits` rates counterfactuals (Secs. 4.4 and 4.5), each an edit of a sampled sentence. A
reward sees token ids or decoded text and never anything differentiable; it knows neither estimator nor model.
No reward is defined here.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from typing import Any, Protocol

import torch
from torch import Tensor

from hf_cmal.sampling.proposals import Edits
from hf_cmal.sampling.sample import write_out_edits


class BoundReward(Protocol):
    """A reward that knows the references of B inputs."""

    @property
    def candidates(self) -> Tensor | None:
        """long [B, C]: the words that can change the reward, eos among them where there is one, padded
        with OTHER.
        """

    @property
    def other_is_exact(self) -> bool:
        """Whether all words outside `candidates` are worth the same: OTHER stands for each of them."""

    def score(self, actions: Tensor) -> Tensor:
        """Rewards of joint actions: long [B, R, N] -> float64 [B, R]."""

    def score_edits(self, actions: Tensor, edits: Edits) -> Tensor:
        """Rewards of edited samples: long [B, R >= S, N] and edits [B, S, M] -> float64 [B, S, M], 0 where
        not edits.mask.

        Row s of `actions` is the sample that the edits [:, s] are applied to, each for itself.
        """


class Reward(Protocol):
    """A reward with its options, before it has seen a reference."""

    @property
    def name(self) -> str:
        """Its short name, used in logged metrics."""

    @property
    def signature(self) -> str:
        """Everything that decides the number, e.g. `gleu|n:1-4|eos:yes|v:0.1.0`."""

    def bind(
        self,
        references: Sequence[Sequence[Sequence[int]]],
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        columns: Mapping[str, Sequence[Any]] | None = None,
    ) -> BoundReward:
        """Prepares the references of a batch.

        Args:
            references: per input a list of references (any number, at least one), each a list of token ids
            without eos. agent_mask: bool [B, N], True where there is an agent. eos_token_id: the word that
            ends a sentence, or None where a sentence is all agents of the mask. columns: further columns of
            the batch, B entries each; only rewards on strings read them.

        Raises:
            ValueError: an input without references or with an empty one, named by its index in the batch.
        """


def check_actions(actions: Tensor, agent_mask_shape: tuple[int, int]) -> None:
    """Raises ValueError unless `actions` is an integer tensor [B, R, N] that fits the agent mask [B, N]."""
    num_inputs, num_agents = agent_mask_shape
    if actions.dim() != 3 or actions.shape[0] != num_inputs or actions.shape[2] != num_agents:
        raise ValueError(
            f"actions have shape {tuple(actions.shape)}, but the reward is bound to {num_inputs} inputs of "
            f"{num_agents} agents and wants [{num_inputs}, R, {num_agents}]; bind it to the batch that the "
            "actions were drawn for"
        )
    if actions.is_floating_point() or actions.dtype == torch.bool:
        raise ValueError(f"actions are word ids and must be integers, got {actions.dtype}")


def check_edits(edits: Edits, actions: Tensor) -> None:
    """Raises ValueError unless `edits` [B, S, M] fit `actions` [B, R >= S, N] and stay within the agents."""
    num_inputs, num_rows, num_agents = actions.shape
    shape = tuple(edits.position.shape)
    if shape[0] != num_inputs or shape[1] > num_rows:
        raise ValueError(
            f"edits of {shape[0]} inputs and {shape[1]} samples do not fit actions {tuple(actions.shape)}: "
            "they belong to the first S rows of the joint actions that they were proposed with"
        )
    last = edits.position + edits.width - 1
    outside = edits.mask & (
        (edits.position < 0) | (last >= num_agents) | (edits.width < 1) | (edits.width > 2)
    )
    if bool(outside.any()):
        where = outside.nonzero()[0].tolist()
        position, width = int(edits.position[tuple(where)]), int(edits.width[tuple(where)])
        raise ValueError(
            f"edit {where} has position {position} and width {width}: it must have width 1 or 2 and stay "
            f"within the {num_agents} agents; set its mask to False if it is padding"
        )


def score_written_out(score: Callable[[Tensor], Tensor], actions: Tensor, edits: Edits) -> Tensor:
    """Scores edits by writing out every edited sentence: slow, but it works with any reward.

    Args:
        score: long [B, R, N] -> float64 [B, R].
        actions: long [B, R >= S, N].
        edits: S samples, M edits each.

    Returns:
        float64 [B, S, M], 0 where edits.mask is False.
    """
    num_inputs, num_samples, num_edits = edits.position.shape
    sentences = write_out_edits(actions, edits)
    rewards = score(sentences.reshape(num_inputs, num_samples * num_edits, actions.shape[-1]))
    rewards = rewards.reshape(num_inputs, num_samples, num_edits)
    return torch.where(edits.mask, rewards, torch.zeros_like(rewards))


def package_version() -> str:
    """The installed version of hf_cmal, which closes every signature."""
    return metadata.version("hf-cmal")
