"""Estimators that swap noise where a batch is ragged: padding, forbidden words, eos, precision, limits."""

import pytest
import torch

from hf_cmal.estimators import get_estimator
from hf_cmal.estimators.ars import random_references
from hf_cmal.estimators.arsm_samples import pack_edits
from hf_cmal.rewards import get_reward
from tests.estimators.enumeration import random_problem
from tests.estimators.noise import NOISE_ESTIMATORS, draw_estimates

SUBJECTS = [(name, {}) for name in NOISE_ESTIMATORS] + [
    ("arsm", {"budget": 1}),
    ("ars", {"num_references": 3}),
]
LOCAL = [(name, options) for name, options in SUBJECTS if name != "arsm_joint"]


def one_step(name, options, logits, mask, *, eos, padding=0.0, num_samples=3):
    """One step with random rewards: the gradient of the logits, and what was proposed."""
    generator = torch.Generator().manual_seed(1)
    leaf = logits.clone().requires_grad_()
    log_probs = leaf.log_softmax(-1)
    log_probs = torch.where(mask[..., None], log_probs, padding)
    estimator = get_estimator(name, **options)
    proposals = estimator.propose(
        log_probs.detach(), mask, eos_token_id=eos, num_samples=num_samples, generator=generator
    )
    rewards = torch.rand(proposals.actions.shape[:2], generator=generator, dtype=torch.float64)
    edit_rewards = None
    if proposals.edits is not None:
        edit_rewards = torch.rand(proposals.edits.mask.shape, generator=generator, dtype=torch.float64)
        edit_rewards = edit_rewards * proposals.edits.mask
    surrogate = estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=2)
    surrogate.loss.backward()
    assert surrogate.advantages is None
    assert all(value.isfinite() for value in surrogate.stats.values())
    return leaf.grad, proposals


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("padding", [0.0, 60.0, -torch.inf, torch.nan])
@pytest.mark.parametrize(("name", "options"), SUBJECTS)
def test_gradient_is_finite_and_zero_on_padding_and_forbidden_words(name, options, padding, dtype):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2, 4, 6, generator=generator, dtype=torch.float64).to(dtype)
    logits[..., 2] = -torch.inf
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    gradient, proposals = one_step(name, options, logits, mask, eos=4, padding=padding)
    assert gradient.isfinite().all()
    assert (gradient[~mask] == 0.0).all()
    assert (gradient[..., 2] == 0.0).all()
    assert gradient.abs().sum() > 0.0
    # the sampled words, and the pseudo actions, are possible
    samples = proposals.actions.transpose(1, 2)
    assert (samples[mask] != 2).all()
    if proposals.edits is not None:
        assert (proposals.edits.words[..., 0][proposals.edits.mask] != 2).all()


@pytest.mark.parametrize(("name", "options"), LOCAL)
def test_agents_after_the_eos_have_neither_edits_nor_gradient(name, options):
    # the second agent says the eos, and no swap changes the first word
    logits = torch.zeros(1, 4, 5, dtype=torch.float64)
    logits[0, 0, 2] = logits[0, 1, 4] = 60.0
    mask = torch.ones(1, 4, dtype=torch.bool)
    gradient, proposals = one_step(name, options, logits, mask, eos=4, num_samples=20)
    assert proposals.alive[0].tolist() == [[True, True, False, False]] * 20
    assert (gradient[0, 2:] == 0.0).all()
    if proposals.edits is not None:
        assert (proposals.edits.position[proposals.edits.mask] < 2).all()
    without_eos, _ = one_step(name, options, logits, mask, eos=None, num_samples=20)
    assert without_eos[0, 2:].abs().sum() > 0.0


@pytest.mark.parametrize("name", ["ar", "arsm"])
def test_a_sample_in_which_an_agent_is_dead_adds_nothing_to_its_gradient(name):
    problem = random_problem(2, num_agents=2, vocab_size=3, eos=0)
    noise = torch.full((1, 2, 2, 3), 1 / 3, dtype=torch.float64)
    noise[0, 0, 0], noise[0, 1, 0] = torch.tensor([[0.02, 0.5, 0.48], [0.9, 0.01, 0.09]])  # eos, no eos
    noise[0, :, 1] = torch.tensor([0.05, 0.45, 0.5])
    gradients = []
    for some in (noise, noise[:, 1:]):
        leaf = problem.logits[None].clone().requires_grad_()
        estimator, mask = get_estimator(name), problem.agent_mask[None]
        proposals = estimator.propose_from_noise(
            leaf.detach().log_softmax(-1), mask, some, eos_token_id=problem.eos_token_id
        )
        assert proposals.alive[0, :, 1].tolist() == ([False, True] if some is noise else [True])
        rewards = problem.reward.score(proposals.actions)
        edit_rewards = None
        if proposals.edits is not None:
            edit_rewards = problem.reward.score_edits(proposals.actions, proposals.edits)
        estimator.surrogate(
            leaf.log_softmax(-1), proposals, rewards, edit_rewards, num_inputs=1
        ).loss.backward()
        gradients.append(leaf.grad[0, 1])
    both, one_alive = gradients
    assert one_alive.abs().max() > 0.01
    torch.testing.assert_close(both, one_alive / 2)


@pytest.mark.parametrize(("name", "options"), SUBJECTS)
def test_a_batch_of_padding_alone_gives_zero_gradient(name, options):
    logits, mask = torch.zeros(2, 3, 5), torch.zeros(2, 3, dtype=torch.bool)
    gradient, proposals = one_step(name, options, logits, mask, eos=0)
    assert (gradient == 0.0).all()
    assert proposals.edits is None or not proposals.edits.mask.any()


