"""Estimators that swap noise, run on many draws at once: their noise is continuous and cannot be enumerated.

One draw is one input with one sample. The exact gradient is that of enumeration.py.
"""

from dataclasses import dataclass

import torch

NOISE_ESTIMATORS = ("ar", "ars", "arsm", "arsm_joint")


def dirichlet(*shape, generator):
    """Noise of sum 1 over the last axis, the textbook way."""
    noise = -torch.rand(shape, generator=generator, dtype=torch.float64).log()
    return noise / noise.sum(-1, keepdim=True)


def possible_noise(problem, draws, *, generator):
    """[draws,1,N,V]: Dirichlet over the possible words of each agent; arbitrary at the others."""
    noise = dirichlet(draws, 1, *problem.logits.shape, generator=generator)
    possible = problem.logits > -torch.inf
    return noise / torch.where(possible, noise, 0.0).sum(-1, keepdim=True)


@dataclass(frozen=True)
class Draws:
    """Estimates [U,N,V] of a gradient [N,V]."""

    gradients: torch.Tensor
    exact: torch.Tensor
    edits_per_agent: torch.Tensor | None

    @property
    def relative_bias(self):
        return float((self.gradients.mean(0) - self.exact).norm() / self.exact.norm())

    @property
    def total_variance(self):
        return float(self.gradients.var(0).sum())

    @property
    def largest_z(self):
        """The error of the mean in its standard errors; infinite for an error where nothing varies."""
        errors = (self.gradients.mean(0) - self.exact).abs()
        errors = torch.where(errors < 1e-12, 0.0, errors)
        standard_error = self.gradients.std(0) / len(self.gradients) ** 0.5
        return float(torch.where(errors == 0.0, 0.0, errors / standard_error).max())


def draw_estimates(estimator, problem, draws, *, seed=0, propose=None):
    """`propose(log_probs, agent_mask, generator)` stands for the estimator's own, if given."""
    generator = torch.Generator().manual_seed(seed)
    logits = problem.logits.expand(draws, -1, -1).clone().requires_grad_()
    log_probs = logits.log_softmax(-1)
    agent_mask = problem.agent_mask.expand(draws, -1)
    if propose is None:
        proposals = estimator.propose(
            log_probs.detach(), agent_mask, eos_token_id=problem.eos_token_id, num_samples=1,
            generator=generator,
        )  # fmt: skip
    else:
        proposals = propose(log_probs.detach(), agent_mask, generator)
    rewards = problem.reward.score(proposals.actions)
    edit_rewards = None
    if proposals.edits is not None:
        edit_rewards = problem.reward.score_edits(proposals.actions, proposals.edits)
    surrogate = estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=1)
    surrogate.loss.backward()
    return Draws(-logits.grad, problem.exact_gradient(), surrogate.stats.get("edits_per_agent"))
