"""How a batch is cut: minibatches by permutation, shares by rank, micro-batches by tokens.

Every cut is a pure function of the batch and the seed; none of them changes the gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlinf.base.random_streams import torch_generator
from rlinf.data.batch import Costs


def minibatches(rows: int, *, parts: int, seed: int, step: int, epoch: int) -> list[Tensor]:
    """Draw a fresh permutation of ``rows`` for each epoch, in ``parts`` pieces whose sizes differ by one at most."""
    order = torch.randperm(rows, generator=torch_generator(seed, "minibatch", step, epoch))
    return list(order.tensor_split(parts))


def shares(rows: Tensor, costs: Costs, *, size: int) -> list[Tensor]:
    """Each rank's part of ``rows``: about equal cost, rows of one owner together if that keeps the balance."""
    if size == 1:
        return [rows]
    if not len(rows):
        return [rows] * size
    order = rows if costs.owners is None else rows[torch.argsort(costs.owners[rows], stable=True)]
    weight = costs.lengths[order].double().cumsum(0)
    middle = weight - costs.lengths[order].double() / 2
    rank_of = (middle * size / weight[-1].clamp(min=1.0)).long().clamp(max=size - 1)
    # Ranks ascend along the order: the middle of a row never lies before that of the row before it.
    return list(order.split(torch.bincount(rank_of, minlength=size).tolist()))


def micro_batches(rows: Tensor, costs: Costs, *, budget: int) -> list[Tensor]:
    """``rows`` in pieces of at most ``budget`` tokens (one row at least): owners together, then similar lengths."""
    if not len(rows):
        return []
    if costs.owners is None and costs.most <= budget:
        return [rows]  # no need to check single rows: all of the batch would fit
    lengths = costs.lengths[rows]
    if costs.owners is None and int(lengths.sum()) <= budget:
        return [rows]
    order = torch.argsort(lengths, stable=True)
    if costs.owners is not None:
        order = order[torch.argsort(costs.owners[rows][order], stable=True)]
    ordered = rows[order]
    numbers: list[int] = ordered.tolist()
    # Of each row: its own tokens, its owner, and the tokens shared with the owner's other rows.
    owners, common_tokens = numbers, [0] * len(numbers)
    if costs.owners is not None and costs.shared is not None:
        owners, common_tokens = costs.owners[ordered].tolist(), costs.shared[ordered].tolist()
    charges = zip(numbers, costs.lengths[ordered].tolist(), owners, common_tokens, strict=True)
    pieces: list[list[int]] = [[]]
    spent, seen = 0, set[int]()
    for row, own, owner, common in charges:
        price = own + (0 if owner in seen else common)
        if pieces[-1] and spent + price > budget:
            pieces.append([])
            spent, seen, price = 0, set(), own + common
        pieces[-1].append(row)
        seen.add(owner)
        spent += price
    return [torch.tensor(piece, dtype=torch.int64) for piece in pieces]
