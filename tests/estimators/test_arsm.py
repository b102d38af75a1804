"""AR, ARS and ARSM on given noise: the published vectors, and swap by swap against running the race again."""

import itertools
import json

import pytest
import torch

from hf_cmal.estimators import get_estimator
from hf_cmal.estimators.ars import Ars
from hf_cmal.estimators.arsm import (
    MergedSwaps,
    centre,
    changing_swaps,
    draw_noise,
    run_race,
    swapped_actions,
)
from hf_cmal.estimators.arsm_joint import JointArsm
from hf_cmal.estimators.arsm_local import Arsm, keep_probabilities
from tests.estimators.enumeration import DATA, random_problem
from tests.estimators.noise import dirichlet, possible_noise

VECTORS = json.loads((DATA / "estimators.json").read_text())
ONE = VECTORS["univariate"]
TWO = VECTORS["two_agents"]


def gradient_of(estimator, logits, noise, score, **given):
    """Of the expected reward, from one draw of noise [N,V]; `score` of actions [..., N]."""
    logits = logits.clone()[None].requires_grad_()
    log_probs = logits.log_softmax(-1)
    agent_mask = torch.ones(log_probs.shape[:2], dtype=torch.bool)
    proposals = estimator.propose_from_noise(
        log_probs.detach(), agent_mask, noise[None, None], eos_token_id=None, **given
    )
    edit_rewards = None
    if proposals.edits is not None:
        words = proposals.actions.unsqueeze(2).repeat(1, 1, proposals.edits.mask.shape[-1], 1)
        words.scatter_(-1, proposals.edits.position[..., None], proposals.edits.words[..., :1])
        edit_rewards = torch.where(proposals.edits.mask, score(words), 0.0)
    rewards = score(proposals.actions)
    estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=1).loss.backward()
    return -logits.grad[0], proposals


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=0.0, atol=1e-11)


def brute_force(noise, probs):
    """z^{c<->j} of [Q,V] for all c and j: swap, and run the race again. [Q,c,j]."""
    size = noise.shape[1]
    pseudo = torch.empty(len(noise), size, size, dtype=torch.long)
    for c, j in itertools.product(range(size), repeat=2):
        swapped = noise.clone()
        swapped[:, c], swapped[:, j] = noise[:, j], noise[:, c]
        pseudo[:, c, j] = (swapped.log() - probs.log()).argmin(-1)
    return pseudo


def random_policy(vocab_size, *, rows=300, peak=2.0, suppressed=()):
    """Noise, probabilities and possible words of many agents."""
    generator = torch.Generator().manual_seed(vocab_size)
    logits = peak * torch.randn(rows, vocab_size, generator=generator, dtype=torch.float64)
    logits[:, list(suppressed)] = -torch.inf
    probs, possible = logits.softmax(-1), logits > -torch.inf
    noise = dirichlet(rows, vocab_size, generator=generator)
    return noise / torch.where(possible, noise, 0.0).sum(-1, keepdim=True), probs, possible


POLICIES = [(1, ()), (2, ()), (3, ()), (4, (2,)), (5, ()), (7, ()), (7, (0, 5))]

# ---- published vectors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ONE["cases"])
def test_of_one_variable_all_is_as_published(case):
    phi, noise, f = tensor([ONE["phi"]]), tensor([case["pi"]]), tensor(ONE["f"])
    race = run_race(noise, phi.softmax(-1))
    assert race.true.tolist() == [case["true_action"]]
    one, other = torch.cartesian_prod(torch.arange(4), torch.arange(4)).T
    pseudo = swapped_actions(race, noise, phi.softmax(-1), one[None], other[None])
    assert pseudo.reshape(4, 4).tolist() == case["pseudo_actions"]
    for name in ("ar", "arsm"):
        close(gradient_of(get_estimator(name), phi, noise, lambda u: f[u[..., 0]])[0][0], tensor(case[name]))
    # with one agent, local and joint are one
    close(gradient_of(JointArsm(), phi, noise, lambda u: f[u[..., 0]])[0][0], tensor(case["arsm"]))
    for j in range(4):
        reference = torch.tensor([[[[j]]]])
        ars = gradient_of(Ars(), phi, noise, lambda u: f[u[..., 0]], references=reference)[0]
        close(ars[0], tensor(case["ars"][j]))


@pytest.mark.parametrize(("name", "vector"), [("arsm", "arsm_local"), ("arsm_joint", "arsm_joint")])
def test_of_two_agents_local_and_joint_arsm_are_as_published(name, vector):
    table = tensor(TWO["reward_table"])
    gradient, proposals = gradient_of(
        get_estimator(name), tensor(TWO["logits"]), tensor(TWO["pi"]), lambda u: table[u[..., 0], u[..., 1]]
    )
    assert proposals.actions[0, 0].tolist() == TWO["joint_action"]
    close(gradient, tensor(TWO[vector]))


