"""Rows of different lengths that are computed side by side, each in a slot of its own, with results of their own.

A response must not depend on who shares its batch, to the last bit: conversations come and go when their environments
answer, which no seed decides. So every token, of a prompt or a response, is computed alike: as one row of a step, in
the column of its position, against the keys and values of its own slot. Steps have a number of rows, and attention a
number of columns, that :class:`Shapes` has found to round as every other one does.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicLayer

from rlinf.samplers.attention import NAME
from rlinf.samplers.kv_cache import RowCache
from rlinf.samplers.slot_attention import Segment, Window, over_slots

WIDTH = 16
"""Rows of the narrowest step; the others are multiples."""
WIDTHS = tuple(WIDTH * times for times in (1, 2, 3, 4, 5, 6, 8, 10, 12, 16))
_COLUMNS = 32
_TRIAL_SEED = 0

States = list[tuple[Tensor, Tensor]]
"""Keys and values [heads, length, head_dim] of each layer."""


class _Slots(DynamicLayer):
    """Keys and values [slots, heads, columns, head_dim] of one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.is_initialized = True
        self.window: Window | None = None
        self.slots = self.columns = 0
        self.states: tuple[Tensor, ...] = ()

    def reserve(self, slots: int, columns: int) -> None:
        """Make room; what is there stays. The shapes are fixed from the first step on."""
        self.slots, self.columns = slots, columns
        grown = []
        for old in self.states:
            new = old.new_zeros(slots, old.shape[1], columns, old.shape[3])
            new[: old.shape[0], :, : old.shape[2]] = old
            grown.append(new)
        self.states = tuple(grown)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the tokens of the step, [1, heads, w, head_dim], and return all slots (signature of transformers)."""
        window, new_states = self.window, (key_states, value_states)
        assert window is not None
        if not self.states:
            self.states = tuple(
                states.new_zeros(self.slots, states.shape[1], self.columns, states.shape[3]) for states in new_states
            )
        # The columns of all heads are rows of one table: written faster than by an index into three dimensions.
        _, heads, columns, _ = self.states[0].shape
        rows = window.table_rows(heads, columns)
        for states, new in zip(self.states, new_states, strict=True):
            of_tokens = new[0, :, : len(window.slots)].transpose(0, 1)
            states.view(-1, states.shape[3]).index_copy_(0, rows, of_tokens.reshape(len(rows), -1))
        return self.states[0], self.states[1]


class SlotCache(RowCache):
    """The slots of all layers."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__(model.config)
        self.model = model
        self._slots = [_Slots() for _ in self.layers]
        self.layers = list(self._slots)
        self.slots = self.columns = 0
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
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

    @torch.inference_mode()
    def clear(self) -> None:
        """As if nothing had been computed: the memory stays."""
        for layer in self._slots:
            for states in layer.states:
                states.zero_()

    def move(self, sources: Sequence[int], targets: Sequence[int], lengths: Sequence[int]) -> None:
        """Make slots ``targets`` copies of ``sources`` as these were, of each as many columns as ``lengths`` gives."""
        if not any(lengths):
            return
        for layer in self._slots:
            for states in layer.states:
                moved = [states[slot, :, :length].clone() for slot, length in zip(sources, lengths, strict=True)]
                for slot, new in zip(targets, moved, strict=True):
                    states[slot, :, : new.shape[1]] = new

    def take(self, slot: int, length: int) -> States:
        """Copy the first ``length`` columns of a slot."""
        taken = []
        for layer in self._slots:
            keys, values = (states[slot, :, :length].clone() for states in layer.states)
            taken.append((keys, values))
        return taken

    def put(self, slot: int, kept: States) -> None:
        """Write the values that :meth:`take` gave to the beginning of a slot."""
        for layer, layer_states in zip(self._slots, kept, strict=True):
            for states, new in zip(layer.states, layer_states, strict=True):
                states[slot, :, : new.shape[1]] = new

    def step(
        self,
        tokens: Sequence[int],
        slots: Sequence[int],
        positions: Sequence[int],
        segments: Sequence[Segment],
        *,
        width: int,
        kept: Sequence[int],
    ) -> Tensor:
        """Logits [k, V] after those of ``tokens`` [n] that ``kept`` [k] names, each at its position of its slot.

        The step has ``width`` rows; those beyond the tokens are computed for nothing.
        """
        device, idle = self.model.device, [0] * (width - len(tokens))
        at = torch.tensor([*positions, *idle], device=device)
        columns = max(segment.columns for segment in segments)
        used = at[: len(tokens)]
        beyond = torch.arange(columns, device=device) > used[:, None]
        mask = torch.zeros(len(tokens), 1, 1, columns, dtype=self.model.dtype, device=device)
        mask.masked_fill_(beyond[:, None, None, :], self._least)
        window = Window(torch.tensor(slots, device=device), used, mask, segments)
        chosen = torch.tensor(kept, device=device)
        for layer in self._slots:
            layer.window = window
        with over_slots(window):
            output = self.model(
                input_ids=torch.tensor([[*tokens, *idle]], device=device),
                attention_mask=mask,
                position_ids=at[None],
                past_key_values=self,
                use_cache=True,
                **({"logits_to_keep": chosen} if self._keeps else {}),
            )
        logits: Tensor = output.logits[0]
        return logits if self._keeps else logits[chosen]


