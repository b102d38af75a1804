"""Counterfactual baselines, CMAL Eqs. (10)-(18): estimators.json, hand-worked cases, and edges."""

import json

import pytest
import torch

from hf_cmal.estimators import get_estimator
from hf_cmal.estimators.counterfactual import (
    compositional_baseline,
    compositional_counterfactuals,
    counterfactual_baseline,
    existing_pairs,
    individual_counterfactuals,
    mixed_baseline,
    renormalise,
)
from hf_cmal.sampling import write_out_edits
from tests.estimators.enumeration import DATA, enumerate_estimates, random_problem

TWO_AGENTS = json.loads((DATA / "estimators.json").read_text())["two_agents"]
TABLE = torch.tensor(TWO_AGENTS["reward_table"], dtype=torch.float64)
LOG_PROBS = torch.tensor([TWO_AGENTS["logits"]], dtype=torch.float64).log_softmax(-1)
JOINT_ACTION = torch.tensor([[TWO_AGENTS["joint_action"]]])
BOTH = torch.ones(1, 2, dtype=torch.bool)


def baseline_of(log_probs=LOG_PROBS, **options):
    """Runs the estimator on the joint action of the vectors; its baseline is R - A."""
    estimator = get_estimator("counterfactual", **options)
    proposals = estimator.propose_from_actions(log_probs, BOTH, JOINT_ACTION, eos_token_id=None)
    written = write_out_edits(proposals.actions, proposals.edits)
    edit_rewards = torch.where(proposals.edits.mask, TABLE[written[..., 0], written[..., 1]], 0.0)
    rewards = TABLE[JOINT_ACTION[..., 0], JOINT_ACTION[..., 1]]
    surrogate = estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=1)
    return (rewards[..., None] - surrogate.advantages).flatten().tolist()


# ---- Eq. (13) ----------------------------------------------------------------------------------------------


def test_exact_individual_baseline_is_the_published_vector():
    assert baseline_of(top_k=3) == pytest.approx(TWO_AGENTS["counterfactual_baseline_exact"], abs=1e-9)


@pytest.mark.parametrize("top_k", [1, 2])
def test_top_k_individual_baseline_is_the_published_vector(top_k):
    expected = TWO_AGENTS["counterfactual_baseline_top_k"][str(top_k)]
    assert baseline_of(top_k=top_k) == pytest.approx(expected, abs=1e-9)


def test_counterfactual_words_are_the_most_probable_and_renormalised():
    # 0.5 and 0.3 of 0.8 are 5/8 and 3/8.
    log_probs = torch.tensor([[[0.3, 0.2, 0.5]]], dtype=torch.float64).log()
    words, probs = individual_counterfactuals(log_probs, top_k=2)
    assert words.tolist() == [[[2, 0]]]
    assert renormalise(probs).flatten().tolist() == pytest.approx([5 / 8, 3 / 8])


def test_baseline_is_the_reward_expected_over_the_counterfactual_words():
    # 0.25 * 8 + 0.75 * 4 = 5, and with other rewards 0.25 * 0 + 0.75 * 2 = 1.5.
    probs = torch.tensor([[[0.25, 0.75]]])
    edit_rewards = torch.tensor([[[[8.0, 4.0]], [[0.0, 2.0]]]])
    assert counterfactual_baseline(probs, edit_rewards).tolist() == [[[5.0], [1.5]]]


def test_an_agent_whose_word_beats_its_baseline_is_pushed_up_and_one_below_it_is_not():
    # R = 0.9; agent 0's baseline is 0.56, agent 1's 0.50.
    assert all(baseline < 0.9 for baseline in baseline_of(top_k=3))
    # [1, 1] has R = 0.2, below what either agent would earn otherwise.
    estimator = get_estimator("counterfactual", top_k=3)
    actions = torch.tensor([[[1, 1]]])
    proposals = estimator.propose_from_actions(LOG_PROBS, BOTH, actions, eos_token_id=None)
    written = write_out_edits(actions, proposals.edits)
    surrogate = estimator.surrogate(
        LOG_PROBS, proposals, torch.tensor([[0.2]]), TABLE[written[..., 0], written[..., 1]], num_inputs=1
    )
    assert (surrogate.advantages < 0.0).all()


