"""Rows of different lengths that are decoded side by side, each in a slot of its own, with results of their own.

A response must not depend on who shares its batch, to the last bit: conversations come and go when their environments
answer, which no seed decides. So a prompt is always prefilled alone, token i of a row is always in column i of its
slot, and a step is computed for a number of rows that :class:`Shapes` has found to round as every other one does.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rlinf.samplers.kv_cache import RowCache

WIDTH = 16
"""Rows of the narrowest step; the others are multiples."""
_WIDTHS = (WIDTH, 2 * WIDTH, 4 * WIDTH)
_COLUMNS = 128
_PROBE_SEED = 0


class _Slots(DynamicLayer):
    """Keys and values [slots, heads, columns, head_dim] of one layer."""

    def __init__(self, window: _Window) -> None:
        super().__init__()
        self._window = window
        self.is_initialized = True
        self._states: tuple[Tensor, ...] = ()

    def fill(self, slots: Sequence[int], prefilled: tuple[Tensor, ...]) -> None:
        """Writes keys and values [1, heads, length, head_dim] of a prefill into ``slots``, which exist already."""
        for states, new in zip(self._states, prefilled, strict=True):
            states[list(slots), :, : new.shape[2]] = new

    def reserve(self, slots: int, columns: int, like: tuple[Tensor, ...] = ()) -> None:
        """Makes room, first for states of the shapes of ``like``; what is there stays."""
        grown = []
        for place, states in enumerate(self._states or like):
            new = states.new_zeros(slots, states.shape[1], columns, states.shape[3])
            if self._states:
                old = self._states[place]
                new[: old.shape[0], :, : old.shape[2]] = old
            grown.append(new)
        self._states = tuple(grown)

    def move(self, source: int, target: int) -> None:
        for states in self._states:
            states[target] = states[source]

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Writes one token of each row of the window; returns the window's columns (signature of transformers)."""
        window = self._window
        keys, values = self._states
        keys[window.rows, :, window.positions] = key_states[:, :, 0]
        values[window.rows, :, window.positions] = value_states[:, :, 0]
        part = slice(window.first, window.first + len(window.rows))
        return keys[part, :, : window.columns], values[part, :, : window.columns]


class _Window:
    """The slots that the running step is for."""

    first, columns = 0, 0
    rows: Tensor
    positions: Tensor


