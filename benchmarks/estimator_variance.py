"""Bias and variance of each estimator's gradient, what it costs in rewards, and how long a step takes.

On four problems the gradient's expectation and total variance are summed over all joint actions, where the
estimator draws nothing else; otherwise, and on a fifth, larger problem, they are estimated from independent
draws with a fixed seed, and their standard error is given. One input, one draw per estimate. Ends by printing
one JSON object. `relative_variance` is that of plain REINFORCE = 1; `variance_at_budget` is what is left of
it when a budget of 100 reward evaluations is spent on independent estimates.

    python benchmarks/estimator_variance.py [--quick] [--output FOLDER]
"""

import argparse
import functools
import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from parts.problems import Problem, enumerable_problems, larger_problem, mean_entropy, training_shape
from parts.report import add_options, finish
from parts.turns import all_threads
from torch import Tensor

from hf_cmal.estimators import Estimator, get_estimator
from hf_cmal.evaluation.environment import describe_environment
from hf_cmal.rewards import GleuReward
from hf_cmal.sampling import Proposals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BUDGET = 100  # reward evaluations
CHUNK = 500  # draws at a time
LARGER = "N=12, V=40, peaked"
BASELINE = "none"
MARKERS = "osD^v<>pP*XhHd8+1"
COLOURS = (
    *(f"C{number}" for number in range(10)),
    "black",
    "gold",
    "navy",
    "lime",
    "salmon",
    "teal",
    "orchid",
)
# Not timed at the training shape: more samples than a step has; more than a thousand rewards of one agent,
# which `arsm` refuses without a budget; V (V - 1) / 2 = 32 million sentences.
NOT_TIMED = ("leave_one_out_25", "arsm", "arsm_joint")


@dataclass(frozen=True)
class Subject:
    """An estimator to measure.

    Attributes:
        make: of the problem's expected reward, which only a constant baseline needs.
        num_samples: S.
        enumerable: with one sample it draws nothing but the joint action.
    """

    make: Callable[[float], Estimator]
    num_samples: int = 1
    enumerable: bool = True


def named(name: str, **options: Any) -> Callable[[float], Estimator]:
    return lambda expected: get_estimator(name, **options)


def constant(expected: float) -> Estimator:
    """A moving average that has settled at the expected reward."""
    estimator = get_estimator("moving_average")
    estimator.load_state_dict({"baseline": expected})  # type: ignore[attr-defined]
    return estimator


SUBJECTS = {
    BASELINE: Subject(named("none")),
    "moving_average": Subject(constant),
    "self_critical": Subject(named("self_critical")),
    "leave_one_out_5": Subject(named("leave_one_out"), num_samples=5, enumerable=False),
    "leave_one_out_25": Subject(named("leave_one_out"), num_samples=25, enumerable=False),
    "counterfactual_top_1": Subject(named("counterfactual", top_k=1)),
    "counterfactual_top_2": Subject(named("counterfactual", top_k=2)),
    "counterfactual_exact": Subject(named("counterfactual", exact=True)),
    "compositional_top_1": Subject(named("counterfactual", top_k=1, compositional_weight=0.5)),
    "compositional_top_2": Subject(named("counterfactual", top_k=2, compositional_weight=0.5)),
    "all_action_top_2": Subject(named("all_action", top_k=2)),
    "all_action": Subject(named("all_action")),
    "ar": Subject(named("ar"), enumerable=False),
    "ars": Subject(named("ars"), enumerable=False),
    "arsm": Subject(named("arsm"), enumerable=False),
    "arsm_budget_8": Subject(named("arsm", budget=8), enumerable=False),
    "arsm_joint": Subject(named("arsm_joint"), enumerable=False),
}  # fmt: skip

Propose = Callable[..., Proposals]


def gradients(
    estimator: Estimator, problem: Problem, num_rows: int, propose: Propose
) -> tuple[Tensor, Tensor]:
    """Estimates of the gradient of the expected reward by the logits [U, N, V], and the rewards asked for
    [U], of `num_rows` independent copies of the problem."""
    logits = problem.logits.expand(num_rows, -1, -1).clone().requires_grad_()
    log_probs = logits.log_softmax(-1)
    bound = problem.bind(num_rows)
    proposals = propose(
        log_probs.detach(),
        torch.ones(num_rows, len(problem.logits), dtype=torch.bool),
        eos_token_id=problem.eos,
        candidates=bound.candidates if bound.other_is_exact else None,
    )
    rewards, edits = bound.score(proposals.actions), proposals.edits
    edit_rewards = None if edits is None else bound.score_edits(proposals.actions, edits)
    surrogate = estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=1)
    surrogate.loss.backward()
    evaluations = torch.full((num_rows,), float(proposals.actions.shape[1]), dtype=torch.float64)
    if edits is not None:
        evaluations += edits.mask.sum((1, 2))
    assert logits.grad is not None  # the loss depends on the logits
    return -logits.grad, evaluations


