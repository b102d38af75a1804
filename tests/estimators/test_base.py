"""policy_gradient_loss (CMAL Eqs. (6)-(9)) and what all baselines share, by hand-worked numbers."""

import pytest
import torch

from hf_cmal.estimators.base import baseline_surrogate, policy_gradient_loss, sample_proposals

# One input, two agents, three words; word probabilities in quarters.
PROBS = torch.tensor([[[0.5, 0.25, 0.25], [0.25, 0.25, 0.5]]], dtype=torch.float64)
ALL = torch.ones(1, 1, 2, dtype=torch.bool)


def logits():
    return PROBS.log().requires_grad_()


def test_gradient_is_minus_the_advantage_times_the_gradient_of_log_pi():
    # d log pi(u) / d logits = onehot(u) - pi. Agent 0 says word 1, agent 1 says word 2; R - b = 2.
    phi = logits()
    policy_gradient_loss(
        phi.log_softmax(-1), torch.tensor([[[1, 2]]]), torch.tensor([[2.0]]), ALL, num_inputs=1
    ).backward()
    expected = torch.tensor([[[1.0, -1.5, 0.5], [0.5, 0.5, -1.0]]], dtype=torch.float64)
    torch.testing.assert_close(phi.grad, expected)


def test_each_agent_may_have_its_own_advantage():
    phi = logits()
    policy_gradient_loss(
        phi.log_softmax(-1), torch.tensor([[[1, 2]]]), torch.tensor([[[2.0, -4.0]]]), ALL, num_inputs=1
    ).backward()
    expected = torch.tensor([[[1.0, -1.5, 0.5], [-1.0, -1.0, 2.0]]], dtype=torch.float64)
    torch.testing.assert_close(phi.grad, expected)


def test_a_step_along_the_gradient_makes_a_rewarded_word_more_probable():
    phi = logits()
    policy_gradient_loss(
        phi.log_softmax(-1), torch.tensor([[[1, 2]]]), torch.tensor([[1.0]]), ALL, num_inputs=1
    ).backward()
    after = (phi - 0.1 * phi.grad).softmax(-1)
    assert after[0, 0, 1] > 0.25
    assert after[0, 1, 2] > 0.5


def test_loss_is_divided_by_inputs_and_samples():
    # -sum A log pi / (num_inputs * S). Two samples of one agent: log(1/2) and log(1/4), A = 3 and 5.
    log_probs = PROBS.log()[:, :1]
    actions = torch.tensor([[[0], [1]]])
    alive = torch.ones(1, 2, 1, dtype=torch.bool)
    for num_inputs in (4, torch.tensor(4)):
        loss = policy_gradient_loss(
            log_probs, actions, torch.tensor([[3.0, 5.0]]), alive, num_inputs=num_inputs
        )
        assert float(loss) == pytest.approx((3 * 1 + 5 * 2) * 0.6931471805599453 / (4 * 2))


def test_loss_is_not_divided_by_the_length_of_the_sample():
    # The agent after the eos is masked; the other's gradient stays what it is.
    long, short = logits(), logits()
    actions, advantages = torch.tensor([[[1, 2]]]), torch.tensor([[2.0]])
    only_first = torch.tensor([[[True, False]]])
    policy_gradient_loss(long.log_softmax(-1), actions, advantages, ALL, num_inputs=1).backward()
    policy_gradient_loss(short.log_softmax(-1), actions, advantages, only_first, num_inputs=1).backward()
    torch.testing.assert_close(short.grad[:, 0], long.grad[:, 0])
    assert (short.grad[:, 1] == 0.0).all()
    assert (long.grad[:, 1] != 0.0).all()


def test_losses_of_parts_of_a_batch_add_up_to_that_of_the_whole():
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(4, 3, 5, generator=generator, dtype=torch.float64).log_softmax(-1)
    actions = torch.randint(0, 5, (4, 2, 3), generator=generator)
    advantages = torch.randn(4, 2, 3, generator=generator, dtype=torch.float64)
    alive = torch.rand(4, 2, 3, generator=generator) < 0.7
    whole = policy_gradient_loss(log_probs, actions, advantages, alive, num_inputs=4)
    parts = [
        policy_gradient_loss(log_probs[b], actions[b], advantages[b], alive[b], num_inputs=4)
        for b in (slice(0, 1), slice(1, 4))
    ]
    torch.testing.assert_close(sum(parts), whole)


