"""sequences_nag: masks and edits of token sequences, against values worked out by hand."""

import doctest

import pytest
import torch

from hf_cmal.models.nag import sequences_nag
from hf_cmal.models.nag.sequences_nag import (
    alive_mask,
    left_pack,
    length_mask,
    remove_consecutive_duplicates,
    repeats_mask,
)

EOS, PAD = 0, 9


def agents(*rows: str) -> torch.Tensor:
    """ "110" is a row of two agents and one padding."""
    return torch.tensor([[character == "1" for character in row] for row in rows])


def test_length_mask_is_true_at_the_first_positions_of_each_row() -> None:
    assert torch.equal(length_mask(torch.tensor([3, 1, 0]), 4), agents("1110", "1000", "0000"))


def test_alive_goes_up_to_and_with_the_first_eos() -> None:
    # row 0: eos at 1 and again at 3; row 1: eos at once; row 2: no eos at all
    tokens = torch.tensor([[5, EOS, 6, EOS], [EOS, 5, 6, 7], [5, 6, 7, 8]])
    expected = agents("1100", "1000", "1111")
    assert torch.equal(alive_mask(tokens, agents("1111", "1111", "1111"), EOS), expected)


def test_alive_never_reaches_padding() -> None:
    # the second row's eos lies in its padding, where there is no agent to say it
    tokens = torch.tensor([[5, 6, EOS, 7], [5, 6, EOS, EOS]])
    assert torch.equal(alive_mask(tokens, agents("1111", "1100"), EOS), agents("1110", "1100"))


def test_without_an_eos_every_agent_is_alive() -> None:
    tokens = torch.tensor([[5, EOS, 6], [EOS, EOS, 7]])
    mask = agents("111", "110")
    assert torch.equal(alive_mask(tokens, mask, None), mask)
    assert not torch.equal(alive_mask(tokens, mask, EOS), mask)


def test_alive_mask_broadcasts_agents_over_samples() -> None:
    tokens = torch.tensor([[[5, EOS, 6], [5, 6, 7]]])  # [B=1, S=2, N=3]
    alive = alive_mask(tokens, agents("110").unsqueeze(1), EOS)
    assert torch.equal(alive, torch.stack([agents("110")[0], agents("110")[0]]).unsqueeze(0))


def test_alive_mask_returns_a_tensor_of_its_own() -> None:
    mask = agents("110")
    alive_mask(torch.tensor([[5, 6, 7]]), mask, None).fill_(False)
    assert torch.equal(mask, agents("110"))


def test_repeats_are_all_but_the_first_of_each_run() -> None:
    tokens = torch.tensor([[4, 4, 4, 5, 4, 4]])
    assert torch.equal(repeats_mask(tokens, agents("111111")), agents("011001"))


def test_padding_does_not_repeat() -> None:
    tokens = torch.tensor([[4, 4, 4, 4], [4, 9, 9, 9]])
    assert torch.equal(repeats_mask(tokens, agents("1100", "1000")), agents("0100", "0000"))


def test_left_pack_keeps_the_order() -> None:
    values = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    assert left_pack(values, agents("0101"), fill=0.0).tolist() == [[2.0, 4.0, 0.0, 0.0]]


def test_one_of_each_run_of_duplicates_is_kept() -> None:
    # "the the cat the sat sat sat" -> "the cat the sat"
    tokens = torch.tensor([[1, 1, 2, 1, 3, 3, 3]])
    packed, mask = remove_consecutive_duplicates(tokens, agents("1111111"), pad_token_id=PAD)
    assert packed.tolist() == [[1, 2, 1, 3, PAD, PAD, PAD]]
    assert torch.equal(mask, agents("1111000"))


def test_duplicates_are_removed_within_each_row_alone() -> None:
    tokens = torch.tensor([[1, 2, 2], [2, 3, 3]])
    packed, mask = remove_consecutive_duplicates(tokens, agents("111", "111"), pad_token_id=PAD)
    assert packed.tolist() == [[1, 2, PAD], [2, 3, PAD]]
    assert torch.equal(mask, agents("110", "110"))


def test_padding_is_never_a_duplicate_of_a_word() -> None:
    # the last word equals the pad id, and what lies in the padding equals the last word
    tokens = torch.tensor([[1, PAD, PAD, PAD], [1, 2, 2, 2]])
    packed, mask = remove_consecutive_duplicates(tokens, agents("1100", "1100"), pad_token_id=PAD)
    assert packed.tolist() == [[1, PAD, PAD, PAD], [1, 2, PAD, PAD]]
    assert torch.equal(mask, agents("1100", "1100"))


@pytest.mark.parametrize("width", [0, 1])
def test_rows_too_short_to_repeat_stay_as_they_are(width: int) -> None:
    tokens = torch.full((2, width), 5)
    packed, mask = remove_consecutive_duplicates(
        tokens, torch.ones(2, width, dtype=torch.bool), pad_token_id=PAD
    )
    assert torch.equal(packed, tokens)
    assert mask.all()


def test_the_examples_in_the_docstrings_run() -> None:
    result = doctest.testmod(sequences_nag)
    assert result.attempted > 0
    assert result.failed == 0
