"""Exact expectations of estimators: every joint action of a small problem is one row of one call.

The estimator under test runs through its real interface (`propose_from_actions`, a reward, `surrogate`). The
gradient it is compared with is that of the sum over all joint actions, which knows no estimator.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from hf_cmal.sampling import OTHER, write_out_edits

DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class TableReward:
    """A reward of the truncated sentence, looked up in a table: anything may be in it. A `BoundReward`.

    Positions beyond the sentence are spelt with the extra word V; `table` has (V+1)^N entries.
    """

    table: torch.Tensor
    vocab_size: int
    agent_mask: torch.Tensor
    eos_token_id: int | None
    candidates: torch.Tensor | None = None
    other_word: int | None = None

    @property
    def other_is_exact(self):
        return self.other_word is not None

    def score(self, actions):
        return self.table[self.index(actions)]

    def score_edits(self, actions, edits):
        written = write_out_edits(actions, edits)
        if self.other_word is not None:
            written = torch.where(written == OTHER, self.other_word, written)
        return torch.where(edits.mask, self.score(written), 0.0)

    def index(self, actions):
        sentence = torch.ones_like(actions[..., 0], dtype=torch.bool)
        index = torch.zeros_like(actions[..., 0])
        for n in range(actions.shape[-1]):
            word = torch.where(sentence & self.agent_mask[n], actions[..., n], self.vocab_size)
            index = index * (self.vocab_size + 1) + word
            if self.eos_token_id is not None:
                sentence = sentence & (word != self.eos_token_id)
        return index

    def shifted(self, constant):
        return TableReward(
            self.table + constant,
            self.vocab_size,
            self.agent_mask,
            self.eos_token_id,
            self.candidates,
            self.other_word,
        )


@dataclass(frozen=True)
class Problem:
    """logits [N,V] (float64, -inf for suppressed words), which positions are agents, eos, and a reward."""

    logits: torch.Tensor
    agent_mask: torch.Tensor
    eos_token_id: int | None
    reward: TableReward

    def joint_actions(self, num_samples=1):
        """All that can be drawn: actions [U,S,N] and their probabilities [U]."""
        log_probs = self.logits.log_softmax(-1)
        choices = [
            (log_probs[n] > -torch.inf).nonzero().flatten().tolist() if agent else [0]
            for n, agent in enumerate(self.agent_mask.tolist())
        ]
        actions = torch.tensor(list(itertools.product(*choices)))
        probs = self.probabilities(actions, log_probs)
        if num_samples > 1:
            rows = torch.tensor(list(itertools.product(range(len(actions)), repeat=num_samples)))
            return actions[rows], probs[rows].prod(-1)
        return actions[:, None], probs

    def probabilities(self, actions, log_probs):
        agents = torch.arange(actions.shape[-1])
        chosen = log_probs[agents, actions]
        return torch.where(self.agent_mask, chosen, 0.0).sum(-1).exp()

    def exact_gradient(self):
        """Of E[R] with respect to the logits, [N,V]."""
        logits = self.logits.clone().requires_grad_()
        actions = self.joint_actions()[0][:, 0]
        expected = (self.probabilities(actions, logits.log_softmax(-1)) * self.reward.score(actions)).sum()
        return torch.autograd.grad(expected, logits)[0]

    def expected_reward(self):
        actions, probs = self.joint_actions()
        return (probs * self.reward.score(actions[:, 0])).sum()


@dataclass(frozen=True)
class Estimates:
    """What an estimator makes of every joint action: estimates of the gradient of E[R], and advantages."""

    actions: torch.Tensor
    probs: torch.Tensor
    gradients: torch.Tensor
    advantages: torch.Tensor | None
    alive: torch.Tensor
    exact: torch.Tensor

    @property
    def mean(self):
        return torch.einsum("u,unv->nv", self.probs, self.gradients)

    @property
    def relative_bias(self):
        return float((self.mean - self.exact).norm() / self.exact.norm())

    @property
    def total_variance(self):
        deviations = self.gradients - self.mean
        return float((self.probs * deviations.square().sum((1, 2))).sum())


def enumerate_estimates(estimator, problem, *, num_samples=1):
    """Runs the estimator on all joint actions, or all S-tuples of them, at once."""
    actions, probs = problem.joint_actions(num_samples)
    logits = problem.logits.expand(len(actions), -1, -1).clone().requires_grad_()
    log_probs = logits.log_softmax(-1)
    candidates = problem.reward.candidates
    proposals = estimator.propose_from_actions(
        log_probs.detach(),
        problem.agent_mask.expand(len(actions), -1),
        actions,
        eos_token_id=problem.eos_token_id,
        candidates=None if candidates is None else candidates.expand(len(actions), -1),
    )
    rewards = problem.reward.score(proposals.actions)
    edit_rewards = None
    if proposals.edits is not None:
        edit_rewards = problem.reward.score_edits(proposals.actions, proposals.edits)
    surrogate = estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=1)
    surrogate.loss.backward()
    return Estimates(
        actions, probs, -logits.grad, surrogate.advantages, proposals.alive, problem.exact_gradient()
    )


# ---- problems ----------------------------------------------------------------------------------------------


def random_problem(seed, *, num_agents, vocab_size, eos=None, agent_mask=None, suppressed=(), peak=1.0):
    """Random logits, and a random reward for every truncated sentence."""
    generator = torch.Generator().manual_seed(seed)
    logits = peak * torch.randn(num_agents, vocab_size, generator=generator, dtype=torch.float64)
    logits[:, list(suppressed)] = -torch.inf
    mask = torch.ones(num_agents, dtype=torch.bool) if agent_mask is None else torch.tensor(agent_mask)
    table = torch.rand((vocab_size + 1) ** num_agents, generator=generator, dtype=torch.float64)
    return Problem(logits, mask, eos, TableReward(table, vocab_size, mask, eos))


def tiny_problems():
    """N <= 4, V <= 4: with and without eos, padding, a suppressed word, one agent, a lone agent."""
    return {
        "no eos": random_problem(1, num_agents=3, vocab_size=4),
        "eos": random_problem(2, num_agents=4, vocab_size=3, eos=0),
        "likely eos": random_problem(3, num_agents=3, vocab_size=4, eos=3, peak=2.0),
        "padding": random_problem(4, num_agents=4, vocab_size=4, agent_mask=[True, True, True, False]),
        "padding and eos": random_problem(
            5, num_agents=4, vocab_size=3, eos=1, agent_mask=[True, True, True, False]
        ),
        "suppressed word": random_problem(6, num_agents=3, vocab_size=4, eos=0, suppressed=[2]),
        "one agent": random_problem(7, num_agents=1, vocab_size=4, eos=0),
        "one agent and padding": random_problem(
            8, num_agents=3, vocab_size=3, agent_mask=[True, False, False]
        ),
        "lone agent": random_problem(9, num_agents=4, vocab_size=3, agent_mask=[True, False, True, True]),
    }


def overlap(hypothesis, reference):
    """The reward of variance_problems.json: matched 1- and 2-grams / the larger total; 0 if both empty."""

    def ngrams(sentence):
        return Counter((word,) for word in sentence) + Counter(itertools.pairwise(sentence))

    ours, theirs = ngrams(hypothesis), ngrams(reference)
    larger = max(ours.total(), theirs.total())
    return (ours & theirs).total() / larger if larger else 0.0


def problem_with_reward(
    logits, eos, sentence_reward: Callable[[list[int]], float], *, candidates=None, other_word=None
):
    """A problem whose reward is a function of the words before the eos."""
    num_agents, vocab_size = logits.shape
    mask = torch.ones(num_agents, dtype=torch.bool)
    reward = TableReward(
        torch.zeros((vocab_size + 1) ** num_agents, dtype=torch.float64),
        vocab_size,
        mask,
        eos,
        candidates,
        other_word,
    )
    actions = torch.tensor(list(itertools.product(range(vocab_size), repeat=num_agents)))
    for index, words in zip(reward.index(actions).tolist(), actions.tolist(), strict=True):
        sentence = words[: words.index(eos)] if eos in words else words
        reward.table[index] = sentence_reward(sentence)
    return Problem(logits, mask, eos, reward)


def reference_problems():
    """variance_problems.json: name -> (the problem, its entry)."""
    entries = json.loads((DATA / "variance_problems.json").read_text())["problems"]
    problems = {}
    for entry in entries:
        logits = torch.tensor(entry["logits"], dtype=torch.float64)
        reference, eos = entry["reference"], entry["eos"]
        words = sorted({*reference, *([] if eos is None else [eos])})
        others = sorted(set(range(logits.shape[1])) - set(words))
        problems[entry["name"]] = (
            problem_with_reward(
                logits,
                eos,
                lambda sentence, reference=reference: overlap(sentence, reference),
                candidates=torch.tensor(words),
                other_word=others[0] if others else None,
            ),
            entry,
        )
    return problems
