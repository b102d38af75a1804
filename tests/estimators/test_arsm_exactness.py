"""ARSM and its kin against the exact gradient: many draws at once, and a grid where the noise is a number."""

import pytest
import torch

from hf_cmal.estimators import get_estimator
from hf_cmal.estimators.ars import Ars
from hf_cmal.estimators.arsm import run_race
from tests.estimators.biased import ArsmOutsideTopK, JointArsmMaskedAfterEos
from tests.estimators.enumeration import random_problem, reference_problems, tiny_problems
from tests.estimators.noise import NOISE_ESTIMATORS, draw_estimates, possible_noise

DRAWS = 40_000
PROBLEMS = tiny_problems()
REFERENCE = reference_problems()
SUBJECTS = {name: (name, {}) for name in NOISE_ESTIMATORS} | {
    "ars R=3": ("ars", {"num_references": 3}),
    "arsm budget=1": ("arsm", {"budget": 1}),
    "arsm budget=0.3": ("arsm", {"budget": 0.3}),
}


def make(subject):
    name, options = SUBJECTS[subject]
    return get_estimator(name, **options)


def from_full_noise(problem, *, of_the_true_action=False):
    """ARS of noise that is drawn in full, and independently of the package; `propose` of `draw_estimates`."""

    def propose(log_probs, agent_mask, generator):
        noise = possible_noise(problem, len(log_probs), generator=generator)
        possible = log_probs > -torch.inf
        if of_the_true_action:
            race = run_race(noise.flatten(0, 2), log_probs.exp().flatten(0, 1))
            references = race.true.reshape(len(log_probs), 1, -1, 1)
        else:
            weights = torch.where(agent_mask[..., None], possible, True).double().flatten(0, 1)
            references = weights.multinomial(1, generator=generator).reshape(len(log_probs), 1, -1, 1)
        return Ars().propose_from_noise(
            log_probs, agent_mask, noise, references, eos_token_id=problem.eos_token_id
        )

    return propose


# ---- no bias -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_mean_gradient_is_the_gradient_of_the_expected_reward(subject, problem):
    draws = draw_estimates(make(subject), PROBLEMS[problem], DRAWS)
    assert draws.largest_z < 4
    assert draws.total_variance > 0.0


@pytest.mark.parametrize("problem", PROBLEMS)
def test_ars_of_noise_drawn_in_full_has_that_mean_too(problem):
    subject = PROBLEMS[problem]
    draws = draw_estimates(Ars(), subject, DRAWS, propose=from_full_noise(subject))
    assert draws.largest_z < 4


@pytest.mark.parametrize("name", NOISE_ESTIMATORS)
def test_over_a_grid_of_the_noise_of_two_words_the_mean_is_the_gradient(name):
    problem = random_problem(12, num_agents=1, vocab_size=2)
    u = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    noise = torch.stack([u, 1 - u], -1)[:, None, None]
    estimator = get_estimator(name)

    def propose(log_probs, agent_mask, generator):
        given = (torch.arange(len(u)) % 2).reshape(-1, 1, 1, 1)  # each point of the grid has one of the two
        references = {"references": given} if name == "ars" else {}
        return estimator.propose_from_noise(log_probs, agent_mask, noise, eos_token_id=None, **references)

    draws = draw_estimates(estimator, problem, len(u), propose=propose)
    assert draws.exact.abs().max() > 0.01
    torch.testing.assert_close(draws.gradients.mean(0), draws.exact, rtol=0.0, atol=5e-5)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_two_samples_of_an_input_are_averaged(subject):
    problem = random_problem(10, num_agents=2, vocab_size=3, eos=0)
    one = draw_estimates(make(subject), problem, DRAWS)

    def two_samples(log_probs, agent_mask, generator):
        return estimator.propose(log_probs, agent_mask, eos_token_id=0, num_samples=2, generator=generator)

    estimator = make(subject)
    two = draw_estimates(estimator, problem, DRAWS, propose=two_samples)
    assert two.largest_z < 4
    assert two.total_variance == pytest.approx(one.total_variance / 2, rel=0.05)


# ---- what must be found biased -----------------------------------------------------------------------------


