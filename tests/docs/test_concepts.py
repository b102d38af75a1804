"""The worked example of docs/concepts.md, recomputed by the package's own functions."""

import math
from collections.abc import Iterator
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from hf_cmal.estimators import get_estimator
from hf_cmal.rewards import get_reward
from tests.docs.pages import code_words, table_rows

A, GIRL, RIDES = 0, 1, 2
REFERENCE = [A, GIRL, RIDES]
SAMPLE = [A, GIRL, GIRL]
AGENT_MASK = torch.ones(1, 3, dtype=torch.bool)
ON_THE_PAGE = {name: Fraction(value) for name, _, value in table_rows("concepts.md", "Quantity")}


def policy() -> Tensor:
    """The odds that the page prints, [1, 3, 3]."""
    rows = table_rows("concepts.md", "agent")
    return torch.tensor([[[float(cell) for cell in row[1:]] for row in rows]], dtype=torch.float64)


def bound_reward():
    return get_reward("gleu").bind([[REFERENCE]], AGENT_MASK, eos_token_id=None)


def surrogate_of(sample: list[int], log_probs: Tensor, **options: float):
    """The counterfactual surrogate of one given joint action."""
    estimator = get_estimator("counterfactual", **options)
    bound = bound_reward()
    proposals = estimator.propose_from_actions(
        log_probs.detach(), AGENT_MASK, torch.tensor([[sample]]), eos_token_id=None
    )
    rewards = bound.score(proposals.actions)
    edit_rewards = bound.score_edits(proposals.actions, proposals.edits)
    return estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=1)


def baselines(**options: float) -> list[float]:
    """Reward minus advantage of each agent."""
    advantages = surrogate_of(SAMPLE, policy().log(), **options).advantages[0, 0]
    return [float(ON_THE_PAGE["R(a girl girl)"]) - advantage for advantage in advantages.tolist()]


def computed() -> Iterator[tuple[str, float]]:
    names = {"a": A, "girl": GIRL, "rides": RIDES}
    for sentence in ("a girl girl", "a girl rides", "girl girl girl", "a a girl"):
        action = torch.tensor([[[names[word] for word in sentence.split()]]])
        yield f"R({sentence})", bound_reward().score(action).item()
    reward = float(ON_THE_PAGE["R(a girl girl)"])
    for agent, baseline in enumerate(baselines(top_k=2), start=1):
        yield f"B of agent {agent}", baseline
        yield f"A of agent {agent}", reward - baseline
    yield "B of agent 3, all words", baselines(top_k=3)[2]
    only_pairs = baselines(top_k=2, compositional_weight=1.0)
    yield "B of pair 1-2", only_pairs[0]
    yield "B of pair 2-3", only_pairs[2]
    for agent, baseline in enumerate(only_pairs, start=1):
        yield f"pair B of agent {agent}", baseline
    for agent, baseline in enumerate(baselines(top_k=2, compositional_weight=0.5), start=1):
        yield f"mixed A of agent {agent}", reward - baseline


def test_every_value_of_the_worked_example_is_what_the_package_computes():
    values = dict(computed())
    assert values == {name: pytest.approx(float(value), abs=1e-12) for name, value in ON_THE_PAGE.items()}


def test_the_right_third_word_is_pushed_up_against_the_same_baseline():
    """1 - 13/18 where "girl" got 1/2 - 13/18: the baseline does not depend on the agent's own word."""
    advantages = surrogate_of(REFERENCE, policy().log(), top_k=2).advantages[0, 0]
    assert advantages[2].item() == pytest.approx(1 - float(ON_THE_PAGE["B of agent 3"]), abs=1e-12)


def test_the_surrogate_and_its_gradient_are_those_of_the_page():
    logits = policy().log().requires_grad_()
    surrogate = surrogate_of(SAMPLE, logits.log_softmax(-1), top_k=2)
    expected = -(1 / 9 * math.log(0.6) - 2 / 9 * math.log(0.5))
    assert surrogate.loss.item() == pytest.approx(expected, abs=1e-12)
    surrogate.loss.backward()
    # 2/9 x (one-hot of "girl" minus the odds), in the order a, girl, rides; agent 2 has advantage 0.
    assert logits.grad[0, 2].tolist() == pytest.approx([-0.1 * 2 / 9, 0.5 * 2 / 9, -0.4 * 2 / 9], abs=1e-12)
    assert logits.grad[0, 1].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-12)


def test_every_promised_metric_is_defined_on_the_page():
    defined = {word for row in table_rows("concepts.md", "Metric") for word in code_words(row[0])}
    (promise,) = [row[1] for row in table_rows("behaviours.md", "No.") if row[0] == "23"]
    promised = set(code_words(promise))
    assert {"reward", "rewards/<name>/mean", "length_accuracy", "step_time"} <= promised
    assert promised <= defined
