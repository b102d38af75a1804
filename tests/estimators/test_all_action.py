"""All-action: published variances, the complete sum equals the sum over all words, nothing is paid twice."""

from dataclasses import replace

import pytest
import torch

from hf_cmal.estimators import get_estimator
from hf_cmal.rewards import get_reward
from hf_cmal.sampling import OTHER
from tests.estimators.enumeration import (
    enumerate_estimates,
    random_problem,
    reference_problems,
    tiny_problems,
)

REFERENCE = reference_problems()
EXACT = [name for name, (problem, _) in REFERENCE.items() if problem.reward.other_is_exact]


def all_action(**options):
    return get_estimator("all_action", **options)


@pytest.mark.parametrize("problem", REFERENCE)
@pytest.mark.parametrize(
    ("name", "top_k"),
    [
        ("all_action_exact", 6),
        ("all_action_top_1_exact_plus_sampled_rest", 1),
        ("all_action_top_2_exact_plus_sampled_rest", 2),
    ],
)
def test_over_the_likeliest_words_it_has_the_published_variance_and_no_bias(name, top_k, problem):
    setting, entry = REFERENCE[problem]
    suffix = "_masked" if entry["eos"] is not None else ""
    estimates = enumerate_estimates(all_action(top_k=top_k), setting)
    assert estimates.relative_bias < 1e-9
    assert estimates.total_variance == pytest.approx(
        entry["estimators"][name][f"total_variance{suffix}"], rel=1e-9
    )


@pytest.mark.parametrize("problem", EXACT)
def test_candidates_and_one_other_word_stand_for_all_words(problem):
    """Also when the candidates are padded, as those of a batch are."""
    setting, _ = REFERENCE[problem]
    padded = torch.nn.functional.pad(setting.reward.candidates, (0, 3), value=OTHER)
    over_all = enumerate_estimates(all_action(top_k=6), setting)
    for candidates in (setting.reward.candidates, padded):
        with_candidates = replace(setting, reward=replace(setting.reward, candidates=candidates))
        over_candidates = enumerate_estimates(all_action(), with_candidates)
        torch.testing.assert_close(over_candidates.gradients, over_all.gradients, rtol=0.0, atol=1e-12)


def test_there_are_enough_exact_problems():
    assert len(EXACT) == len(REFERENCE) == 4


@pytest.mark.parametrize("top_k", [1, 2, 3, 99])
@pytest.mark.parametrize("name", tiny_problems())
def test_it_is_unbiased_whatever_the_set(name, top_k):
    assert enumerate_estimates(all_action(top_k=top_k), tiny_problems()[name]).relative_bias < 1e-9


def test_two_samples_of_an_input_are_averaged():
    problem = random_problem(11, num_agents=2, vocab_size=3, eos=1)
    for options in ({"top_k": 1}, {"top_k": 3}):
        one, two = (
            enumerate_estimates(all_action(**options), problem, num_samples=samples) for samples in (1, 2)
        )
        assert two.relative_bias < 1e-9
        assert two.total_variance == pytest.approx(one.total_variance / 2)


def test_without_candidates_the_eight_likeliest_words_are_summed():
    log_probs = torch.linspace(0, 3, 20, dtype=torch.float64).expand(1, 2, 20).log_softmax(-1)
    mask = torch.ones(1, 2, dtype=torch.bool)
    proposals = all_action().propose(log_probs, mask, eos_token_id=None, num_samples=3)
    assert proposals.edits.words[0, 0, :, 0].tolist() == [19, 18, 17, 16, 15, 14, 13, 12] * 2
    rewards, edit_rewards = torch.zeros(1, 3), torch.zeros(1, 3, 16)
    stats = all_action().surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=1).stats
    assert float(stats["summed_probability"]) == pytest.approx(float(log_probs[0, 0, 12:].exp().sum()))