def test_of_two_agents_the_pseudo_joint_actions_are_as_published():
    log_probs = tensor([TWO["logits"]]).log_softmax(-1)
    mask = torch.ones(1, 2, dtype=torch.bool)
    proposals = JointArsm().propose_from_noise(log_probs, mask, tensor([[TWO["pi"]]]), eos_token_id=None)
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = [[TWO["pseudo_actions"][k][c][j] for k in range(2)] for c, j in pairs]
    assert proposals.actions[0, 1:].tolist() == expected


# ---- swaps -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vocab_size", "suppressed"), POLICIES)
def test_a_swap_needs_no_more_of_the_race_than_its_first_two(vocab_size, suppressed):
    noise, probs, _ = random_policy(vocab_size, suppressed=suppressed)
    expected = brute_force(noise, probs)
    one, other = torch.cartesian_prod(torch.arange(vocab_size), torch.arange(vocab_size)).reshape(-1, 2).T
    race = run_race(noise, probs)
    pseudo = swapped_actions(
        race, noise, probs, one.expand(len(noise), -1), other.expand(len(noise), -1)
    ).reshape(expected.shape)
    possible = probs > 0.0
    both = possible[:, :, None] & possible[:, None]
    assert torch.equal(pseudo[both], expected[both])
    assert vocab_size == 1 or (expected[both] != race.true[:, None, None].expand_as(both)[both]).any()


@pytest.mark.parametrize(("vocab_size", "suppressed"), POLICIES)
def test_changing_swaps_are_all_that_change_the_word_each_once(vocab_size, suppressed):
    noise, probs, possible = random_policy(vocab_size, suppressed=suppressed)
    expected = brute_force(noise, probs)
    race = run_race(noise, probs)
    for j in range(vocab_size):
        if j in suppressed:
            continue
        reference = torch.full((len(noise),), j)
        row, category, word = changing_swaps(race, noise, probs, possible, reference)
        changes = (expected[:, :, j] != race.true[:, None]) & possible
        assert len(row) == changes.sum()
        assert changes[row, category].all()
        assert torch.equal(word, expected[row, category, j])


def mean_of_ars(noise, probs, possible, rewards):
    """ARSM from its definition: the mean over j of [f(z^{c<->j}) - mean_m f(z^{m<->j})] (1 - C pi_j)."""
    pseudo = brute_force(noise, probs)
    values = rewards.gather(-1, pseudo.flatten(1)).reshape(pseudo.shape)
    count = possible.sum(-1)[:, None, None]
    values = values - torch.where(possible[:, :, None], values, 0.0).sum(1, keepdim=True) / count
    weighted = values * (1.0 - count * noise[:, None])
    mean = torch.where(possible[:, None], weighted, 0.0).sum(-1) / count[..., 0]
    return torch.where(possible, mean, 0.0)


