"""A recurrent cell over the decisions of a row, whose state is zero at the start of each episode."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

Cell = nn.GRUCell | nn.LSTMCell
CellKind = Literal["gru", "lstm"]


def make_cell(kind: CellKind, inputs: int, width: int) -> Cell:
    """Build a cell from ``inputs`` features to ``width``."""
    return nn.GRUCell(inputs, width) if kind == "gru" else nn.LSTMCell(inputs, width)


def state_numbers(cell: Cell) -> int:
    """Numbers S of one row's state: an LSTM has two of them, laid end to end."""
    return cell.hidden_size * (2 if isinstance(cell, nn.LSTMCell) else 1)


def advance(cell: Cell, features: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One step: features [N, F] and state [N, S] to the output [N, E] and the next state [N, S]."""
    if isinstance(cell, nn.LSTMCell):
        hidden, memory = cell(features, tuple(state.chunk(2, dim=1)))
        return hidden, torch.cat([hidden, memory], dim=1)
    hidden = cell(features, state)
    return hidden, hidden


def unroll(cell: Cell, features: Tensor, state: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Run features [B, T, F] from ``state`` [B, S]: outputs [B, T, E], and the states [B, T, S] after each of them.

    The state is zeroed where ``starts`` [B, T] marks the start of an episode.
    """
    outputs, states = [], []
    for position in range(features.shape[1]):
        state = state * (~starts[:, position])[:, None].to(state.dtype)
        output, state = advance(cell, features[:, position], state)
        outputs.append(output)
        states.append(state)
    return torch.stack(outputs, 1), torch.stack(states, 1)