# ---- Eqs. (14), (15) ---------------------------------------------------------------------------------------


def test_exact_compositional_baseline_is_the_published_one():
    expected = TWO_AGENTS["compositional_baseline_exact"]
    assert baseline_of(top_k=9, compositional_weight=1.0) == pytest.approx([expected] * 2, abs=1e-9)


@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_top_k_compositional_baseline_is_the_published_one(top_k):
    # The pairs (0, 2) and (2, 1) are equally probable, fourth of all, and the vector has the first. So that
    # no rounding decides, agent 1's word 2 is made more probable by far less than the tolerance.
    logits = torch.tensor([TWO_AGENTS["logits"]], dtype=torch.float64)
    logits[0, 1, 2] += 1e-12
    expected = TWO_AGENTS["compositional_baseline_top_k"][str(top_k)]
    baseline = baseline_of(logits.log_softmax(-1), top_k=top_k, compositional_weight=1.0)
    assert baseline == pytest.approx([expected] * 2, abs=1e-9)


def test_of_equally_probable_pairs_that_of_the_better_first_word_is_taken():
    # (7, 9) and (8, 6) have 1/2 * 1/4 both.
    words = torch.tensor([[[7, 8], [6, 9]]])
    probs = torch.tensor([[[0.5, 0.25], [0.5, 0.25]]])
    pairs, pair_probs = compositional_counterfactuals(words, probs, top_k=2)
    assert pairs[0, 0].tolist() == [[7, 6], [7, 9]]
    assert pair_probs[0, 0].tolist() == [0.25, 0.125]


@pytest.mark.parametrize("top_k", [1, 2, 3, 5, 8, 16])
def test_pairs_are_the_most_probable_of_all_pairs(top_k):
    generator = torch.Generator().manual_seed(top_k)
    log_probs = (2 * torch.randn(1, 2, 4, generator=generator, dtype=torch.float64)).log_softmax(-1)
    pairs, probs = compositional_counterfactuals(
        *individual_counterfactuals(log_probs, top_k=top_k), top_k=top_k
    )
    # All 16 pairs, one by one.
    p = log_probs[0].exp().tolist()
    every = sorted(((p[0][i] * p[1][j], [i, j]) for i in range(4) for j in range(4)), reverse=True)[:top_k]
    total = sum(probability for probability, _ in every)
    assert pairs[0, 0].tolist() == [pair for _, pair in every]
    expected = [probability / total for probability, _ in every]
    assert renormalise(probs)[0, 0].tolist() == pytest.approx(expected)


# ---- Eq. (16) ----------------------------------------------------------------------------------------------


def test_compositional_baseline_averages_both_pairs_of_an_inner_agent_and_takes_the_one_of_an_edge_agent():
    pair_baseline = torch.tensor([[[2.0, 6.0, 10.0]]])
    exists = torch.ones(1, 3, dtype=torch.bool)
    assert compositional_baseline(pair_baseline, exists).tolist() == [[[2.0, 4.0, 8.0, 10.0]]]


def test_pairs_exist_between_agents_not_with_padding():
    agent_mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    exists = existing_pairs(agent_mask)
    assert exists.tolist() == [[True, True, False], [False, False, False]]
    pair_baseline = torch.tensor([[[2.0, 6.0, 100.0]], [[100.0, 100.0, 100.0]]])
    assert compositional_baseline(pair_baseline, exists).tolist() == [[[2.0, 4.0, 6.0, 0.0]], [[0.0] * 4]]


