"""Attention of single tokens, each over the keys and values of its own slot, if row lengths differ greatly.

A step computes one token for many rows, or many tokens of one context. Rows that stand side by side and are
of similar length share a call over as many columns as the longest of them needs. So what is read is what the
rows are, not the longest one times their number. The tokens of one context share its slot without a copy.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Segment:
    """Tokens of a step that attend to the same columns."""

    tokens: slice
    slots: slice
    """As many as tokens, or one for them all."""
    columns: int


@dataclass(frozen=True)
class Window:
    """The tokens of a step, and what each may attend to."""

    slots: Tensor
    """Of each token, int64 [n]."""
    positions: Tensor
    mask: Tensor
    """What each may attend to, additive, [n, 1, 1, columns]."""
    segments: Sequence[Segment]
    """Of all tokens, in their order."""
    _table_rows: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    @functools.cached_property
    def masks(self) -> list[Tensor]:
        """Of each segment."""
        return [self.mask[segment.tokens, ..., : segment.columns] for segment in self.segments]

    def table_rows(self, heads: int, columns: int) -> Tensor:
        """Return the rows of tokens' keys, [n x heads], in a table [slots x heads x columns]: alike in every layer."""
        shape = heads, columns
        if shape not in self._table_rows:
            head = torch.arange(heads, device=self.slots.device)
            of_heads = (self.slots[:, None] * heads + head) * columns
            self._table_rows[shape] = (of_heads + self.positions[:, None]).flatten()
        return self._table_rows[shape]


_running: ContextVar[Window | None] = ContextVar("window", default=None)


@contextmanager
def over_slots(window: Window) -> Iterator[None]:
    """Attention inside is that of ``window``."""
    token = _running.set(window)
    try:
        yield
    finally:
        _running.reset(token)


def running_window() -> Window | None:
    """Return the window of the step that is being computed."""
    return _running.get()


def slot_attention(window: Window, query: Tensor, keys: Tensor, values: Tensor, scaling: float | None) -> Tensor:
    """Output [1, w, heads, head_dim] of the queries [1, heads, w, head_dim] of a step; of unused ones it is 0.

    ``keys`` and ``values`` are [slots, kv_heads, columns, head_dim].
    """
    _, heads, width, size = query.shape
    kv_heads = keys.shape[1]
    # The heads that share keys take the axis of the query positions: the same arithmetic, no copy of the keys.
    grouped = query[0].transpose(0, 1).reshape(width, kv_heads, heads // kv_heads, size)
    outputs = []
    for segment, mask in zip(window.segments, window.masks, strict=True):
        count = segment.tokens.stop - segment.tokens.start
        own_keys, own_values = keys[segment.slots, :, : segment.columns], values[segment.slots, :, : segment.columns]
        if count != len(own_keys):
            own_keys, own_values = own_keys.expand(count, -1, -1, -1), own_values.expand(count, -1, -1, -1)
        outputs.append(
            torch.nn.functional.scaled_dot_product_attention(
                grouped[segment.tokens], own_keys, own_values, attn_mask=mask, scale=scaling
            )
        )
    unused = width - len(window.slots)
    if unused:
        outputs.append(grouped.new_zeros(unused, *grouped.shape[1:3], values.shape[-1]))
    return torch.cat(outputs).reshape(1, width, heads, values.shape[-1])


def within(segments: Sequence[Segment], first: int, last: int) -> list[Segment]:
    """Select the segments of the tokens ``first`` to ``last`` (not included), which are counted from 0 then."""
    results = []
    for segment in segments:
        start, stop = max(segment.tokens.start, first), min(segment.tokens.stop, last)
        if start >= stop:
            continue
        slots = segment.slots
        if slots.stop - slots.start > 1:
            moved = slots.start - segment.tokens.start
            slots = slice(start + moved, stop + moved)
        results.append(Segment(slice(start - first, stop - first), slots, segment.columns))
    return results