class SlotCache(RowCache):
    """The slots of all layers; empty until the first prefill."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model.config)
        self.model, self.window = model, _Window()
        self._slots = [_Slots(self.window) for _ in self.layers]
        self.layers = list(self._slots)
        self.slots = self.columns = 0
        accepted = inspect.signature(model.forward).parameters
        self._extra: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._takes_positions = "position_ids" in accepted
        self._least = torch.finfo(model.dtype).min

    def prefill(self, context: Sequence[int], slots: Sequence[int]) -> Tensor:
        """Computes ``context`` alone and puts it into ``slots``; logits [V] of the token after it."""
        states, logits = self.prefilled(context)
        self.fill(states, slots)
        return logits

    def prefilled(self, context: Sequence[int]) -> tuple[list[tuple[Tensor, ...]], Tensor]:
        """Keys and values [1, heads, length, head_dim] of each layer after ``context``, and logits [V]."""
        ids = torch.tensor([list(context)], dtype=torch.int64, device=self.model.device)
        alone = RowCache(self.model.config)
        output = self.model(input_ids=ids, past_key_values=alone, use_cache=True, **self._extra)
        states: list[tuple[Tensor, ...]] = [(layer.keys, layer.values) for layer in cast(Any, alone.layers)]
        return states, output.logits[0, -1]

    def fill(self, states: Sequence[tuple[Tensor, ...]], slots: Sequence[int]) -> None:
        """Puts what :meth:`prefilled` gave into ``slots``."""
        self.make_room(max(slots) + 1, states[0][0].shape[2] + 1, states)
        for layer, own in zip(self._slots, states, strict=True):
            layer.fill(slots, own)

    def make_room(self, slots: int, columns: int, like: Sequence[tuple[Tensor, ...]] | None = None) -> None:
        """For this number of slots and columns; the first time ``like`` gives the shapes of a slot's states."""
        if slots <= self.slots and columns <= self.columns:
            return
        self.slots = max(self.slots, -(-slots // WIDTH) * WIDTH)
        if columns > self.columns:
            self.columns = rounded(columns + columns // 4)
        for layer, states in zip(self._slots, like or [()] * len(self._slots), strict=True):
            layer.reserve(self.slots, self.columns, states)

    def move(self, source: int, target: int) -> None:
        """Slot ``target`` becomes a copy of ``source``."""
        for layer in self._slots:
            layer.move(source, target)

    def step(self, tokens: Tensor, positions: Tensor, *, first: int, columns: int) -> Tensor:
        """Logits [w, V] after one more token [w] at ``positions`` [w] of the slots from ``first`` on."""
        window, width = self.window, len(tokens)
        window.first, window.columns, window.positions = first, columns, positions
        window.rows = torch.arange(first, first + width, device=tokens.device)
        beyond = torch.arange(columns, device=tokens.device) > positions[:, None]
        mask = torch.zeros(width, 1, 1, columns, dtype=self.model.dtype, device=tokens.device)
        mask.masked_fill_(beyond[:, None, None, :], self._least)
        extra = {"position_ids": positions[:, None]} if self._takes_positions else {}
        output = self.model(
            input_ids=tokens[:, None], attention_mask=mask, past_key_values=self, use_cache=True, **extra, **self._extra
        )
        logits: Tensor = output.logits[:, -1]
        return logits


def supports_slots(model: PreTrainedModel) -> bool:
    """Whether every layer attends to all earlier tokens, by an attention that takes the slots' masks."""
    return RowCache(model.config).plain and str(model.config._attn_implementation).endswith("sdpa")


def rounded(columns: int) -> int:
    """Columns that steps are computed over: masked ones change no result."""
    return -(-columns // _COLUMNS) * _COLUMNS


class Shapes:
    """Which sizes of a step round alike on this machine, for this model: each is tried before it is first used.

    Libraries choose the order of their sums by the shapes that they are given, never by what stands in them, so a
    size whose every row agrees on random numbers with the reference (the narrowest step, over all columns) always does.
    """

    def __init__(self, model: PreTrainedModel, *, max_model_len: int) -> None:
        self._model, self._most = model, rounded(max_model_len)
        self._agree: dict[tuple[int, int], bool] = {}
        self._rows: list[tuple[list[tuple[Tensor, ...]], int, int]] = []
        """Of the trials: prefilled states, their length and the next token."""
        self._reference: Tensor | None = None
        self.invariant = supports_slots(model) and self._try(WIDTH, self._most)
        """Whether rows can share steps at all; otherwise each is decoded alone."""

    def widths(self, rows: int, columns: int) -> tuple[list[int], int]:
        """The widths of the steps that ``rows`` rows are computed in, and the columns of all of them."""
        wide = rounded(columns)
        while wide < self._most and not self._agrees(WIDTH, wide):
            wide += _COLUMNS
        chosen: list[int] = []
        while rows > 0:
            usable = [width for width in _WIDTHS if width == WIDTH or self._agrees(width, wide)]
            width = next((width for width in usable if width >= rows), usable[-1])
            chosen.append(width)
            rows -= width
        return chosen, wide

    def _agrees(self, width: int, columns: int) -> bool:
        size = (width, columns)
        if size not in self._agree:
            self._agree[size] = self._try(width, columns)
        return self._agree[size]

    @torch.inference_mode()
    def _try(self, width: int, columns: int) -> bool:
        """A step of random rows, each several times and in changing places, against the reference."""
        device, cache, count = self._model.device, SlotCache(self._model), WIDTH // 2
        if not self._rows:
            generator = torch.Generator().manual_seed(_PROBE_SEED)
            vocabulary = int(self._model.config.get_text_config().vocab_size)
            for length in torch.randint(1, _COLUMNS // 2, (count,), generator=generator).tolist():
                *context, last = torch.randint(vocabulary, (length + 1,), generator=generator).tolist()
                self._rows.append((cache.prefilled(context)[0], length, last))
        order = [(place * 5 + place // count) % count for place in range(width)]
        for row, (states, _, _) in enumerate(self._rows):
            cache.fill(states, [place for place, which in enumerate(order) if which == row])
        cache.make_room(width, columns)
        tokens = torch.tensor([self._rows[row][2] for row in order], device=device)
        positions = torch.tensor([self._rows[row][1] for row in order], device=device)
        logits = cache.step(tokens, positions, first=0, columns=columns)
        if self._reference is None:
            self._reference = torch.stack([logits[order.index(row)] for row in range(count)])
        return all(torch.equal(logits[place], self._reference[row]) for place, row in enumerate(order))
