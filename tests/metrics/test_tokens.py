import pytest
import torch

from hf_cmal.metrics import length_accuracy, repetition_rate
from hf_cmal.models.nag.sequences_nag import remove_consecutive_duplicates


def test_repetition_rate_is_repeats_over_tokens():
    # "5 5 6" and "7 7 7 8" (the last 8 is padding): 1 and 2 repeats in 3 + 4 tokens.
    tokens = torch.tensor([[5, 5, 6, 9, 9], [7, 7, 7, 8, 8]])
    mask = torch.tensor([[True, True, True, False, False], [True, True, True, True, False]])
    assert repetition_rate(tokens, mask) == pytest.approx(3 / 7)
    assert repetition_rate(tokens, torch.ones_like(mask)) == pytest.approx(5 / 10)


def test_repeats_of_a_word_that_are_not_neighbours_do_not_count():
    assert repetition_rate(torch.tensor([[5, 6, 5, 6]]), torch.ones(1, 4, dtype=torch.bool)) == 0.0
    assert repetition_rate(torch.tensor([[5, 5], [5, 5]]), torch.ones(2, 2, dtype=torch.bool)) == 0.5


def test_repetition_rate_is_what_the_decoding_switch_removes():
    tokens = torch.randint(0, 3, (20, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.arange(9) < torch.randint(1, 10, (20, 1), generator=torch.Generator().manual_seed(1))
    _, kept = remove_consecutive_duplicates(tokens, mask, pad_token_id=9)
    assert repetition_rate(tokens, mask) == pytest.approx(1 - kept.sum().item() / mask.sum().item())
    assert repetition_rate(tokens, mask) > 0.2


def test_repetition_rate_of_nothing_is_zero_and_shapes_must_agree():
    assert repetition_rate(torch.ones(2, 3), torch.zeros(2, 3, dtype=torch.bool)) == 0.0
    with pytest.raises(ValueError, match="same shape"):
        repetition_rate(torch.ones(2, 3), torch.ones(2, 4, dtype=torch.bool))


def test_length_accuracy_is_the_share_of_exact_lengths():
    # One too short, one too long.
    assert length_accuracy(torch.tensor([3, 4, 5, 8]), torch.tensor([3, 5, 5, 7])) == 0.5
    assert length_accuracy(torch.tensor([], dtype=torch.long), torch.tensor([], dtype=torch.long)) == 0.0
    with pytest.raises(ValueError, match="per sentence"):
        length_accuracy(torch.tensor([3, 4]), torch.tensor([3]))