def enumerate_actions(subject: Subject, problem: Problem, expected: float, exact: Tensor) -> dict[str, Any]:
    """Bias and variance by the sum over all joint actions, one sample each."""
    estimator: Any = subject.make(expected)  # a SamplingEstimator
    actions = problem.joint_actions()
    probs = problem.probabilities(actions, problem.logits.log_softmax(-1))

    def propose(log_probs: Tensor, agent_mask: Tensor, **options: Any) -> Proposals:
        proposals: Proposals = estimator.propose_from_actions(
            log_probs, agent_mask, actions[:, None], **options
        )
        return proposals

    estimates, evaluations = gradients(estimator, problem, len(actions), propose)
    mean = torch.einsum("u,unv->nv", probs, estimates)
    return {
        "method": "enumeration",
        "relative_bias": float((mean - exact).norm() / exact.norm()),
        "variance": float((probs * (estimates - mean).square().sum((1, 2))).sum()),
        "evaluations": float((probs * evaluations).sum()),
    }


def draw_estimates(
    subject: Subject, problem: Problem, expected: float, exact: Tensor, *, draws: int
) -> dict[str, Any]:
    """The same from independent draws, with standard errors.

    An unbiased estimator has a `relative_bias` of about `relative_bias_noise`.
    """
    estimator = subject.make(expected)
    generator = torch.Generator().manual_seed(0)
    propose = functools.partial(estimator.propose, num_samples=subject.num_samples, generator=generator)
    parts = [gradients(estimator, problem, CHUNK, propose) for _ in range(draws // CHUNK)]
    estimates = torch.cat([part for part, _ in parts])
    mean = estimates.mean(0)
    squares = (estimates - mean).square().sum((1, 2)) * len(estimates) / (len(estimates) - 1)
    variance = float(squares.mean())
    return {
        "method": "monte carlo",
        "draws": len(estimates),
        "relative_bias": float((mean - exact).norm() / exact.norm()),
        "relative_bias_noise": math.sqrt(variance / len(estimates)) / float(exact.norm()),
        "variance": variance,
        "variance_standard_error": float(squares.std()) / math.sqrt(len(estimates)),
        "evaluations": float(torch.cat([counts for _, counts in parts]).mean()),
    }  # fmt: skip


def measure_problem(problem: Problem, *, draws: int, enumerable: bool) -> dict[str, Any]:
    """Every estimator on one problem."""
    if enumerable:
        expected, exact = problem.expectation()
        exact_by = "enumeration"
    else:
        expected, exact = sampled_expectation(problem, draws=4 * draws)
        exact_by = f"the mean of {4 * draws} gradients of all_action"
    rows: dict[str, dict[str, Any]] = {}
    for name, subject in SUBJECTS.items():
        if enumerable and subject.enumerable:
            rows[name] = enumerate_actions(subject, problem, expected, exact)
        else:
            rows[name] = draw_estimates(subject, problem, expected, exact, draws=draws)
    for row in rows.values():
        row["relative_variance"] = row["variance"] / rows[BASELINE]["variance"]
        row["variance_at_budget"] = row["variance"] * row["evaluations"] / BUDGET
    return {
        "num_agents": len(problem.logits),
        "vocab_size": problem.logits.shape[1],
        "eos": problem.eos,
        "entropy": mean_entropy(problem.logits.log_softmax(-1)),
        "expected_reward": expected,
        "exact_gradient_by": exact_by,
        "estimators": rows,
    }


def sampled_expectation(problem: Problem, *, draws: int) -> tuple[float, Tensor]:
    """Where there are too many joint actions: the mean reward, and the mean of the gradients that vary
    least. Its own seed, so that no estimator is compared with its own draws."""
    estimator = get_estimator("all_action")
    generator = torch.Generator().manual_seed(1)
    total, mean_reward = torch.zeros_like(problem.logits), 0.0
    for _ in range(draws // CHUNK):
        kept: list[Proposals] = []

        def propose(*args: Any, **options: Any) -> Proposals:
            kept.append(estimator.propose(*args, num_samples=1, generator=generator, **options))  # noqa: B023
            return kept[-1]  # noqa: B023

        total += gradients(estimator, problem, CHUNK, propose)[0].sum(0)
        mean_reward += float(problem.bind(CHUNK).score(kept[0].actions).sum())
    count = CHUNK * (draws // CHUNK)
    return mean_reward / count, total / count


# ---- time ------------------------------------------------------------------------------------------------


def time_steps(*, quick: bool, rounds: int) -> dict[str, Any]:
    """Milliseconds of propose, score and surrogate with its gradient by the log-probs, all threads."""
    shape = (
        {"batch_size": 4, "num_agents": 6, "vocab_size": 200}
        if quick
        else {"batch_size": 100, "num_agents": 30, "vocab_size": 8_000}
    )
    log_probs, references = training_shape(**shape)
    entropy = mean_entropy(log_probs[:8])
    mask = torch.ones(log_probs.shape[:2], dtype=torch.bool)
    log_probs.requires_grad_()
    estimators = {name: subject.make(0.5) for name, subject in SUBJECTS.items() if name not in NOT_TIMED}
    seconds: dict[str, list[dict[str, float]]] = {name: [] for name in estimators}
    asked: dict[str, float] = {}
    for number in range(rounds + 1):
        for name, estimator in estimators.items():
            parts, asked[name] = time_step(estimator, log_probs, mask, references)
            if number > 0:  # the first compiles and warms up
                seconds[name].append(parts)
    return {
        **shape,
        "num_samples": 5,
        "reward": GleuReward().signature,
        "entropy": entropy,
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "estimators": {
            name: {
                "rewards_per_input": asked[name],
                **{f"{part}_ms": 1e3 * statistics.median(t[part] for t in times) for part in times[0]},
                "step_ms": 1e3 * statistics.median(sum(t.values()) for t in times),
            }
            for name, times in seconds.items()
        },
    }


def time_step(
    estimator: Estimator, log_probs: Tensor, mask: Tensor, references: list[list[list[int]]]
) -> tuple[dict[str, float], float]:
    """Seconds of the parts of one step, and the rewards asked for per input."""
    log_probs.grad = None
    marks = [time.perf_counter()]
    bound = GleuReward().bind(references, mask, eos_token_id=None)
    marks.append(time.perf_counter())
    proposals = estimator.propose(
        log_probs.detach(), mask, eos_token_id=None, num_samples=5,
        candidates=bound.candidates if bound.other_is_exact else None,
        generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    marks.append(time.perf_counter())
    edits = proposals.edits
    rewards = bound.score(proposals.actions)
    edit_rewards = None if edits is None else bound.score_edits(proposals.actions, edits)
    marks.append(time.perf_counter())
    loss = estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=len(mask)).loss
    loss.backward()
    marks.append(time.perf_counter())
    names = ("bind", "propose", "score", "surrogate")
    asked = rewards.numel() + (0 if edits is None else int(edits.mask.sum()))
    parts = {name: end - start for name, start, end in zip(names, marks[:-1], marks[1:], strict=True)}
    return parts, asked / len(mask)


# ---- the whole -------------------------------------------------------------------------------------------


def draw(figure: "Figure", result: dict[str, Any]) -> None:
    """Relative variance against reward evaluations; a panel per problem, both scales logarithmic."""
    figure.set_size_inches(10.0, 6.4)
    panels = [figure.add_subplot(2, 3, place + 1) for place in range(6)]
    for axes, (title, problem) in zip(panels, result["problems"].items(), strict=False):
        draw_problem(axes, title, problem["estimators"])
    handles, labels = panels[0].get_legend_handles_labels()
    panels[-1].legend(handles, labels, fontsize=7, frameon=False, loc="center")
    panels[-1].axis("off")


def draw_problem(axes: "Axes", title: str, rows: dict[str, dict[str, Any]]) -> None:
    for number, (name, row) in enumerate(rows.items()):
        axes.plot(
            row["evaluations"], row["relative_variance"], label=name, linestyle="none",
            marker=MARKERS[number], markersize=5, color=COLOURS[number],
        )  # fmt: skip
    # along such a line a budget buys the same variance: that of plain REINFORCE
    most = max(row["evaluations"] for row in rows.values())
    axes.plot([1.0, most], [1.0, 1.0 / most], color="0.6", linewidth=0.8, label="none, several samples")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, fontsize=8)
    axes.set_xlabel("reward evaluations per input", fontsize=7)
    axes.set_ylabel("variance, none = 1", fontsize=7)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Bias, variance and cost of the gradient estimators.")
    add_options(parser)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="estimator 'none'")
    torch.set_num_threads(all_threads())
    draws = 1_000 if options.quick else 20_000
    problems = {
        name: measure_problem(problem, draws=draws, enumerable=True)
        for name, (problem, _) in enumerable_problems().items()
    }
    problems[LARGER] = measure_problem(larger_problem(), draws=draws, enumerable=False)
    result = {
        "size": "quick" if options.quick else "full",
        "budget": BUDGET,
        "reward": GleuReward(max_order=2, count_eos=False).signature,
        "problems": problems,
        "steps": time_steps(quick=options.quick, rounds=1 if options.quick else 3),
    }
    finish("estimator_variance", result | describe_environment(), options, draw)


if __name__ == "__main__":
    main()