def test_a_pair_with_the_agent_after_the_eos_exists():
    # Whether the second agent speaks depends on the action; that it is an agent does not.
    estimator = get_estimator("counterfactual", top_k=1, compositional_weight=0.5)
    log_probs = torch.tensor([[[0.2, 0.8], [0.2, 0.8], [0.2, 0.8]]]).log()
    actions = torch.tensor([[[0, 1, 1]]])
    proposals = estimator.propose_from_actions(
        log_probs, torch.ones(1, 3, dtype=torch.bool), actions, eos_token_id=0
    )
    pairs = proposals.edits.width[0, 0] == 2
    assert proposals.state.pair_exists.tolist() == [[True, True]]
    # Only the eos agent is alive: the pair (0, 1) counts for it, the pair (1, 2) for nobody.
    assert proposals.edits.mask[0, 0, pairs].tolist() == [True, False]


# ---- Eqs. (17), (18) ---------------------------------------------------------------------------------------


def test_final_baseline_weighs_individual_and_compositional():
    individual, compositional = torch.tensor([[[4.0, 8.0]]]), torch.tensor([[[0.0, 16.0]]])
    exists = torch.tensor([[True]])
    assert mixed_baseline(individual, compositional, exists, weight=0.25).tolist() == [[[3.0, 10.0]]]


def test_the_advantage_of_the_estimator_is_the_reward_minus_the_mixed_baseline():
    individual = TWO_AGENTS["counterfactual_baseline_top_k"]["2"]
    compositional = TWO_AGENTS["compositional_baseline_top_k"]["2"]
    expected = [0.75 * b + 0.25 * compositional for b in individual]
    assert baseline_of(top_k=2, compositional_weight=0.25) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_a_single_agent_falls_back_to_its_individual_baseline(weight):
    problem = random_problem(20, num_agents=1, vocab_size=4)
    mixed = enumerate_estimates(get_estimator("counterfactual", compositional_weight=weight), problem)
    plain = enumerate_estimates(get_estimator("counterfactual"), problem)
    torch.testing.assert_close(mixed.advantages, plain.advantages)
    assert plain.advantages.abs().sum() > 0


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_a_single_agent_beside_longer_rows_falls_back_too(weight):
    log_probs = LOG_PROBS.expand(2, -1, -1)
    agent_mask = torch.tensor([[True, True], [True, False]])
    estimator = get_estimator("counterfactual", top_k=2, compositional_weight=weight)
    proposals = estimator.propose_from_actions(
        log_probs, agent_mask, JOINT_ACTION.expand(2, -1, -1), eos_token_id=None
    )
    width, mask = proposals.edits.width[1, 0], proposals.edits.mask[1, 0]
    assert width[mask].tolist() == [1, 1]
    assert proposals.edits.position[1, 0][mask].tolist() == [0, 0]
    edit_rewards = torch.where(proposals.edits.mask, 1.0, 0.0)
    surrogate = estimator.surrogate(log_probs, proposals, torch.full((2, 1), 3.0), edit_rewards, num_inputs=2)
    torch.testing.assert_close(surrogate.advantages, torch.tensor([[[2.0, 2.0]], [[2.0, 0.0]]]))


# ---- what is proposed, and what it costs -------------------------------------------------------------------


def count_edits(weight, *, num_agents=4, top_k=2, vocab_size=5, actions=None, eos=None):
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(1, num_agents, vocab_size, generator=generator).log_softmax(-1)
    agent_mask = torch.ones(1, num_agents, dtype=torch.bool)
    if actions is None:
        actions = torch.ones(1, 1, num_agents, dtype=torch.long)
    estimator = get_estimator("counterfactual", top_k=top_k, compositional_weight=weight)
    edits = estimator.propose_from_actions(log_probs, agent_mask, actions, eos_token_id=eos).edits
    return [int((edits.mask & (edits.width == width)).sum()) for width in (1, 2)]


def test_cost_is_nk_words_and_n_minus_1_k_pairs():
    assert count_edits(0.5) == [4 * 2, 3 * 2]


