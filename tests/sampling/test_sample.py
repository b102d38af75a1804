"""Sampling from independent agents, and writing edits out."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hf_cmal.sampling import OTHER, Edits, greedy_actions, sample_actions, write_out_edits


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


# ---- sample_actions ----------------------------------------------------------------------------------------


def test_samples_are_reproduced_by_the_generator():
    log_probs = torch.randn(2, 3, 7, generator=generator()).log_softmax(-1)
    first = sample_actions(log_probs, 4, generator=generator(5))
    assert first.shape == (2, 4, 3)
    assert first.dtype == torch.long
    assert torch.equal(first, sample_actions(log_probs, 4, generator=generator(5)))
    assert not torch.equal(first, sample_actions(log_probs, 4, generator=generator(6)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_words_are_drawn_with_their_probability(dtype):
    # Word counts of n draws have mean n p and variance n p (1 - p); two agents with different policies.
    num_samples = 40_000
    log_probs = torch.tensor([[[0.5, 0.25, 0.125, 0.125], [0.0625, 0.0625, 0.125, 0.75]]]).log().to(dtype)
    probs = log_probs.double().exp()
    probs = probs / probs.sum(-1, keepdim=True)
    actions = sample_actions(log_probs, num_samples, generator=generator(1))
    for n in range(2):
        counts = actions[0, :, n].bincount(minlength=4).double()
        z = (counts - num_samples * probs[0, n]) / (num_samples * probs[0, n] * (1 - probs[0, n])).sqrt()
        assert z.abs().max() < 4
    # A uniform policy, in contrast, is told apart.
    uniform = actions[0, :, 0].bincount(minlength=4).double() - num_samples / 4
    assert (uniform.abs() / (num_samples * 0.25 * 0.75) ** 0.5).max() > 4


def test_agents_and_samples_are_drawn_independently():
    # Of two fair agents, four joint words are equally likely; so are four pairs of consecutive samples.
    num_samples = 20_000
    log_probs = torch.full((1, 2, 2), 0.5).log()
    actions = sample_actions(log_probs, num_samples, generator=generator(2))[0]
    for pairs in (2 * actions[:, 0] + actions[:, 1], 2 * actions[::2, 0] + actions[1::2, 0]):
        z = (pairs.bincount(minlength=4) - len(pairs) / 4) / (len(pairs) * 0.25 * 0.75) ** 0.5
        assert z.abs().max() < 4


@pytest.mark.parametrize("last", [True, False])
def test_a_word_of_minus_infinity_is_never_drawn(last):
    # Thousands of words sum to 1 only up to rounding; the suppressed ones sit at the ends and between.
    logits = torch.randn(1, 4, 4_000, generator=generator(3))
    suppressed = torch.zeros(4_000, dtype=torch.bool)
    suppressed[::3] = True
    suppressed[-1] = last
    log_probs = logits.masked_fill(suppressed, -torch.inf).log_softmax(-1)
    actions = sample_actions(log_probs, 20_000, generator=generator(4))
    assert not suppressed[actions].any()


@pytest.mark.parametrize("uniform", [0.0, 1.0 - 2.0**-24])
def test_the_ends_of_the_uniform_numbers_fall_on_possible_words(uniform, monkeypatch):
    # The smallest and the largest number that rand() returns.
    monkeypatch.setattr(torch, "rand", lambda size, **options: torch.full(size, uniform))
    log_probs = torch.tensor([[[-torch.inf, 0.3, 0.7, -torch.inf]]])
    log_probs = torch.where(log_probs > 0, log_probs.log(), log_probs)
    assert sample_actions(log_probs, 1).item() == (1 if uniform == 0.0 else 2)


def test_the_largest_uniform_number_falls_on_a_possible_word_whatever_the_sum(monkeypatch):
    # Rounded probabilities sum to a little more or less than 1; the last word is impossible.
    monkeypatch.setattr(torch, "rand", lambda size, **options: torch.full(size, 1.0 - 2.0**-24))
    log_probs = torch.randn(50, 20, 31, generator=generator()).log_softmax(-1)
    log_probs = log_probs + 1e-3 * torch.randn(50, 20, 1, generator=generator(1))
    log_probs[..., -1] = -torch.inf
    assert (sample_actions(log_probs, 1) == 29).all()


def test_an_impossible_word_is_not_drawn_where_a_device_rounds_prefix_sums_apart(monkeypatch):
    # Prefix sums .5, .5, 1; a parallel scan may round the second up, and the threshold fall between the two.
    exact = torch.Tensor.cumsum_
    monkeypatch.setattr(
        torch.Tensor, "cumsum_", lambda self, dim: exact(self, dim).add_(torch.tensor([0.0, 2.0**-24, 0.0]))
    )
    monkeypatch.setattr(torch, "rand", lambda size, **options: torch.full(size, 0.5))
    log_probs = torch.tensor([[[0.5, 0.0, 0.5]]]).log()
    assert sample_actions(log_probs, 1).item() != 1


def test_the_only_possible_word_is_always_drawn():
    log_probs = torch.tensor([[[-torch.inf, 0.0, -torch.inf]]])
    assert (sample_actions(log_probs, 1_000, generator=generator()) == 1).all()


@pytest.mark.parametrize("value", [-torch.inf, float("nan")])
def test_rows_of_padding_get_some_word_and_leave_the_others_alone(value):
    log_probs = torch.full((1, 3, 4), value)
    log_probs[0, 0] = torch.tensor([1.0, 0.0, 0.0, 0.0]).log()
    actions = sample_actions(log_probs, 50, generator=generator())
    assert (actions[..., 0] == 0).all()
    assert ((actions >= 0) & (actions < 4)).all()


def test_no_gradient_flows_through_the_sample():
    log_probs = torch.randn(1, 2, 3).log_softmax(-1).requires_grad_()
    assert not sample_actions(log_probs, 2).requires_grad


def test_log_probs_are_left_as_they_are():
    log_probs = torch.randn(1, 2, 3, generator=generator()).log_softmax(-1)
    before = log_probs.clone()
    sample_actions(log_probs, 2)
    assert torch.equal(log_probs, before)


def test_one_tensor_of_the_vocabulary_is_made_however_many_samples_are_drawn():
    class CountLargeTensors(TorchDispatchMode):
        storages: set[int]

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.numel() >= 2 * 3 * 1_000:
                self.storages.add(out.untyped_storage().data_ptr())
                kept.append(out)
            return out

    kept = []
    log_probs = torch.randn(2, 3, 1_000, generator=generator()).log_softmax(-1)
    with CountLargeTensors() as counter:
        counter.storages = set()
        sample_actions(log_probs, 20, generator=generator())
    assert len(counter.storages - {log_probs.untyped_storage().data_ptr()}) == 1


def test_zero_samples_is_an_error():
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        sample_actions(torch.zeros(1, 1, 2), 0)


# ---- greedy_actions ----------------------------------------------------------------------------------------


def test_greedy_takes_each_agents_most_probable_word():
    log_probs = torch.tensor([[[0.1, 0.7, 0.2], [0.5, 0.2, 0.3]], [[0.2, 0.2, 0.6], [0.1, 0.8, 0.1]]]).log()
    assert greedy_actions(log_probs).tolist() == [[[1, 0]], [[2, 1]]]


# ---- write_out_edits ---------------------------------------------------------------------------------------


def edits(position, words, width, mask):
    """One input; the arguments are [S][M]."""
    return Edits(torch.tensor([position]), torch.tensor([words]), torch.tensor([width]), torch.tensor([mask]))


def test_one_word_is_replaced_and_the_others_stay():
    written = write_out_edits(
        torch.tensor([[[5, 6, 7]]]), edits([[0, 2]], [[[1, 99], [2, 99]]], [[1, 1]], [[True, True]])
    )
    assert written.tolist() == [[[[1, 6, 7], [5, 6, 2]]]]


def test_two_neighbouring_words_are_replaced():
    written = write_out_edits(
        torch.tensor([[[5, 6, 7]]]), edits([[0, 1]], [[[1, 2], [3, 4]]], [[2, 2]], [[True, True]])
    )
    assert written.tolist() == [[[[1, 2, 7], [5, 3, 4]]]]


def test_a_masked_edit_leaves_the_sentence_unchanged():
    written = write_out_edits(
        torch.tensor([[[5, 6, 7]]]), edits([[0, 1]], [[[1, 2], [3, 4]]], [[1, 2]], [[False, False]])
    )
    assert written.tolist() == [[[[5, 6, 7], [5, 6, 7]]]]


def test_other_stays_other():
    written = write_out_edits(
        torch.tensor([[[5, 6, 7]]]), edits([[1, 1]], [[[OTHER, 9], [OTHER, 8]]], [[1, 2]], [[True, True]])
    )
    assert written.tolist() == [[[[5, OTHER, 7], [5, OTHER, 8]]]]


def test_edits_belong_to_their_sample_and_auxiliary_rows_have_none():
    actions = torch.tensor([[[5, 6], [7, 8], [9, 9]]])
    written = write_out_edits(actions, edits([[0], [1]], [[[1, 0]], [[2, 0]]], [[1], [1]], [[True], [True]]))
    assert written.tolist() == [[[[1, 6]], [[7, 2]]]]


def test_words_after_an_eos_are_kept_so_that_replacing_the_eos_brings_them_back():
    written = write_out_edits(torch.tensor([[[5, 0, 7]]]), edits([[1]], [[[6, 0]]], [[1]], [[True]]))
    assert written.tolist() == [[[[5, 6, 7]]]]
