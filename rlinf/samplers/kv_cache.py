"""Keys and values of the rows of a batch, kept in-place: no copy per token.

Rows leave without moving the others.

transformers' own dynamic cache concatenates, that is copies everything, for every token. Here every plain
attention layer owns a buffer that grows rarely and is written in-place. Layers of other kinds (sliding
windows, linear attention) keep transformers' implementation, so every architecture works.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import LongTensor, Tensor
from transformers import PretrainedConfig
from transformers.cache_utils import DynamicCache, DynamicLayer


class _BufferedLayer(DynamicLayer):
    """Keys and values [B, heads, length, head_dim] of one layer, as views of larger buffers."""

    def __init__(self) -> None:
        super().__init__()
        self._buffers: tuple[Tensor, Tensor] | None = None
        self._rows = 0
        self._length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Store rows and type, in the first :meth:`update`."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self._rows = key_states.shape[0]
        self._buffers = (_lengthened(key_states[:, :, :0], 0, 0), _lengthened(value_states[:, :, :0], 0, 0))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Extend the buffers by [B, heads, new, head_dim]; return all keys and values (signature of transformers)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self._buffers is not None
        end = self._length + key_states.shape[2]
        if end > self._buffers[0].shape[2]:
            # A quarter more than needed: few copies over a long response, little memory for a short one.
            capacity = end + max(64, end // 4)
            keys, values = (_lengthened(buffer[: self._rows], self._length, capacity) for buffer in self._buffers)
            self._buffers = (keys, values)
        keys, values = self._buffers
        keys[: self._rows, :, self._length : end] = key_states
        values[: self._rows, :, self._length : end] = value_states
        self._length = end
        return self._view()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Replace all rows by rows ``beam_idx`` int64 [B'] (rows may repeat: a prompt shared by its group)."""
        if self._buffers is None:
            return
        keys, values = (buffer.index_select(0, beam_idx) for buffer in self._buffers)
        self._buffers = (keys, values)
        self._rows = beam_idx.shape[0]
        self._view()

    def move_rows(self, targets: Tensor, sources: Tensor, rows: int) -> None:
        """Copy rows ``sources`` to ``targets`` (int64, equal lengths) and drop all but the first ``rows`` rows."""
        if self._buffers is None:
            return
        for buffer in self._buffers:
            # Only the used part moves; the buffers' tails hold nothing yet.
            used = buffer[:, :, : self._length]
            used.index_copy_(0, targets, used.index_select(0, sources))
        self._rows = rows
        self._view()

    def _view(self) -> tuple[Tensor, Tensor]:
        assert self._buffers is not None
        keys, values = (buffer[: self._rows, :, : self._length] for buffer in self._buffers)
        self.keys, self.values = keys, values
        return keys, values


class RowCache(DynamicCache):
    """A transformers cache whose rows can be repeated and removed."""

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config=config)
        self.layers = [_BufferedLayer() if type(layer) is DynamicLayer else layer for layer in self.layers]

    @property
    def plain(self) -> bool:
        """Whether every layer attends to every earlier token: then one mask serves them all."""
        return all(isinstance(layer, _BufferedLayer) for layer in self.layers)

    def select(self, index: Tensor) -> None:
        """Make the rows ``index`` int64 [B'] the batch."""
        for layer in self.layers:
            layer.reorder_cache(cast(LongTensor, index))

    def move_rows(self, targets: Tensor, sources: Tensor, rows: int) -> None:
        """Move rows ``sources`` to ``targets`` and keep the first ``rows``; this costs what the moved rows cost."""
        order: Tensor | None = None
        for layer in self.layers:
            if isinstance(layer, _BufferedLayer):
                layer.move_rows(targets, sources, rows)
                continue
            if order is None:
                order = torch.arange(rows, device=targets.device)
                order[targets] = sources
            layer.reorder_cache(cast(LongTensor, order))


def _lengthened(states: Tensor, length: int, capacity: int) -> Tensor:
    """Return a new buffer [B, heads, capacity, head_dim] that begins with ``states[:, :, :length]``."""
    rows, heads, _, width = states.shape
    buffer = states.new_empty(rows, heads, capacity, width)
    buffer[:, :, :length] = states[:, :, :length]
    return buffer