def test_no_pair_is_proposed_without_compositional_agents_and_no_word_with_them_alone():
    assert count_edits(0.0) == [4 * 2, 0]
    assert count_edits(1.0) == [0, 3 * 2]


def test_nothing_is_proposed_for_agents_after_the_eos():
    # Sentence of two agents: "1 0(eos)". Words for both; pairs (0,1) and (1,2).
    assert count_edits(0.5, actions=torch.tensor([[[1, 0, 1, 1]]]), eos=0) == [2 * 2, 2 * 2]


def test_edits_of_words_come_first_and_do_not_depend_on_the_sample():
    estimator = get_estimator("counterfactual", top_k=2, compositional_weight=0.5)
    actions = torch.tensor([[[0, 1], [2, 2]]])
    edits = estimator.propose_from_actions(LOG_PROBS, BOTH, actions, eos_token_id=None).edits
    # Most probable: of agent 0 words 0, 1; of agent 1 words 1, 0; of pairs (0, 1), then (1, 1).
    for s in range(2):
        assert edits.position[0, s].tolist() == [0, 0, 1, 1, 0, 0]
        assert edits.width[0, s].tolist() == [1, 1, 1, 1, 2, 2]
        assert edits.words[0, s, :4, 0].tolist() == [0, 1, 1, 0]
        assert edits.words[0, s, 4:].tolist() == [[0, 1], [1, 1]]
    assert edits.mask.all()


# ---- edges -------------------------------------------------------------------------------------------------


def test_top_k_beyond_the_vocabulary_is_the_vocabulary():
    assert baseline_of(top_k=100) == pytest.approx(TWO_AGENTS["counterfactual_baseline_exact"], abs=1e-9)


def test_suppressed_words_are_never_proposed():
    # Two possible words, k = 3: the third slot is masked, its weight is 0.
    log_probs = torch.tensor([[[0.0, -torch.inf, 0.0], [0.0, -torch.inf, 0.0]]]).log_softmax(-1)
    estimator = get_estimator("counterfactual", top_k=3, compositional_weight=0.5)
    edits = estimator.propose_from_actions(log_probs, BOTH, torch.tensor([[[0, 2]]]), eos_token_id=None).edits
    wide = edits.width == 2
    proposed = torch.cat([edits.words[edits.mask & ~wide][:, 0], edits.words[edits.mask & wide].flatten()])
    assert 1 not in proposed.tolist()
    assert edits.mask[~wide].tolist() == [True, True, False] * 2
    assert edits.mask[wide].sum() == 3


@pytest.mark.parametrize("padding", [-torch.inf, float("nan")])
def test_rows_of_padding_have_words_of_probability_zero(padding):
    log_probs = torch.tensor([[[0.5, 0.5], [1.0, 1.0]]]).log()
    log_probs[0, 1] = padding
    words, probs = individual_counterfactuals(log_probs, top_k=2)
    _, pair_probs = compositional_counterfactuals(words, probs, top_k=2)
    assert probs[0].tolist() == [[0.5, 0.5], [0.0, 0.0]]
    assert renormalise(probs)[0].tolist() == [[0.5, 0.5], [0.0, 0.0]]
    assert renormalise(pair_probs).tolist() == [[[0.0, 0.0]]]


