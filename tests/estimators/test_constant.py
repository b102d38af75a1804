"""Baselines "None" and "MA" of CMAL Table III."""

import json
import warnings

import pytest
import torch

from hf_cmal.estimators import ESTIMATORS, get_estimator

ONE_AGENT = torch.tensor([[[0.5, 0.5]]], dtype=torch.float64).log()
MASK = torch.ones(1, 1, dtype=torch.bool)
ACTIONS = torch.tensor([[[0], [1]]])


def advantages(estimator, rewards):
    proposals = estimator.propose_from_actions(ONE_AGENT, MASK, ACTIONS, eos_token_id=None)
    surrogate = estimator.surrogate(
        ONE_AGENT, proposals, torch.tensor([rewards], dtype=torch.float64), None, num_inputs=1
    )
    return surrogate.advantages.flatten().tolist()


def test_baseline_none_warns_and_the_others_do_not():
    with pytest.warns(UserWarning, match="no baseline"):
        get_estimator("none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ESTIMATORS:
            if name != "none":
                get_estimator(name)


@pytest.mark.filterwarnings("ignore:estimator 'none'")
def test_without_baseline_the_advantage_is_the_reward():
    assert advantages(get_estimator("none"), [3.0, 5.0]) == [3.0, 5.0]


def test_moving_average_is_zero_at_the_first_step():
    assert advantages(get_estimator("moving_average"), [3.0, 5.0]) == [3.0, 5.0]


def test_moving_average_decays_by_0_9():
    # b: 0, then 0.9 * 0 + 0.1 * 4 = 0.4, then 0.9 * 0.4 + 0.1 * 10 = 1.36
    estimator = get_estimator("moving_average")
    estimator.update(4.0)
    assert advantages(estimator, [3.0, 5.0]) == pytest.approx([2.6, 4.6])
    estimator.update(10.0)
    assert advantages(estimator, [3.0, 5.0]) == pytest.approx([1.64, 3.64])


def test_moving_average_excludes_the_rewards_it_is_subtracted_from():
    # However large the current rewards, the baseline is that of the steps before; only update() moves it.
    estimator = get_estimator("moving_average")
    estimator.update(4.0)
    advantages(estimator, [1000.0, 1000.0])
    assert advantages(estimator, [1000.0, 0.0]) == pytest.approx([999.6, -0.4])


def test_moving_average_survives_a_checkpoint():
    before, after = get_estimator("moving_average"), get_estimator("moving_average")
    before.update(4.0)
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    before.update(10.0)
    after.update(10.0)
    assert advantages(after, [3.0, 5.0]) == advantages(before, [3.0, 5.0])
    assert advantages(get_estimator("moving_average"), [3.0, 5.0]) != advantages(before, [3.0, 5.0])


def test_a_state_of_something_else_is_an_error():
    with pytest.raises(ValueError, match="'baseline' alone, got \\['mean'\\]"):
        get_estimator("moving_average").load_state_dict({"mean": 1.0})


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_decay_out_of_range_is_an_error_that_names_the_rule(decay):
    with pytest.raises(ValueError, match=rf"decay must be in \[0, 1\), got {decay}"):
        get_estimator("moving_average", decay=decay)