@pytest.mark.parametrize(("vocab_size", "suppressed"), POLICIES)
def test_merged_swaps_are_the_mean_of_ars_over_all_references(vocab_size, suppressed):
    noise, probs, possible = random_policy(vocab_size, suppressed=suppressed)
    rewards = torch.rand(noise.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    race = run_race(noise, probs)
    swaps = MergedSwaps(race, noise, probs, possible, probs.argsort(-1, descending=True))
    gradient = swaps.gradient(rewards - rewards.gather(-1, race.true[:, None]))
    close(gradient, mean_of_ars(noise, probs, possible, rewards))
    assert vocab_size == 1 or gradient.abs().max() > 0.1


@pytest.mark.parametrize("seed", range(3))
def test_local_arsm_is_the_mean_of_ars_with_each_reference_in_turn(seed):
    problem = random_problem(seed, num_agents=3, vocab_size=4)
    noise = possible_noise(problem, 1, generator=torch.Generator().manual_seed(seed))[0, 0]
    in_turn = torch.arange(4).expand(1, 1, 3, 4)
    ars = gradient_of(Ars(), problem.logits, noise, problem.reward.score, references=in_turn)[0]
    arsm = gradient_of(Arsm(), problem.logits, noise, problem.reward.score)[0]
    close(ars, arsm)
    first = gradient_of(Ars(), problem.logits, noise, problem.reward.score, references=in_turn[..., :1])[0]
    assert (first - arsm).abs().max() > 1e-3


def test_with_two_words_arsm_is_arm():
    """ARM (Yin & Zhou 2019): [f(1[u > sigma(-phi)]) - f(1[u < sigma(phi)])] (u - 1/2) of a Bernoulli."""
    f = tensor([0.3, 0.9])
    for phi, u in itertools.product((-1.5, 0.2, 2.0), (0.05, 0.4, 0.7, 0.98)):
        sigma = tensor(phi).sigmoid()
        says_one = (1 - (u > 1 - sigma).long(), 1 - (u < sigma).long())  # word 0 stands for 1
        arm = (f[says_one[0]] - f[says_one[1]]) * (u - 0.5)
        gradient, _ = gradient_of(Arsm(), tensor([[phi, 0.0]]), tensor([[u, 1 - u]]), lambda a: f[a[..., 0]])
        close(gradient[0], torch.stack([arm, -arm]))


# ---- gradients ---------------------------------------------------------------------------------------------


def test_a_centred_gradient_sums_to_zero_over_possible_words():
    possible = torch.tensor([[True, False, True, True], [False] * 4])
    gradient = tensor([[3.0, 0.0, 0.0, 3.0], [0.0] * 4])
    assert centre(gradient, possible).tolist() == [[1.0, 0.0, -2.0, 1.0], [0.0] * 4]


def test_noise_given_the_winner_makes_it_win_and_is_dirichlet():
    # Dirichlet(1) of 3 words: mean 1/3, variance 2 / (9 * 4).
    probs = tensor([0.6, 0.0, 0.3, 0.1]).expand(200_000, -1)
    generator = torch.Generator().manual_seed(0)
    actions = probs.multinomial(1, generator=generator)[:, 0]
    noise = draw_noise(actions, probs, probs > 0.0, generator=generator)
    assert torch.equal(run_race(noise, probs).true, actions)
    noise = noise[:, [0, 2, 3]]
    torch.testing.assert_close(noise.sum(-1), torch.ones_like(noise[:, 0]))
    error = (1 / 18) ** 0.5 / 200_000**0.5
    assert ((noise.mean(0) - 1 / 3).abs() < 4 * error).all()
    torch.testing.assert_close(noise.var(0), torch.full((3,), 1 / 18).double(), rtol=0.02, atol=0.0)


# ---- Horvitz-Thompson --------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", [0.5, 1.0, 2.5])
@pytest.mark.parametrize(("vocab_size", "suppressed"), [(4, (2,)), (5, ())])
def test_over_all_ways_to_keep_words_the_mean_is_full_arsm(vocab_size, suppressed, budget):
    noise, probs, possible = random_policy(vocab_size, suppressed=suppressed, rows=100)
    race = run_race(noise, probs)
    swaps = MergedSwaps(race, noise, probs, possible, probs.argsort(-1, descending=True))
    rewards = torch.rand(noise.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    differences = rewards - rewards.gather(-1, race.true[:, None])
    keep = keep_probabilities(swaps.sizes(), budget)
    assert (keep.sum(-1) <= budget + 1e-12).all()
    assert ((keep > 0.0) & (keep < 1.0)).any()
    mean = torch.zeros_like(noise)
    for kept in itertools.product([False, True], repeat=vocab_size):
        chance = torch.where(torch.tensor(kept), keep, 1.0 - keep).prod(-1, keepdim=True)
        divided = torch.where(torch.tensor(kept) & (keep > 0.0), differences / keep, 0.0)
        mean += chance * swaps.gradient(divided)
    close(mean, swaps.gradient(differences))


@pytest.mark.parametrize(("vocab_size", "suppressed"), POLICIES)
def test_a_word_of_size_zero_moves_nothing_and_others_do(vocab_size, suppressed):
    noise, probs, possible = random_policy(vocab_size, suppressed=suppressed)
    swaps = MergedSwaps(run_race(noise, probs), noise, probs, possible, probs.argsort(-1, descending=True))
    sizes = swaps.sizes()
    for v in range(vocab_size):
        one = torch.zeros_like(noise)
        one[:, v] = 1.0
        moves = swaps.gradient(one.scatter(-1, swaps.true, 0.0)).norm(dim=-1)
        assert (moves[sizes[:, v] == 0.0] == 0.0).all()
        # centring takes at most the part along (1, ..., 1), and overlaps are counted at half their square
        assert (moves[sizes[:, v] > 0.0] > 0.0).all()
        assert (moves <= 2.0 * sizes[:, v] + 1e-12).all()


def test_without_a_budget_all_words_that_can_move_something_are_kept():
    assert keep_probabilities(tensor([[0.0, 0.2, 3.0]]), None).tolist() == [[0.0, 1.0, 1.0]]
