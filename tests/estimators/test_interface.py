"""The interface: its errors, and the table of names."""

import pytest
import torch

from hf_cmal.estimators import ESTIMATORS, StatefulEstimator, get_estimator
from hf_cmal.estimators.counterfactual import Counterfactual
from hf_cmal.sampling import Edits
from tests.estimators.enumeration import reference_problems, tiny_problems
from tests.estimators.noise import NOISE_ESTIMATORS

pytestmark = pytest.mark.filterwarnings("ignore:estimator 'none'")

REFERENCE = reference_problems()


def policy(batch_size=2, num_agents=3, vocab_size=5):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(batch_size, num_agents, vocab_size, generator=generator, dtype=torch.float64)
    return logits.log_softmax(-1), torch.ones(batch_size, num_agents, dtype=torch.bool)


# ---- names -------------------------------------------------------------------------------------------------


def test_unknown_estimator_is_an_error_that_names_the_known_ones():
    with pytest.raises(
        ValueError, match=r"unknown estimator 'selfcritical'.*none, moving_average, self_critical"
    ):
        get_estimator("selfcritical")


def test_unknown_option_is_an_error_that_names_the_options():
    with pytest.raises(ValueError, match=r"no option 'topk'.*top_k, compositional_weight"):
        get_estimator("counterfactual", topk=2)


def test_an_outsiders_estimator_is_found_by_its_dotted_path():
    estimator = get_estimator("hf_cmal.estimators.counterfactual.Counterfactual", top_k=7)
    assert isinstance(estimator, Counterfactual)
    assert estimator.top_k == 7


@pytest.mark.parametrize("path", ["no_such_package.Estimator", "hf_cmal.estimators.counterfactual.NoSuch"])
def test_a_dotted_path_to_nothing_is_an_error_that_names_it(path):
    with pytest.raises(ValueError, match=path.replace(".", r"\.")):
        get_estimator(path)


def test_only_the_moving_average_carries_state():
    stateful = [name for name in ESTIMATORS if isinstance(get_estimator(name), StatefulEstimator)]
    assert stateful == ["moving_average"]


# ---- proposals ---------------------------------------------------------------------------------------------


def test_the_estimators_that_swap_noise_are_those_that_cannot_start_from_actions():
    assert [name for name in ESTIMATORS if name in NOISE_ESTIMATORS] == list(NOISE_ESTIMATORS)
    for name, estimator in ESTIMATORS.items():
        assert ("propose_from_actions" in dir(estimator)) != ("propose_from_noise" in dir(estimator)), name


@pytest.mark.parametrize("name", NOISE_ESTIMATORS)
def test_proposing_draws_samples_and_noise_by_the_generator_alone(name):
    log_probs, agent_mask = policy()
    proposals = [
        get_estimator(name).propose(
            log_probs,
            agent_mask,
            eos_token_id=0,
            num_samples=4,
            generator=torch.Generator().manual_seed(seed),
        )
        for seed in (3, 3, 4)
    ]
    assert proposals[0].num_samples == 4
    assert proposals[0].actions[:, :4].shape == (2, 4, 3)
    assert torch.equal(proposals[0].actions, proposals[1].actions)
    assert not torch.equal(proposals[0].actions[:, :4], proposals[2].actions[:, :4])
    if proposals[0].edits is not None:
        assert torch.equal(proposals[0].edits.words, proposals[1].edits.words)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name not in NOISE_ESTIMATORS])
def test_proposing_is_sampling_and_then_proposing_from_the_samples(name):
    log_probs, agent_mask = policy()
    estimator = get_estimator(name)
    proposals = estimator.propose(
        log_probs, agent_mask, eos_token_id=0, num_samples=4, generator=torch.Generator().manual_seed(3)
    )
    samples = proposals.actions[:, :4]
    again = estimator.propose_from_actions(log_probs, agent_mask, samples, eos_token_id=0)
    assert proposals.num_samples == 4
    assert samples.shape == (2, 4, 3)
    torch.testing.assert_close(proposals.actions, again.actions)
    torch.testing.assert_close(proposals.alive, again.alive)
    other = estimator.propose(
        log_probs, agent_mask, eos_token_id=0, num_samples=4, generator=torch.Generator().manual_seed(4)
    )
    assert not torch.equal(other.actions, proposals.actions)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "leave_one_out"])
