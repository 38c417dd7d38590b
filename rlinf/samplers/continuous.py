"""Continuous batching with a transformers model: rows join and leave between any two tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlinf.models.distribution import draw
from rlinf.samplers.decoding import DecodeBatch, Row, require_finite_logits
from rlinf.samplers.slots import WIDTH, Shapes, SlotCache
from rlinf.samplers.streams import stream_key, uniforms
from rlinf.types import Completion, SamplingParams


class RunningRows(Protocol):
    """Rows that are decoded together, by turns or alone."""

    def __len__(self) -> int: ...

    def add(self, rows: Sequence[Row], version: int) -> None:
        """Rows that join before the next step."""

    def step(self, version: int) -> list[Completion]:
        """One more token for every row, with weights ``version``; the rows that are finished by it."""

    def remove(self, request_ids: Collection[int]) -> list[Completion]:
        """Takes the rows of these requests out as they are, with finish reason "abort"."""


@dataclass
class _Live:
    """A row in a slot."""

    row: Row
    key: int
    params: SamplingParams
    stop_ids: Collection[int]
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    seen: Tensor | None = None

    @property
    def context(self) -> tuple[int, ...]:
        return (*self.row.context, *self.tokens)

    @property
    def drawn(self) -> int:
        """Random numbers that the response has used, in its prefix too."""
        return len(self.row.request.prefix) + len(self.tokens)

    def completion(self, reason: str) -> Completion:
        return self.row.completion(self.tokens, self.logprobs, self.versions, reason)


class SlotRows:
    """Rows in the slots 0, 1, ... of one cache. A row's tokens do not depend on the others, to the last bit."""

    def __init__(
        self,
        model: PreTrainedModel,
        shapes: Shapes,
        *,
        stop_ids: Callable[[SamplingParams], Collection[int]],
        pad_token_id: int,
        seed: int,
    ) -> None:
        """``stop_ids`` says which tokens end a response that is sampled so."""
        self._model, self._shapes, self._stop_ids = model, shapes, stop_ids
        self._pad, self._seed = pad_token_id, seed
        self._cache = SlotCache(model)
        self._rows: list[_Live] = []
        self._logits = torch.empty(0)
        self._version: int | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @torch.inference_mode()
    def add(self, rows: Sequence[Row], version: int) -> None:
        """Rows that join before the next step; those with the same context are prefilled once."""
        self._renew(version)
        contexts: dict[tuple[int, ...], list[Row]] = {}
        for row in rows:
            contexts.setdefault(row.context, []).append(row)
        for context, same in contexts.items():
            first = len(self._rows)
            self._rows += [self._live(row) for row in same]
            self._enter(context, range(first, len(self._rows)))

    def _live(self, row: Row) -> _Live:
        key = stream_key(self._seed, row.request.key, row.sample_index)
        params = replace(row.request.params, max_new_tokens=0)
        return _Live(row, key, params, self._stop_ids(params))

    def _enter(self, context: Sequence[int], slots: Sequence[int]) -> None:
        """Prefills ``context`` for ``slots``."""
        logits = self._cache.prefill(context, slots)
        if len(self._logits) < self._cache.slots:
            grown = logits.new_zeros(self._cache.slots, len(logits))
            if len(self._logits):
                grown[: len(self._logits)] = self._logits
            self._logits = grown
        self._logits[list(slots)] = logits
        for slot in slots:
            live = self._rows[slot]
            if live.params.repetition_penalty != 1.0:
                live.seen = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
                live.seen[list(context)] = True

    def _renew(self, version: int) -> None:
        """New weights: keys and values made with the old ones are made again."""
        if self._version is not None and version != self._version:
            for slot, live in enumerate(self._rows):
                self._enter(live.context, [slot])
        self._version = version

    @torch.inference_mode()
    def step(self, version: int) -> list[Completion]:
        """One more token for every row, with weights ``version``; the rows that are finished by it."""
        self._renew(version)
        require_finite_logits(self._logits[: len(self._rows)], version)
        finished = []
        for slot, (token, logprob) in enumerate(zip(*self._draw(), strict=True)):
            live = self._rows[slot]
            live.tokens.append(token)
            live.logprobs.append(logprob)
            live.versions.append(version)
            if live.seen is not None:
                live.seen[token] = True
            if token in live.stop_ids or len(live.tokens) >= live.row.limit:
                finished.append(slot)
        done = self._leave(finished, lambda live: "stop" if live.tokens[-1] in live.stop_ids else "length")
        self._forward()
        return done

    def remove(self, request_ids: Collection[int]) -> list[Completion]:
        """Takes the rows of these requests out as they are, with finish reason "abort"."""
        slots = [slot for slot, live in enumerate(self._rows) if live.row.request.request_id in request_ids]
        return self._leave(slots, lambda live: "abort")

    def _draw(self) -> tuple[list[int], list[float]]:
        """The next token of every row and its log-probability.

        Always for :data:`~rlinf.samplers.slots.WIDTH` rows at once, so that sums over the vocabulary round alike.
        """
        tokens, logprobs = [0] * len(self._rows), [0.0] * len(self._rows)
        by_params: dict[SamplingParams, list[int]] = {}
        for slot, live in enumerate(self._rows):
            by_params.setdefault(live.params, []).append(slot)
        for params, slots in by_params.items():
            for first in range(0, len(slots), WIDTH):
                chosen = slots[first : first + WIDTH]
                lives = [self._rows[slot] for slot in chosen]
                keys = np.array([live.key for live in lives], dtype=np.uint64)
                numbers = uniforms(keys, np.array([live.drawn for live in lives], dtype=np.uint64), 1)[:, 0]
                padded = self._logits[[*chosen, *chosen[:1] * (WIDTH - len(chosen))]]
                random = torch.zeros(WIDTH, dtype=torch.float64)
                random[: len(chosen)] = torch.from_numpy(numbers)
                seen = None
                if params.repetition_penalty != 1.0:
                    masks = [live.seen for live in lives if live.seen is not None]
                    seen = torch.stack([*masks, *masks[:1] * (WIDTH - len(chosen))])
                drawn, scores = draw(padded, params, random.to(padded.device), seen=seen)
                for slot, token, logprob in zip(chosen, drawn.tolist(), scores.tolist(), strict=False):
                    tokens[slot], logprobs[slot] = token, logprob
        return tokens, logprobs

    def _forward(self) -> None:
        """Logits of the token after the newest one, of every row."""
        count = len(self._rows)
        if not count:
            return
        lengths = [len(live.row.context) + len(live.tokens) for live in self._rows]
        widths, columns = self._shapes.widths(count, max(lengths))
        self._cache.make_room(sum(widths), columns)
        first, device = 0, self._model.device
        for width in widths:
            lives, padding = self._rows[first : first + width], max(0, first + width - count)
            tokens = torch.tensor([live.tokens[-1] for live in lives] + [self._pad] * padding, device=device)
            positions = torch.tensor([length - 1 for length in lengths[first : first + width]] + [0] * padding)
            logits = self._cache.step(tokens, positions.to(device), first=first, columns=columns)
            self._logits[first : first + len(lives)] = logits[: len(lives)]
            first += width

    @torch.inference_mode()
    def _leave(self, slots: Sequence[int], reason: Callable[[_Live], str]) -> list[Completion]:
        """Takes rows out; the last rows move to their slots."""
        done = [self._rows[slot].completion(reason(self._rows[slot])) for slot in slots]
        for slot in sorted(slots, reverse=True):
            last = len(self._rows) - 1
            if slot != last:
                self._rows[slot] = self._rows[last]
                self._cache.move(last, slot)
                self._logits[slot] = self._logits[last]
            del self._rows[last]
        return done


class LoneRows:
    """Rows that are decoded one at a time: for models whose results depend on the rows beside them."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        stop_ids: Callable[[SamplingParams], Collection[int]],
        pad_token_id: int,
        seed: int,
    ) -> None:
        self._model, self._stop_ids, self._pad, self._seed = model, stop_ids, pad_token_id, seed
        self._rows: list[DecodeBatch] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Sequence[Row], version: int) -> None:
        """Rows that join before the next step."""
        for row in rows:
            params = replace(row.request.params, max_new_tokens=0)
            stop_ids = self._stop_ids(params)
            self._rows.append(
                DecodeBatch(self._model, [row], params, stop_ids=stop_ids, pad_token_id=self._pad, seed=self._seed)
            )

    def step(self, version: int) -> list[Completion]:
        """One more token for every row; the rows that are finished by it."""
        done = [completion for alone in self._rows for completion in alone.step(version)]
        self._rows = [alone for alone in self._rows if alone.rows]
        return done

    def remove(self, request_ids: Collection[int]) -> list[Completion]:
        """Takes the rows of these requests out as they are, with finish reason "abort"."""
        done = [completion for alone in self._rows for completion in alone.remove(request_ids)]
        self._rows = [alone for alone in self._rows if alone.rows]
        return done
