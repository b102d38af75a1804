"""Token-budget batches: the budget, the epoch, the ranks, and what a resumed epoch sees."""

import numpy as np
import pytest
import torch
from accelerate import skip_first_batches

from hf_cmal.training.batching import EpochDataLoader, TokenBudgetBatchSampler
from hf_cmal.training.xe_trainer import XeTrainer
from tests.training.tiny import captioner, make_rows, make_trainer, translator

BUDGET = 30
_random = np.random.default_rng(0)
SOURCES = _random.integers(1, 16, size=101).tolist()
TARGETS = _random.integers(1, 16, size=101).tolist()


def sampler(max_tokens: int = BUDGET, *, epoch: int = 0, **options: int) -> TokenBudgetBatchSampler:
    result = TokenBudgetBatchSampler(SOURCES, TARGETS, max_tokens=max_tokens, **options)
    result.set_epoch(epoch)
    return result


def padded_tokens(batch: list[int]) -> int:
    """Rows times the longest of either side."""
    return len(batch) * max(max(SOURCES[row], TARGETS[row]) for row in batch)


def test_no_batch_exceeds_the_budget_with_its_padding():
    sizes = [padded_tokens(batch) for batch in sampler()]
    assert max(sizes) <= BUDGET
    assert max(sizes) > 0.8 * BUDGET  # and the budget is used


def test_the_budget_holds_for_the_longer_of_the_two_sides():
    """Two rows of 1 + 6 and 6 + 1 tokens: 12 padded tokens on either side."""
    two = TokenBudgetBatchSampler([1, 6], [6, 1], max_tokens=12)
    assert [sorted(batch) for batch in two] == [[0, 1]]
    assert len(TokenBudgetBatchSampler([1, 6], [6, 1], max_tokens=11)) == 2


def test_rows_of_like_length_share_a_batch_so_that_little_is_padding():
    """Source and target of equal length: by length hardly a token is padding, by chance every third is."""
    by_length = TokenBudgetBatchSampler(SOURCES, SOURCES, max_tokens=100)
    by_chance = np.array_split(np.arange(len(SOURCES)), len(by_length))
    padded = [
        sum(len(batch) * max(SOURCES[row] for row in batch) for batch in batches)
        for batches in (by_length, by_chance)
    ]
    assert padded[0] < 1.15 * sum(SOURCES) < 1.5 * sum(SOURCES) < padded[1]


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_every_row_comes_exactly_once_in_an_epoch(epoch):
    assert sorted(row for batch in sampler(epoch=epoch) for row in batch) == list(range(101))


def test_the_same_epoch_has_the_same_batches_and_another_epoch_or_seed_has_others():
    first = list(sampler(seed=3, epoch=2))
    assert first == list(sampler(seed=3, epoch=2))
    assert first != list(sampler(seed=3, epoch=1))
    assert first != list(sampler(seed=4, epoch=2))


def test_rows_of_equal_lengths_meet_others_in_another_epoch():
    """Not only the order of the batches changes."""
    sets = [{frozenset(batch) for batch in sampler(epoch=epoch)} for epoch in (0, 1)]
    assert sets[0] != sets[1]


@pytest.mark.parametrize("num_replicas", [2, 3, 4])
def test_all_ranks_take_the_same_number_of_batches_and_together_all_rows(num_replicas):
    shares = [list(sampler(num_replicas=num_replicas, rank=rank)) for rank in range(num_replicas)]
    assert {len(share) for share in shares} == {len(sampler(num_replicas=num_replicas))}
    rows = [row for share in shares for batch in share for row in batch]
    assert set(rows) == set(range(101))
    # only the last round is filled up, with at most one batch for each missing rank
    assert sum(map(len, shares)) - len(sampler()) == -len(sampler()) % num_replicas


def test_more_ranks_than_batches_still_get_one_each():
    one_batch = [TokenBudgetBatchSampler([1], [1], max_tokens=9, num_replicas=3, rank=r) for r in range(3)]
    assert [list(batches) for batches in one_batch] == [[[0]]] * 3


def test_the_number_of_batches_is_that_of_every_epoch():
    assert {len(list(sampler(epoch=epoch))) for epoch in range(5)} == {len(sampler())}


def test_a_row_longer_than_the_budget_is_named():
    with pytest.raises(ValueError, match=r"row 1 has 8 tokens, more than max_tokens_per_batch=7"):
        TokenBudgetBatchSampler([3, 8, 2], [1, 1, 1], max_tokens=7)
    TokenBudgetBatchSampler([3, 8, 2], [1, 1, 1], max_tokens=8)


def test_an_empty_dataset_is_an_error():
    with pytest.raises(ValueError, match="empty"):
        TokenBudgetBatchSampler([], [], max_tokens=7)


@pytest.mark.parametrize("epoch", [0, 3])
def test_an_epoch_that_is_resumed_in_its_middle_sees_the_rest_of_that_epoch(epoch):
    """As the Trainer does it: accelerate skips the batches that were trained on, then the epoch is set."""
    rows = torch.arange(101)
    loader = EpochDataLoader(
        rows, batch_sampler=sampler(epoch=9), collate_fn=lambda batch: [int(i) for i in batch]
    )
    loader.set_epoch(epoch)
    whole = list(sampler(epoch=epoch))
    assert list(loader) == whole
    rest = skip_first_batches(loader, 5)
    rest.batch_sampler.batch_sampler.set_epoch(epoch)
    assert list(rest) == whole[5:]


@pytest.mark.parametrize("build", [translator, captioner])
def test_the_trainer_makes_batches_within_the_budget_of_tokens_and_of_feature_vectors(build, tmp_path):
    model = build()
    trainer = make_trainer(XeTrainer, model, make_rows(model, 20), tmp_path, max_tokens_per_batch=18)
    batches = list(trainer.get_train_dataloader())
    source = "features" if "features" in batches[0] else "input_ids"
    assert sum(len(batch["labels"]) for batch in batches) == 20
    for batch in batches:
        longest_label = int((batch["labels"] != -100).sum(-1).max())
        assert len(batch["labels"]) * max(batch[source].shape[1], longest_label) <= 18
