"""The counterfactual baseline over all words, CMAL Eq. (12), by the candidates of the reward and OTHER."""

from dataclasses import replace

import pytest
import torch

from hf_cmal.estimators import get_estimator
from hf_cmal.estimators.counterfactual import exact_counterfactuals
from hf_cmal.rewards import get_reward
from hf_cmal.sampling import OTHER
from tests.estimators.enumeration import enumerate_estimates, reference_problems

REFERENCE = reference_problems()


def test_the_words_are_the_candidates_and_other_has_the_probability_of_the_rest():
    log_probs = torch.tensor([[[0.1, 0.2, 0.3, 0.4]]], dtype=torch.float64).log()
    words, probs = exact_counterfactuals(log_probs, torch.tensor([[3, 1, OTHER]]))
    assert words.tolist() == [[[3, 1, OTHER, OTHER]]]
    assert probs.flatten().tolist() == pytest.approx([0.4, 0.2, 0.0, 0.4])


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("problem", REFERENCE)
def test_it_is_the_same_estimate_as_top_k_of_all_words(problem, padding):
    setting, _ = REFERENCE[problem]
    candidates = torch.nn.functional.pad(setting.reward.candidates, (0, padding), value=OTHER)
    setting = replace(setting, reward=replace(setting.reward, candidates=candidates))
    over_candidates = enumerate_estimates(get_estimator("counterfactual", exact=True), setting)
    over_all = enumerate_estimates(get_estimator("counterfactual", top_k=6), setting)
    torch.testing.assert_close(over_candidates.advantages, over_all.advantages, rtol=0.0, atol=1e-12)
    torch.testing.assert_close(over_candidates.gradients, over_all.gradients, rtol=0.0, atol=1e-12)
    over_some = enumerate_estimates(get_estimator("counterfactual", top_k=2), setting)
    assert (over_candidates.advantages - over_some.advantages).abs().max() > 0.01


@pytest.mark.parametrize("name", ["gleu", "bleu"])
@pytest.mark.parametrize("eos", [None, 0])
def test_with_rewards_of_n_grams_it_is_top_k_of_all_words_on_padding_and_forbidden_words_too(name, eos):
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(2, 4, 9, generator=generator, dtype=torch.float64)
    logits[..., 3] = -torch.inf
    log_probs, mask = logits.log_softmax(-1), torch.tensor([[True] * 4, [True] * 3 + [False]])
    log_probs[1, 3] = torch.nan
    bound = get_reward(name).bind([[[4, 5, 6], [4, 4]], [[7, 8, 7]]], mask, eos_token_id=eos)
    advantages = []
    for options in ({"exact": True}, {"top_k": 9}):
        estimator = get_estimator("counterfactual", **options)
        proposals = estimator.propose(
            log_probs, mask, eos_token_id=eos, num_samples=50, candidates=bound.candidates,
            generator=torch.Generator().manual_seed(6),
        )  # fmt: skip
        rewards = bound.score(proposals.actions)
        edit_rewards = bound.score_edits(proposals.actions, proposals.edits)
        surrogate = estimator.surrogate(log_probs, proposals, rewards, edit_rewards, num_inputs=2)
        advantages.append(surrogate.advantages)
    assert advantages[1].abs().max() > 0.01
    torch.testing.assert_close(*advantages, rtol=0.0, atol=1e-12)


def test_without_candidates_it_is_an_error_that_names_the_fix():
    log_probs, mask = torch.zeros(1, 2, 3).log_softmax(-1), torch.ones(1, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"exact=True needs the candidates.*leave exact out and set top_k"):
        get_estimator("counterfactual", exact=True).propose(log_probs, mask, eos_token_id=None)


def test_with_top_k_or_compositional_agents_it_is_an_error():
    with pytest.raises(ValueError, match="exact sums over all words, got top_k=2"):
        get_estimator("counterfactual", exact=True, top_k=2)
    with pytest.raises(ValueError, match=r"single agents, got compositional_weight=0\.5"):
        get_estimator("counterfactual", exact=True, compositional_weight=0.5)


def test_without_options_it_is_top_k_of_two():
    assert get_estimator("counterfactual").top_k == 2