EDGES = {
    "suppressed words": {"suppressed": [1, 3]},
    "k beyond what is possible": {"suppressed": [0, 1, 2]},
    "row of padding": {"agent_mask": [[True, True, True], [False, False, False]]},
    "padding of minus infinity": {"agent_mask": [[True, True, True], [False, False, False]], "dead": True},
    "all samples are eos": {"actions": [[[4, 4, 4]], [[4, 4, 4]]]},
    "one agent": {"num_agents": 1},
}


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("name", ["none", "moving_average", "self_critical", "counterfactual"])
@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.filterwarnings("ignore:estimator 'none'")
def test_edges_give_a_finite_loss_and_finite_gradients(edge, name, weight):
    case = EDGES[edge]
    num_agents = case.get("num_agents", 3)
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(2, num_agents, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    suppressed = torch.zeros(5, dtype=torch.bool)
    suppressed[case.get("suppressed", [])] = True
    log_probs = logits.masked_fill(suppressed, -torch.inf).log_softmax(-1)
    agent_mask = torch.tensor(case.get("agent_mask", [[True] * num_agents] * 2))
    if case.get("dead"):
        log_probs = log_probs.masked_fill(~agent_mask[..., None], -torch.inf)
    options = {"top_k": 4, "compositional_weight": weight} if name == "counterfactual" else {}
    estimator = get_estimator(name, **options)
    if "actions" in case:
        proposals = estimator.propose_from_actions(
            log_probs.detach(), agent_mask, torch.tensor(case["actions"]), eos_token_id=4
        )
    else:
        proposals = estimator.propose(
            log_probs.detach(), agent_mask, eos_token_id=4, num_samples=2, generator=generator
        )
    rewards = torch.rand(proposals.actions.shape[:2], generator=generator, dtype=torch.float64)
    edit_rewards = None
    if proposals.edits is not None:
        edit_rewards = torch.rand(proposals.edits.mask.shape, generator=generator, dtype=torch.float64)
        edit_rewards = edit_rewards * proposals.edits.mask
    surrogate = estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=2)
    surrogate.loss.backward()
    assert surrogate.loss.isfinite()
    assert surrogate.advantages.isfinite().all()
    assert all(value.isfinite() for value in surrogate.stats.values())
    assert logits.grad.isfinite().all()
    assert (logits.grad[~agent_mask] == 0.0).all()
    assert (logits.grad[..., suppressed] == 0.0).all()
    assert logits.grad.abs().sum() > 0.0


def test_a_batch_of_padding_alone_gives_zero_loss_and_zero_gradient():
    log_probs = torch.zeros(2, 3, 5).log_softmax(-1).requires_grad_()
    estimator = get_estimator("counterfactual", compositional_weight=0.5)
    proposals = estimator.propose(
        log_probs.detach(), torch.zeros(2, 3, dtype=torch.bool), eos_token_id=0, num_samples=2
    )
    assert not proposals.edits.mask.any()
    surrogate = estimator.surrogate(
        log_probs, proposals, torch.ones(2, 2), torch.zeros(proposals.edits.mask.shape), num_inputs=2
    )
    surrogate.loss.backward()
    assert surrogate.loss.item() == 0.0
    assert (log_probs.grad == 0.0).all()


@pytest.mark.parametrize("top_k", [0, -2])
def test_top_k_out_of_range_is_an_error_that_names_the_rule(top_k):
    with pytest.raises(ValueError, match=f"top_k must be at least 1, got {top_k}"):
        get_estimator("counterfactual", top_k=top_k)


@pytest.mark.parametrize("weight", [-0.1, 1.5, float("nan")])
def test_compositional_weight_out_of_range_is_an_error_that_names_the_rule(weight):
    with pytest.raises(ValueError, match=rf"compositional_weight must be in \[0, 1\], got {weight}"):
        get_estimator("counterfactual", compositional_weight=weight)


@pytest.mark.parametrize("options", [{}, {"top_k": 1}, {"compositional_weight": 0.5}])
def test_gradient_through_the_logits_is_that_of_finite_differences(options):
    # The coefficients are fixed numbers: gradcheck may move the logits under them.
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(1, 3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    estimator = get_estimator("counterfactual", **options)
    proposals = estimator.propose(
        logits.detach().log_softmax(-1),
        torch.tensor([[True, True, True]]),
        eos_token_id=0,
        num_samples=2,
        generator=generator,
    )
    rewards = torch.rand(1, 2, generator=generator, dtype=torch.float64)
    edit_rewards = torch.rand(proposals.edits.mask.shape, generator=generator, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda phi: (
            estimator.surrogate(phi.log_softmax(-1), proposals, rewards, edit_rewards, num_inputs=1).loss
        ),
        logits,
    )