def supports_slots(model: PreTrainedModel) -> bool:
    """Whether every layer attends to all earlier tokens, by an attention that works over slots."""
    named = "position_ids" in inspect.signature(model.forward).parameters
    return named and RowCache(model.config).plain and model.config._attn_implementation == NAME


def rounded(columns: int) -> int:
    """Columns that attention is computed over, masked ones included: 32, 64, 96, 128, 192, 256, 384 and so on."""
    unit = max(_COLUMNS, 1 << max(0, (columns - 1).bit_length() - 2))
    return -(-columns // unit) * unit


class Shapes:
    """Which sizes of a step round alike on this machine, for this model: each is tried before it is first used.

    Libraries choose the order of their sums by the shapes that they are given, never by what stands in them, so a
    size whose every row agrees on random numbers with the reference (the narrowest step, over all columns) always does.
    """

    def __init__(self, model: PreTrainedModel, *, max_model_len: int) -> None:
        self._model, self._most = model, rounded(max_model_len)
        self._widths: dict[int, bool] = {WIDTH: True}
        self._columns: dict[int, int] = {}
        self.invariant = supports_slots(model) and self._try(WIDTH, self._most)
        """Whether rows can share steps at all; otherwise each is decoded alone."""
        # Keys and values are shared by few rows on a GPU, where calls cost more than columns.
        self._by_length = model.device.type == "cpu"

    def widths(self, rows: int) -> list[int]:
        """Return the widths of the steps that ``rows`` rows are computed in."""
        chosen: list[int] = []
        while rows > 0:
            width = next((width for width in WIDTHS if width >= rows and self._agrees(width)), None) or self.widest
            chosen.append(width)
            rows -= width
        return chosen

    @property
    def widest(self) -> int:
        """The most rows of a step."""
        return next(width for width in reversed(WIDTHS) if self._agrees(width))

    def columns(self, needed: int) -> int:
        """Return the columns that a row of ``needed`` tokens attends over."""
        if needed not in self._columns:
            wide = rounded(needed) if self._by_length else self._most
            while wide < self._most and not self._try(WIDTH, wide):
                wide = rounded(wide + 1)
            self._columns |= dict.fromkeys(range(needed, wide + 1), wide)
        return self._columns[needed]

    def _agrees(self, width: int) -> bool:
        if width not in self._widths:
            self._widths[width] = self._try(width, _COLUMNS, reference=_COLUMNS)
        return self._widths[width]

    @torch.inference_mode()
    def _try(self, width: int, columns: int, *, reference: int | None = None) -> bool:
        """Try a step of random rows, each several times, in one segment of ``columns``, against the narrowest step.

        There each attends alone, over ``reference`` columns (all), and stands in another slot.
        """
        count, most = WIDTH // 2, reference or self._most
        generator = torch.Generator().manual_seed(_TRIAL_SEED)
        vocabulary = int(self._model.config.get_text_config().vocab_size)
        tokens = torch.randint(vocabulary, (count,), generator=generator).tolist()
        lengths = torch.randint(1, columns, (count,), generator=generator).tolist()
        order = [(index * 5 + index // count) % count for index in range(width)]
        cache = SlotCache(self._model)
        cache.make_room(width, most)

        def step(indices: Sequence[int], segments: Sequence[Segment]) -> Tensor:
            inputs, at = [tokens[order[index]] for index in indices], [lengths[order[index]] for index in indices]
            return cache.step(inputs, indices, at, segments, width=len(indices), kept=range(len(indices)))

        back = range(WIDTH - 1, -1, -1)
        alone = [Segment(slice(i, i + 1), slice(index, index + 1), most) for i, index in enumerate(back)]
        step(back, alone)  # makes the buffers
        like = cache.take(0, max(lengths))
        for row in range(count):
            random = [
                (
                    torch.randn(keys.shape, generator=generator).to(keys),
                    torch.randn(values.shape, generator=generator).to(values),
                )
                for keys, values in like
            ]
            for index in (index for index, which in enumerate(order) if which == row):
                cache.put(index, random)
        together = step(range(width), [Segment(slice(0, width), slice(0, width), columns)])
        expected = step(back, alone).flip(0)
        return torch.equal(together, expected[[order.index(row) for row in order]])