@pytest.mark.parametrize(("name", "options"), LOCAL)
def test_a_certain_policy_asks_for_nothing_and_rewards_score_that(name, options):
    logits = torch.zeros(1, 3, 9, dtype=torch.float64)
    logits[..., 5] = 200.0
    log_probs, mask = logits.log_softmax(-1), torch.ones(1, 3, dtype=torch.bool)
    proposals = get_estimator(name, **options).propose(log_probs, mask, eos_token_id=None)
    if name == "ar":
        assert proposals.edits is None
        return
    assert not proposals.edits.mask.any()
    for reward in ("gleu", "bleu"):
        bound = get_reward(reward).bind([[[5, 6, 7]]], mask, eos_token_id=None)
        assert (bound.score_edits(proposals.actions, proposals.edits) == 0.0).all()


@pytest.mark.parametrize("reward", ["gleu", "bleu"])
@pytest.mark.parametrize(("name", "options"), LOCAL)
def test_edits_are_never_the_word_that_is_said_and_rewards_take_them(name, options, reward):
    generator = torch.Generator().manual_seed(3)
    log_probs = (2 * torch.randn(2, 4, 9, generator=generator)).log_softmax(-1)
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    bound = get_reward(reward).bind([[[4, 5, 6]], [[7, 8, 7]]], mask, eos_token_id=0)
    proposals = get_estimator(name, **options).propose(
        log_probs, mask, eos_token_id=0, num_samples=50, generator=generator
    )
    bound.score(proposals.actions)
    if name == "ar":
        return
    edits = proposals.edits
    said = proposals.actions.gather(-1, edits.position)
    assert edits.mask.any()
    assert (edits.words[..., 0] != said)[edits.mask].all()
    assert bound.score_edits(proposals.actions, edits).shape == edits.mask.shape


def test_equal_edits_are_asked_for_once_in_as_few_slots_as_will_do():
    # two inputs of one sample and three agents; word 4 of the first input's last agent comes twice
    row, word = torch.tensor([2, 0, 2, 4]), torch.tensor([4, 3, 4, 1])
    alive = torch.ones(2, 1, 3, dtype=torch.bool)
    edits, index = pack_edits(torch.zeros(4, dtype=torch.long), row, word, alive, vocab_size=5)
    assert edits.mask.tolist() == [[[True, True]], [[True, False]]]
    assert edits.position[0, 0].tolist() == [0, 2] and edits.words[0, 0, :, 0].tolist() == [3, 4]
    assert edits.position[1, 0, 0] == 1 and edits.words[1, 0, 0, 0] == 1
    assert index.tolist() == [1, 0, 1, 2]


def test_references_are_all_possible_words_alike():
    possible = torch.tensor([[True, False, True, True, False]]).expand(2, -1)
    references = random_references(possible, 60_000, generator=torch.Generator().manual_seed(0))
    counts = references[0].bincount(minlength=5)
    assert counts[~possible[0]].tolist() == [0, 0]
    # binomial: 20,000 and a standard deviation of 115
    assert ((counts[possible[0]] - 20_000).abs() < 4 * 116).all()


@pytest.mark.parametrize("name", ["ars", "arsm", "arsm_joint"])
def test_a_constant_added_to_all_rewards_changes_nothing(name):
    plain = random_problem(2, num_agents=4, vocab_size=3, eos=0)
    shifted = type(plain)(plain.logits, plain.agent_mask, plain.eos_token_id, plain.reward.shifted(7.0))
    before, after = (draw_estimates(get_estimator(name), problem, 50) for problem in (plain, shifted))
    torch.testing.assert_close(after.gradients, before.gradients, rtol=0.0, atol=1e-12)
    assert before.gradients.abs().max() > 0.01


# ---- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NOISE_ESTIMATORS)
def test_zero_samples_is_an_error(name):
    log_probs, mask = torch.zeros(1, 2, 3).log_softmax(-1), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        get_estimator(name).propose(log_probs, mask, eos_token_id=None, num_samples=0)


@pytest.mark.parametrize("name", NOISE_ESTIMATORS)
def test_a_mask_of_numbers_is_an_error(name):
    log_probs = torch.zeros(1, 2, 3).log_softmax(-1)
    with pytest.raises(ValueError, match="must be bool"):
        get_estimator(name).propose(log_probs, torch.ones(1, 2, dtype=torch.long), eos_token_id=None)


def test_joint_swaps_of_a_large_vocabulary_are_an_error_that_names_their_number():
    log_probs, mask = torch.zeros(1, 1, 200).log_softmax(-1), torch.ones(1, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"of 200 words and asks for 19900 rewards.*'ars' or 'arsm'"):
        get_estimator("arsm_joint").propose(log_probs, mask, eos_token_id=None)


def test_arsm_of_a_flat_large_vocabulary_is_an_error_that_names_budget_and_ars():
    log_probs, mask = torch.zeros(1, 1, 5000).log_softmax(-1), torch.ones(1, 1, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(ValueError, match=r"more than 1000.*set budget \(it is None\).*'ars'"):
        get_estimator("arsm").propose(log_probs, mask, eos_token_id=None, generator=generator)
    proposals = get_estimator("arsm", budget=8).propose(
        log_probs, mask, eos_token_id=None, num_samples=200, generator=generator
    )
    assert 7 < proposals.edits.mask.sum() / 200 < 9


@pytest.mark.parametrize("budget", [0, -1.0, float("nan")])
def test_a_budget_of_nothing_is_an_error(budget):
    with pytest.raises(ValueError, match=f"budget must be positive, or None for all words, got {budget}"):
        get_estimator("arsm", budget=budget)


def test_no_reference_is_an_error():
    with pytest.raises(ValueError, match="num_references must be at least 1, got 0"):
        get_estimator("ars", num_references=0)
