"""Rows of different lengths that are computed side by side, each in a slot of its own, with results of their own.

A response must not depend on who shares its batch, to the last bit: conversations come and go when their environments
answer, which no seed decides. So every token, of a prompt or a response, is computed alike: as one row of a step, in
the column of its position, against the keys and values of its own slot. Steps have a number of rows that
:class:`Shapes` has found to round as every other one does.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rlinf.samplers.kv_cache import RowCache

WIDTH = 16
"""Rows of the narrowest step; the others are multiples."""
WIDTHS = (WIDTH, 2 * WIDTH, 4 * WIDTH)
_COLUMNS = 128
_TRIAL_SEED = 0

States = list[tuple[Tensor, Tensor]]
"""Keys and values [heads, length, head_dim] of each layer."""


class _Window:
    """The purpose of the running step."""

    slots: Tensor
    positions: Tensor
    columns = 0
    consecutive: slice | None = None
    """The slots, where they follow one another."""


class _Slots(DynamicLayer):
    """Keys and values [slots, heads, columns, head_dim] of one layer."""

    def __init__(self, window: _Window) -> None:
        super().__init__()
        self._window = window
        self.is_initialized = True
        self.slots = self.columns = 0
        self.states: tuple[Tensor, ...] = ()

    def reserve(self, slots: int, columns: int) -> None:
        """Makes room; what is there stays. The shapes are known from the first step on."""
        self.slots, self.columns = slots, columns
        grown = []
        for old in self.states:
            new = old.new_zeros(slots, old.shape[1], columns, old.shape[3])
            new[: old.shape[0], :, : old.shape[2]] = old
            grown.append(new)
        self.states = tuple(grown)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Writes the tokens of the step, then returns every row's columns (signature of transformers)."""
        window, given = self._window, (key_states, value_states)
        if not self.states:
            self.states = tuple(
                states.new_zeros(self.slots, states.shape[1], self.columns, states.shape[3]) for states in given
            )
        chosen = []
        for states, new in zip(self.states, given, strict=True):
            states[window.slots, :, window.positions] = new[:, :, 0]
            part = states[:, :, : window.columns]
            rows = part.index_select(0, window.slots) if window.consecutive is None else part[window.consecutive]
            chosen.append(rows)
        return chosen[0], chosen[1]


class SlotCache(RowCache):
    """The slots of all layers."""

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

    def make_room(self, slots: int, columns: int) -> None:
        """For this number of slots and columns; what is there stays."""
        if slots <= self.slots and columns <= self.columns:
            return
        self.slots = max(self.slots, -(-slots // WIDTH) * WIDTH)
        if columns > self.columns:
            self.columns = rounded(columns + columns // 4)
        for layer in self._slots:
            layer.reserve(self.slots, self.columns)

    def copy(self, source: int, target: int) -> None:
        """Slot ``target`` becomes a copy of ``source``."""
        for layer in self._slots:
            for states in layer.states:
                states[target] = states[source]

    def take(self, slot: int, length: int) -> States:
        """A copy of the first ``length`` columns of a slot."""
        taken = []
        for layer in self._slots:
            keys, values = (states[slot, :, :length].clone() for states in layer.states)
            taken.append((keys, values))
        return taken

    def put(self, slot: int, kept: States) -> None:
        """Puts the values that :meth:`take` gave at the beginning of a slot."""
        for layer, given in zip(self._slots, kept, strict=True):
            for states, new in zip(layer.states, given, strict=True):
                states[slot, :, : new.shape[1]] = new

    def step(self, tokens: Sequence[int], slots: Sequence[int], positions: Sequence[int], *, columns: int) -> Tensor:
        """Logits [w, V] after ``tokens`` [w], each at its position of its slot; of a slot in the order of positions."""
        window, device = self.window, self.model.device
        window.slots, at = torch.tensor(slots, device=device), torch.tensor(positions, device=device)
        window.positions, window.columns = at, columns
        consecutive = slots[-1] - slots[0] == len(slots) - 1 and list(slots) == sorted(set(slots))
        window.consecutive = slice(slots[0], slots[-1] + 1) if consecutive else None
        beyond = torch.arange(columns, device=device) > at[:, None]
        mask = torch.zeros(len(tokens), 1, 1, columns, dtype=self.model.dtype, device=device)
        mask.masked_fill_(beyond[:, None, None, :], self._least)
        extra = {"position_ids": at[:, None]} if self._takes_positions else {}
        output = self.model(
            input_ids=torch.tensor(tokens, device=device)[:, None],
            attention_mask=mask,
            past_key_values=self,
            use_cache=True,
            **extra,
            **self._extra,
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
            usable = [width for width in WIDTHS if width == WIDTH or self._agrees(width, wide)]
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
        count = WIDTH // 2
        generator = torch.Generator().manual_seed(_TRIAL_SEED)
        vocabulary = int(self._model.config.get_text_config().vocab_size)
        tokens = torch.randint(vocabulary, (count,), generator=generator).tolist()
        lengths = torch.randint(1, _COLUMNS // 2, (count,), generator=generator).tolist()
        order = [(place * 5 + place // count) % count for place in range(width)]
        cache = SlotCache(self._model)
        cache.make_room(width, columns)
        given, at = [tokens[row] for row in order], [lengths[row] for row in order]
        cache.step(given, range(width), at, columns=columns)  # makes the buffers
        like = cache.take(0, _COLUMNS // 2)
        for row in range(count):
            random = [
                (
                    torch.randn(keys.shape, generator=generator).to(keys),
                    torch.randn(values.shape, generator=generator).to(values),
                )
                for keys, values in like
            ]
            for place in (place for place, which in enumerate(order) if which == row):
                cache.put(place, random)
        forward = cache.step(given, range(width), at, columns=columns)
        back = range(width - 1, -1, -1)
        gathered = cache.step([given[i] for i in back], back, [at[i] for i in back], columns=columns).flip(0)
        if self._reference is None:
            self._reference = torch.stack([forward[order.index(row)] for row in range(count)])
        expected = self._reference[order]
        return torch.equal(forward, expected) and torch.equal(gathered, expected)