def test_no_gradient_flows_into_the_advantage():
    phi = logits()
    advantages = phi.sum(-1)[:, None]
    loss = policy_gradient_loss(phi.log_softmax(-1), torch.tensor([[[1, 2]]]), advantages, ALL, num_inputs=1)
    loss.backward()
    constant = logits()
    policy_gradient_loss(
        constant.log_softmax(-1), torch.tensor([[[1, 2]]]), advantages.detach(), ALL, num_inputs=1
    ).backward()
    torch.testing.assert_close(phi.grad, constant.grad)


def test_loss_has_the_dtype_of_the_log_probs():
    loss = policy_gradient_loss(
        PROBS.float().log(),
        torch.tensor([[[1, 2]]]),
        torch.ones(1, 1, dtype=torch.float64),
        ALL,
        num_inputs=1,
    )
    assert loss.dtype == torch.float32


def test_minus_infinity_on_padding_gives_a_finite_loss_and_gradient():
    phi = torch.full((1, 2, 3), -torch.inf, dtype=torch.float64)
    phi[0, 0] = 0.0
    log_probs = torch.where(phi > -torch.inf, phi.log_softmax(-1), -torch.inf).requires_grad_()
    loss = policy_gradient_loss(
        log_probs,
        torch.tensor([[[1, 2]]]),
        torch.tensor([[2.0]]),
        torch.tensor([[[True, False]]]),
        num_inputs=1,
    )
    loss.backward()
    assert loss.isfinite()
    assert log_probs.grad.isfinite().all()
    assert log_probs.grad[0, 0, 1] == -2.0


def proposals_of(actions, agent_mask, eos):
    return sample_proposals(
        torch.zeros(len(actions), actions.shape[-1], 5), agent_mask, actions, eos_token_id=eos
    )


def test_advantage_is_exactly_zero_on_padding():
    agent_mask = torch.tensor([[True, True, False], [False, False, False]])
    actions = torch.tensor([[[1, 2, 3]], [[1, 2, 3]]])
    proposals = proposals_of(actions, agent_mask, None)
    rewards = torch.tensor([[2.0], [2.0]])
    surrogate = baseline_surrogate(
        torch.zeros(2, 3, 5), proposals, rewards, torch.tensor([[0.5], [0.5]]), num_inputs=2
    )
    assert surrogate.advantages.tolist() == [[[1.5, 1.5, 0.0]], [[0.0, 0.0, 0.0]]]


def test_advantage_is_kept_at_the_eos_and_exactly_zero_after_it():
    actions = torch.tensor([[[1, 0, 0, 2], [0, 1, 1, 1], [1, 1, 1, 1]]])
    proposals = proposals_of(actions, torch.ones(1, 4, dtype=torch.bool), 0)
    surrogate = baseline_surrogate(
        torch.zeros(1, 4, 5), proposals, torch.tensor([[3.0, 4.0, 5.0]]), 1.0, num_inputs=1
    )
    assert surrogate.advantages.tolist() == [[[2, 2, 0, 0], [3, 0, 0, 0], [4, 4, 4, 4]]]


def test_stats_are_over_agents_that_are_alive():
    # Advantages 2, 2 and 4 of three agents; the dead one's 0 does not count. Mean 8/3, variance 8/9.
    actions = torch.tensor([[[1, 0], [0, 1]]])
    proposals = proposals_of(actions, torch.ones(1, 2, dtype=torch.bool), 0)
    surrogate = baseline_surrogate(
        torch.zeros(1, 2, 5), proposals, torch.tensor([[2.0, 4.0]]), 0.0, num_inputs=1
    )
    assert float(surrogate.stats["advantage_mean"]) == pytest.approx(8 / 3)
    assert float(surrogate.stats["advantage_std"]) == pytest.approx((8 / 9) ** 0.5)


def test_stats_of_a_batch_of_padding_are_zero():
    proposals = proposals_of(torch.tensor([[[1, 0]]]), torch.zeros(1, 2, dtype=torch.bool), None)
    surrogate = baseline_surrogate(torch.zeros(1, 2, 5), proposals, torch.tensor([[2.0]]), 0.0, num_inputs=1)
    assert float(surrogate.stats["advantage_mean"]) == 0.0
    assert float(surrogate.stats["advantage_std"]) == 0.0
    assert float(surrogate.loss) == 0.0