def test_one_sample_per_input_is_allowed(name):
    log_probs, agent_mask = policy()
    log_probs.requires_grad_()
    estimator = get_estimator(name)
    proposals = estimator.propose(log_probs.detach(), agent_mask, eos_token_id=0, num_samples=1)
    rewards = torch.rand(proposals.actions.shape[:2], dtype=torch.float64)
    edit_rewards = None if proposals.edits is None else torch.rand(proposals.edits.mask.shape).double()
    surrogate = estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=2)
    surrogate.loss.backward()
    assert log_probs.grad.isfinite().all()
    assert log_probs.grad.abs().sum() > 0


# ---- errors at the boundary --------------------------------------------------------------------------------


def test_zero_samples_is_an_error():
    log_probs, agent_mask = policy()
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        get_estimator("counterfactual").propose(log_probs, agent_mask, eos_token_id=0, num_samples=0)


@pytest.mark.parametrize(
    ("log_probs", "agent_mask", "actions", "message"),
    [
        ((3, 5), (2, 3), (2, 1, 3), r"log_probs must be \[B,N,V\]"),
        ((2, 3, 5), (2, 4), (2, 1, 3), "agent_mask must be bool"),
        ((2, 3, 5), (2, 3), (2, 1, 4), r"actions must be \[B,S,N\]"),
        ((2, 3, 5), (2, 3), (2, 3), r"actions must be \[B,S,N\]"),
    ],
)
def test_shapes_that_do_not_fit_are_an_error(log_probs, agent_mask, actions, message):
    with pytest.raises(ValueError, match=message):
        get_estimator("self_critical").propose_from_actions(
            torch.zeros(log_probs),
            torch.ones(agent_mask, dtype=torch.bool),
            torch.zeros(actions, dtype=torch.long),
            eos_token_id=0,
        )


def test_a_mask_of_numbers_is_an_error():
    log_probs, agent_mask = policy()
    with pytest.raises(ValueError, match="must be bool"):
        get_estimator("none").propose(log_probs, agent_mask.long(), eos_token_id=0)


def test_rewards_of_the_samples_alone_are_an_error_where_a_greedy_row_was_proposed():
    log_probs, agent_mask = policy()
    estimator = get_estimator("self_critical")
    proposals = estimator.propose(log_probs, agent_mask, eos_token_id=0)
    with pytest.raises(ValueError, match=r"rewards must be \[2, 6\].*got \[2, 5\]"):
        estimator.surrogate(log_probs, proposals, torch.zeros(2, 5), None, num_inputs=2)


def test_missing_edit_rewards_are_an_error_that_names_score_edits():
    log_probs, agent_mask = policy()
    estimator = get_estimator("counterfactual")
    proposals = estimator.propose(log_probs, agent_mask, eos_token_id=0)
    with pytest.raises(ValueError, match="score_edits"):
        estimator.surrogate(log_probs, proposals, torch.zeros(2, 5), None, num_inputs=2)
    with pytest.raises(ValueError, match=r"edit_rewards must be \[2, 5, 6\].*got \[2, 5, 5\]"):
        estimator.surrogate(log_probs, proposals, torch.zeros(2, 5), torch.zeros(2, 5, 5), num_inputs=2)


def test_edit_rewards_without_edits_are_an_error():
    log_probs, agent_mask = policy()
    estimator = get_estimator("none")
    proposals = estimator.propose(log_probs, agent_mask, eos_token_id=0)
    with pytest.raises(ValueError, match="must be None"):
        estimator.surrogate(log_probs, proposals, torch.zeros(2, 5), torch.zeros(2, 5, 5), num_inputs=2)


def test_edits_of_unequal_shapes_are_an_error():
    ones = torch.ones(1, 1, 2, dtype=torch.long)
    with pytest.raises(ValueError, match=r"words \[B,S,M,2\]"):
        Edits(position=ones, words=ones, width=ones, mask=ones.bool())


# ---- the problems of the other tests ----------------------------------------------------------------------


def test_problems_of_the_exactness_tests_have_dead_agents_and_padding():
    problems = tiny_problems().values()
    assert any(problem.eos_token_id is not None for problem in problems)
    assert any(not problem.agent_mask.all() for problem in problems)