@pytest.mark.parametrize("problem", ["eos", "likely eos", "padding and eos", "suppressed word"])
def test_masking_joint_arsm_after_the_eos_is_found_biased(problem):
    draws = draw_estimates(JointArsmMaskedAfterEos(), PROBLEMS[problem], DRAWS)
    assert draws.largest_z > 6
    assert draws.relative_bias > 0.02


def test_masking_joint_arsm_is_right_where_no_eos_can_be_sampled():
    assert draw_estimates(JointArsmMaskedAfterEos(), PROBLEMS["padding"], DRAWS).largest_z < 4


@pytest.mark.parametrize("problem", ["no eos", "eos", "padding", "suppressed word", "lone agent"])
def test_taking_the_true_action_as_the_reference_is_found_biased(problem):
    subject = PROBLEMS[problem]
    draws = draw_estimates(Ars(), subject, DRAWS, propose=from_full_noise(subject, of_the_true_action=True))
    assert draws.largest_z > 6
    assert draws.relative_bias > 0.1


@pytest.mark.parametrize("problem", REFERENCE)
def test_pseudo_actions_outside_the_top_k_cannot_do_without_their_reward(problem):
    draws = draw_estimates(ArsmOutsideTopK(2), REFERENCE[problem][0], DRAWS)
    assert draws.largest_z > 6
    assert draws.relative_bias > 0.1


# ---- variance ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "relative"), list(zip(REFERENCE, (0.024, 0.061, 0.042, 0.019), strict=True))
)
def test_local_arsm_has_the_published_share_of_the_variance_of_reinforce(problem, relative):
    setting, entry = REFERENCE[problem]
    reinforce = entry["estimators"]["none"]["total_variance"]
    draws = draw_estimates(get_estimator("arsm"), setting, DRAWS)
    # the published figures are drawn too, and rounded to three places
    assert draws.total_variance / reinforce == pytest.approx(relative, rel=0.03, abs=0.0005)


@pytest.mark.parametrize("problem", REFERENCE)
def test_of_four_agents_local_arsm_varies_less_than_joint(problem):
    setting, _ = REFERENCE[problem]
    assert setting.logits.shape[0] >= 4
    local, joint = (draw_estimates(get_estimator(name), setting, 20_000) for name in ("arsm", "arsm_joint"))
    assert joint.largest_z < 4
    assert local.total_variance < 0.7 * joint.total_variance


@pytest.mark.parametrize("problem", REFERENCE)
def test_more_references_vary_less_and_all_of_them_least(problem):
    setting, _ = REFERENCE[problem]
    one, four, every = (
        draw_estimates(estimator, setting, 20_000).total_variance
        for estimator in (Ars(), Ars(num_references=4), get_estimator("arsm"))
    )
    assert every < 0.9 * four and four < 0.9 * one


@pytest.mark.parametrize("problem", [*PROBLEMS, *REFERENCE])
def test_ars_that_draws_little_noise_varies_and_costs_as_with_all_noise(problem):
    setting = PROBLEMS[problem] if problem in PROBLEMS else REFERENCE[problem][0]
    little = draw_estimates(Ars(), setting, DRAWS)
    full = draw_estimates(Ars(), setting, DRAWS, seed=1, propose=from_full_noise(setting))
    squares = [(draws.gradients - draws.exact).square() for draws in (little, full)]
    difference = squares[0].mean(0) - squares[1].mean(0)
    standard_error = ((squares[0].var(0) + squares[1].var(0)) / DRAWS).sqrt()
    assert (difference.abs() <= 4 * standard_error).all()
    assert float(little.edits_per_agent) == pytest.approx(float(full.edits_per_agent), rel=0.03)


@pytest.mark.parametrize("budget", [0.3, 1, 2])
def test_a_budget_is_kept_on_average_and_costs_variance(budget):
    setting, _ = REFERENCE["flat, no eos"]
    some = draw_estimates(get_estimator("arsm", budget=budget), setting, 20_000)
    every = draw_estimates(get_estimator("arsm"), setting, 20_000)
    standard_error = (budget / (20_000 * setting.logits.shape[0])) ** 0.5  # if each word is kept by itself
    assert some.edits_per_agent <= budget + 4 * standard_error
    assert some.edits_per_agent < every.edits_per_agent
    assert some.total_variance > 1.1 * every.total_variance
