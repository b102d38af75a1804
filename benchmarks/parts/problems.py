"""Small policies with a reward, on which the gradient of the expected reward is known or well estimated.

Four stand in tests/data/variance_problems.json and are small enough to enumerate all joint actions; the
larger one is drawn here. The reward of all is GLEU of orders 1 and 2 without the eos, by the package's own
kernel.
"""

import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_cmal.rewards import BoundReward, GleuReward

ENUMERABLE = Path(__file__).parents[2] / "tests" / "data" / "variance_problems.json"


@dataclass(frozen=True)
class Problem:
    """Agents choose words independently by softmax(logits), float64 [N, V]; one reference; eos or None."""

    logits: Tensor
    reference: list[int]
    eos: int | None

    def bind(self, num_rows: int) -> BoundReward:
        """The reward of `num_rows` copies of this problem, a batch of inputs."""
        mask = torch.ones(num_rows, len(self.logits), dtype=torch.bool)
        reward = GleuReward(max_order=2, count_eos=False)
        return reward.bind([[self.reference]] * num_rows, mask, eos_token_id=self.eos)

    def joint_actions(self) -> Tensor:
        """All V^N of them, long [U, N]."""
        return torch.tensor(list(itertools.product(range(self.logits.shape[1]), repeat=len(self.logits))))

    def probabilities(self, actions: Tensor, log_probs: Tensor) -> Tensor:
        """Of joint actions [U, N]: [U]."""
        return log_probs[torch.arange(len(self.logits)), actions].sum(-1).exp()

    def expectation(self) -> tuple[float, Tensor]:
        """The expected reward, and its gradient with respect to the logits, by enumeration."""
        logits = self.logits.clone().requires_grad_()
        actions = self.joint_actions()
        rewards = self.bind(1).score(actions[None])[0]
        expected = (self.probabilities(actions, logits.log_softmax(-1)) * rewards).sum()
        return float(expected.detach()), torch.autograd.grad(expected, logits)[0]


def enumerable_problems() -> dict[str, tuple[Problem, dict[str, Any]]]:
    """name -> the problem, and its entry in the file."""
    entries = json.loads(ENUMERABLE.read_text(encoding="utf-8"))["problems"]
    return {
        entry["name"]: (
            Problem(torch.tensor(entry["logits"], dtype=torch.float64), entry["reference"], entry["eos"]),
            entry,
        )
        for entry in entries
    }


def larger_problem(*, num_agents: int = 12, vocab_size: int = 40, seed: int = 0) -> Problem:
    """A policy that is fairly certain, mostly of the reference's words."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(num_agents, vocab_size, generator=generator, dtype=torch.float64)
    reference = torch.randint(vocab_size, (num_agents,), generator=generator)
    logits[torch.arange(num_agents), reference] += 6.0
    return Problem(logits, reference.tolist(), None)


def training_shape(
    *, batch_size: int, num_agents: int, vocab_size: int, seed: int = 0
) -> tuple[Tensor, list[list[list[int]]]]:
    """Log-probs [B, N, V] of about 1 nat per agent, and one reference per input whose words are likely."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(batch_size, num_agents, vocab_size, generator=generator)
    reference = torch.randint(vocab_size, (batch_size, num_agents), generator=generator)
    noise.scatter_add_(-1, reference[..., None], torch.full((batch_size, num_agents, 1), 4.5))
    low, high = 1.0, 20.0
    for _ in range(12):
        scale = (low + high) / 2
        flat = mean_entropy((scale * noise[:8]).log_softmax(-1)) > 1.0
        low, high = (scale, high) if flat else (low, scale)
    return (scale * noise).log_softmax(-1), [[row] for row in reference.tolist()]


def mean_entropy(log_probs: Tensor) -> float:
    """Nats per agent; [..., V], -inf for suppressed words."""
    return float(torch.special.entr(log_probs.exp()).sum(-1).mean())