def test_a_forbidden_word_is_not_proposed_and_costs_no_gradient():
    """-inf log-probs: eos and pad of the student."""
    logits = torch.tensor([[[1.0, -torch.inf, 0.5], [-torch.inf, 0.0, -torch.inf]]], requires_grad=True)
    log_probs = logits.log_softmax(-1)
    mask = torch.ones(1, 2, dtype=torch.bool)
    candidates = torch.tensor([[0, 1, OTHER]])
    for options, given in (({"top_k": 3}, None), ({}, candidates)):
        estimator = all_action(**options)
        proposals = estimator.propose(
            log_probs.detach(), mask, eos_token_id=None, num_samples=2, candidates=given
        )
        if given is None:
            said = proposals.edits.words[..., 0][proposals.edits.mask]
            assert sorted(said.tolist()) == [0, 0, 1, 1, 2, 2]  # both samples: 0 and 2, then 1
        edit_rewards = torch.rand(proposals.edits.mask.shape)
        loss = estimator.surrogate(log_probs, proposals, torch.rand(1, 2), edit_rewards, num_inputs=1).loss
        (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
        assert gradient.isfinite().all()
        assert gradient[0, 0, 0] != 0.0 and gradient[0, 1, 1] == 0.0


def test_with_gleu_it_moves_an_agent_towards_the_word_of_the_reference():
    """One agent is wrong: its right word gains, its wrong words lose in proportion to their probability."""
    logits = torch.zeros(1, 3, 10)
    logits[0, 0, 4] = logits[0, 1, 5] = 50.0
    logits[0, 2, 7] = 2.0
    logits.requires_grad_()
    log_probs = logits.log_softmax(-1)
    mask = torch.ones(1, 3, dtype=torch.bool)
    bound = get_reward("gleu").bind([[[4, 5, 6]]], mask, eos_token_id=None)
    estimator = all_action()
    proposals = estimator.propose(
        log_probs.detach(), mask, eos_token_id=None, num_samples=1, candidates=bound.candidates
    )
    loss = estimator.surrogate(
        log_probs,
        proposals,
        bound.score(proposals.actions),
        bound.score_edits(proposals.actions, proposals.edits),
        num_inputs=1,
    ).loss
    (gradient,) = torch.autograd.grad(-loss, logits)
    # GLEU is 1 with the right word; with 4 or 5 again, or any other, 3 of 6 n-grams match
    probs = log_probs.detach()[0, 2].exp()
    expected = 0.5 * probs[6] * (torch.nn.functional.one_hot(torch.tensor(6), 10) - probs)
    torch.testing.assert_close(gradient[0, 2], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"count_eos": False}])
@pytest.mark.parametrize("name", ["gleu", "bleu"])
@pytest.mark.parametrize("eos", [None, 0])
def test_the_candidates_of_a_reward_miss_no_word_that_matters(name, options, eos):
    """The sum over candidates and OTHER is the sum over all words, with and without an eos that counts."""
    generator = torch.Generator().manual_seed(5)
    log_probs = torch.randn(2, 4, 9, generator=generator, dtype=torch.float64).log_softmax(-1)
    mask = torch.tensor([[True] * 4, [True] * 3 + [False]])
    bound = get_reward(name, **options).bind([[[4, 5, 6], [4, 4]], [[7, 8, 7]]], mask, eos_token_id=eos)
    gradients = []
    for estimator, candidates in ((all_action(), bound.candidates), (all_action(top_k=9), None)):
        leaf = log_probs.clone().requires_grad_()
        proposals = estimator.propose(
            log_probs, mask, eos_token_id=eos, num_samples=50, candidates=candidates,
            generator=torch.Generator().manual_seed(6),
        )  # fmt: skip
        rewards = bound.score(proposals.actions)
        edit_rewards = bound.score_edits(proposals.actions, proposals.edits)
        loss = estimator.surrogate(leaf.log_softmax(-1), proposals, rewards, edit_rewards, num_inputs=2).loss
        gradients.append(torch.autograd.grad(loss, leaf)[0])
    assert gradients[1].abs().max() > 1e-3
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("top_k", [0, -1])
def test_a_set_without_words_is_refused(top_k):
    with pytest.raises(ValueError, match=f"top_k must be at least 1, or None, got {top_k}"):
        all_action(top_k=top_k)
