"""How a batch is cut never loses or repeats a row."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlinf.data.batch import Costs
from rlinf.data.shards import LossCounts
from rlinf.learners.partition import micro_batches, minibatches, shares
from rlinf.learners.step_plan import RowFacts, loss_counts

lengths = st.lists(st.integers(1, 50), min_size=1, max_size=40)


def costs_of(values: list[int], owners: int) -> Costs:
    count = len(values)
    return Costs(torch.tensor(values), shared=torch.full((count,), 7), owners=torch.arange(count) % owners)


@given(lengths, st.integers(1, 5), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_ranks_share_every_row_once(values: list[int], owners: int, size: int) -> None:
    rows = torch.randperm(len(values))
    parts = shares(rows, costs_of(values, owners), size=size)
    assert sorted(torch.cat(parts).tolist()) == sorted(rows.tolist())


@given(lengths, st.integers(1, 5), st.integers(1, 120))
@settings(max_examples=60, deadline=None)
def test_micro_batches_hold_every_row_once_within_the_budget(values: list[int], owners: int, budget: int) -> None:
    costs = costs_of(values, owners)
    pieces = micro_batches(torch.arange(len(values)), costs, budget=budget)
    assert sorted(torch.cat(pieces).tolist()) == list(range(len(values)))
    assert costs.owners is not None
    for piece in pieces:
        distinct = len(costs.owners[piece].unique())
        assert len(piece) == 1 or int(costs.lengths[piece].sum()) + 7 * distinct <= budget


def test_shares_are_about_equal_in_cost() -> None:
    values = torch.randint(1, 100, (200,), generator=torch.Generator().manual_seed(0))
    parts = shares(torch.arange(200), Costs(values), size=4)
    sums = [int(values[part].sum()) for part in parts]
    assert max(sums) - min(sums) <= 200


def test_a_permutation_is_fresh_for_each_epoch_and_the_same_for_the_same_seed() -> None:
    first = torch.cat(minibatches(10, parts=3, seed=1, step=2, epoch=0))
    assert torch.equal(first, torch.cat(minibatches(10, parts=3, seed=1, step=2, epoch=0)))
    assert not torch.equal(first, torch.cat(minibatches(10, parts=3, seed=1, step=2, epoch=1)))
    assert sorted(first.tolist()) == list(range(10))


@pytest.mark.parametrize("tokens", [[3, 3, 3, 3], [3, 1, 3, 0], [0, 0, 0, 0], []])
def test_the_denominators_of_a_step_are_those_of_its_rows(tokens: list[int]) -> None:
    lengths = torch.tensor(tokens, dtype=torch.int32)
    facts = RowFacts(Costs(lengths.clamp(min=1)), tokens=lengths, answered=lengths > 0, has_gradient=lengths > 0)
    for rows in (torch.arange(len(tokens)), torch.arange(len(tokens))[1:3]):
        assert loss_counts(facts, rows) == LossCounts.of(lengths[rows])
