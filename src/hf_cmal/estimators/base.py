"""The interface of all estimators, and the policy gradient that most end in (CMAL Sec. 4.3, Eqs. (6)-(9)).

An estimator first proposes what to reward, then turns the rewards into a surrogate: a scalar whose gradient
is its estimate of the gradient of Eq. (6). It sees no references and no strings; the reward sees nothing
differentiable. No baseline lives here: each has a file of its own.
"""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from hf_cmal.models.nag.sequences_nag import alive_mask
from hf_cmal.sampling.proposals import Proposals


@dataclass(frozen=True)
class Surrogate:
    """What an estimator makes of the rewards.

    Attributes:
        loss: scalar. Its value means nothing, its gradient is the estimate of the gradient of -E[R], CMAL Eq.
            (6).
        advantages: [B,S,N] without a gradient, in units of the reward, exactly 0 on padding and after the
            first eos; None for an estimator that does not work by advantages of sampled words.
        stats: scalars to log.
    """

    loss: Tensor
    advantages: Tensor | None
    stats: dict[str, Tensor]


class Estimator(Protocol):
    """Estimates the gradient of the expected reward of a policy with independent agents."""

    def propose(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        *,
        eos_token_id: int | None,
        num_samples: int = 5,
        candidates: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Proposals:
        """Draws joint actions and says which of them, and which edits, must be rewarded.

        Args:
            log_probs: [B,N,V], normalised, -inf for suppressed words; used without a gradient.
            agent_mask: bool [B,N], True = an agent.
            eos_token_id: the word that ends a sentence; None where the number of agents is its length.
            num_samples: S, at least 1.
            candidates: long [B,C] padded with `OTHER`, the words that can change the reward (`BoundReward`),
                or None.
            generator: on the device of `log_probs`.
        """
        ...

    def surrogate(
        self,
        log_probs: Tensor,
        proposals: Proposals,
        rewards: Tensor,
        edit_rewards: Tensor | None,
        *,
        num_inputs: int | Tensor,
    ) -> Surrogate:
        """Turns rewards into a loss.

        Args:
            log_probs: [B,N,V], those that were proposed from, now with their gradient.
            proposals: what `propose` returned.
            rewards: [B,R] of `proposals.actions`.
            edit_rewards: [B,S,M] of `proposals.edits`, 0 where masked; None exactly where `proposals.edits`
                is.
            num_inputs: over all ranks and micro-batches of the optimizer step. It divides the loss; a
                sentence's length never does.

        Raises:
            ValueError: if the rewards do not fit the proposals.
        """
        ...


class SamplingEstimator(Estimator, Protocol):
    """An estimator whose proposals follow from plain samples of the policy, wherever these come from.

    With it, a step can be repeated on given joint actions, and an expectation taken over all of them.
    `propose` is `sample_actions`, then this.
    """

    def propose_from_actions(
        self,
        log_probs: Tensor,
        agent_mask: Tensor,
        actions: Tensor,
        *,
        eos_token_id: int | None,
        candidates: Tensor | None = None,
    ) -> Proposals:
        """As `Estimator.propose`, for the joint actions [B,S,N]."""
        ...


@runtime_checkable
class StatefulEstimator(Estimator, Protocol):
    """An estimator that learns from step to step; a checkpoint keeps its state, which JSON can hold."""

    def update(self, mean_reward: float) -> None:
        """Called once per optimizer step, after it, with the mean reward of its samples over all ranks."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def policy_gradient_loss(
    log_probs: Tensor,
    actions: Tensor,
    advantages: Tensor,
    alive: Tensor,
    *,
    num_inputs: int | Tensor,
) -> Tensor:
    """The loss whose gradient is the policy gradient, CMAL Eqs. (7)-(9), (11), (18), with the minus of (7).

    loss = - sum_{b,s,a alive} A log pi_a(u_a) / (num_inputs * S)

    Args:
        log_probs: [B,N,V].
        actions: long [B,S,N], the samples.
        advantages: [B,S], or [B,S,N] for an advantage of each agent; taken without a gradient.
        alive: bool [B,S,N]; agents outside get no gradient.
        num_inputs: over all ranks and micro-batches of the optimizer step.

    Returns:
        scalar; its gradient is finite wherever `advantages` are, also where words have log-prob -inf.

    Example:

        >>> log_probs = torch.tensor([[[0.5, 0.5]]]).log().requires_grad_()
        >>> actions, alive = torch.tensor([[[1]]]), torch.tensor([[[True]]])
        >>> advantages = torch.tensor([[3.0]])
        >>> policy_gradient_loss(log_probs, actions, advantages, alive, num_inputs=1).backward()
        >>> log_probs.grad.tolist()
        [[[0.0, -3.0]]]
    """
    if advantages.dim() == actions.dim() - 1:
        advantages = advantages[..., None]
    # Gathered as [B,N,S]: no copy of the vocabulary per sample.
    chosen = log_probs.gather(-1, actions.transpose(1, 2)).transpose(1, 2)
    coefficients = advantages.detach().to(log_probs.dtype)
    # Masked before the product: a row of padding may hold -inf, and 0 * -inf is nan.
    terms = coefficients * chosen.masked_fill(~alive, 0.0)
    return -terms.sum() / (num_inputs * actions.shape[1])  # Eq. (7)


def baseline_surrogate(
    log_probs: Tensor,
    proposals: Proposals,
    rewards: Tensor,
    baseline: Tensor | float,
    *,
    num_inputs: int | Tensor,
) -> Surrogate:
    """The surrogate of every estimator that subtracts a baseline from the reward, CMAL Eqs. (9) and (10).

    The estimate is unbiased iff the baseline of an agent does not depend on that agent's own action.

    Args:
        baseline: a number, [B,S], or [B,S,N].
        Everything else as `Estimator.surrogate`.
    """
    num_samples, alive = proposals.num_samples, proposals.alive
    if isinstance(baseline, Tensor) and baseline.dim() == 2:
        baseline = baseline[..., None]
    advantages = rewards[:, :num_samples, None] - baseline  # Eq. (10)
    advantages = torch.where(alive, advantages, 0.0).detach()
    loss = policy_gradient_loss(
        log_probs, proposals.actions[:, :num_samples], advantages, alive, num_inputs=num_inputs
    )
    return Surrogate(loss, advantages, advantage_stats(advantages, alive))


def advantage_stats(advantages: Tensor, alive: Tensor) -> dict[str, Tensor]:
    """`advantage_mean` and `advantage_std` (population) over the agents that are alive; 0 where none is."""
    count = alive.sum().clamp(min=1)
    mean = advantages.sum() / count
    deviations = torch.where(alive, advantages - mean, 0.0)
    return {"advantage_mean": mean, "advantage_std": (deviations.square().sum() / count).sqrt()}


def sample_proposals(
    log_probs: Tensor, agent_mask: Tensor, actions: Tensor, *, eos_token_id: int | None
) -> Proposals:
    """Proposals of samples alone, without auxiliary rows and edits: where every `propose_from_actions`
    starts.

    Args:
        log_probs: [B,N,V].
        agent_mask: bool [B,N].
        actions: long [B,S,N].
        eos_token_id: or None.

    Raises:
        ValueError: if the shapes do not fit, or the mask is not bool.
    """
    if log_probs.dim() != 3:
        raise ValueError(f"log_probs must be [B,N,V], got shape {list(log_probs.shape)}")
    if agent_mask.shape != log_probs.shape[:2] or agent_mask.dtype != torch.bool:
        raise ValueError(
            f"agent_mask must be bool {list(log_probs.shape[:2])} (True = an agent) to fit log_probs, "
            f"got {agent_mask.dtype} {list(agent_mask.shape)}"
        )
    if actions.dim() != 3 or (actions.shape[0], actions.shape[2]) != tuple(agent_mask.shape):
        raise ValueError(
            f"actions must be [B,S,N] with B, N = {list(agent_mask.shape)}, got shape {list(actions.shape)}"
        )
    alive = alive_mask(actions, agent_mask[:, None], eos_token_id)
    return Proposals(actions=actions, num_samples=actions.shape[1], alive=alive)


def check_rewards(proposals: Proposals, rewards: Tensor, edit_rewards: Tensor | None) -> None:
    """Raises a ValueError unless there is one reward for each joint action, and one for each edit if any."""
    if rewards.shape != proposals.actions.shape[:2]:
        raise ValueError(
            f"rewards must be {list(proposals.actions.shape[:2])}, one for each row of proposals.actions, "
            f"auxiliary rows included, got {list(rewards.shape)}"
        )
    if proposals.edits is None:
        if edit_rewards is not None:
            raise ValueError("these proposals hold no edits; edit_rewards must be None")
    elif edit_rewards is None:
        raise ValueError(
            "these proposals hold edits; edit_rewards must be "
            "bound.score_edits(proposals.actions, proposals.edits), not None"
        )
    elif edit_rewards.shape != proposals.edits.mask.shape:
        raise ValueError(
            f"edit_rewards must be {list(proposals.edits.mask.shape)}, one for each edit, "
            f"got {list(edit_rewards.shape)}"
        )
