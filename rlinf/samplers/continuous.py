"""Continuous batching with a transformers model: rows join and leave between any two tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlinf.models.distribution import ROWS_OF_VOCABULARY, draw
from rlinf.samplers.decoding import DecodeBatch, Row, require_finite_logits
from rlinf.samplers.slots import WIDTH, WIDTHS, Shapes, SlotCache, States
from rlinf.samplers.streams import stream_key, uniforms
from rlinf.types import Completion, SamplingParams

_KEPT_BYTES = 1 << 30
"""Of keys and values that wait for the next turn of their conversation."""


class RunningRows(Protocol):
    """Rows that are decoded together, by turns or alone."""

    def __len__(self) -> int: ...

    def add(self, rows: Sequence[Row], version: int) -> None:
        """Rows that join before the next step."""

    def step(self, version: int) -> list[Completion]:
        """One more token for every row, with weights ``version``; the rows that are finished by it."""

    def remove(self, request_ids: Collection[int]) -> list[Completion]:
        """Takes the rows of these requests out as they are, with finish reason "abort"."""


@dataclass(eq=False)
class _Live:
    """A row in a slot."""

    row: Row
    key: int
    params: SamplingParams
    stop_ids: Collection[int]
    ids: list[int]
    """Its context and the tokens so far."""
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    fed: int = 0
    """How many of ``ids`` have their keys and values in the slot."""
    kept: int = 0
    """How many of them the turn before had left."""
    leader: _Live | None = None
    """A row of the same context, which computes it for both."""
    seen: Tensor | None = None

    @property
    def tokens(self) -> list[int]:
        return self.ids[len(self.row.context) :]

    @property
    def conversation(self) -> tuple[int, int] | None:
        """Whose next turn begins with these tokens."""
        group = self.row.request.group
        return None if group is None else (group, self.row.sample_index)

    def completion(self, reason: str) -> Completion:
        return self.row.completion(self.tokens, self.logprobs, self.versions, reason, self.kept)


class SlotRows:
    """Rows in the slots 0, 1, ... of one cache. A row's tokens do not depend on the others, to the last bit.

    Contexts are computed in the same steps as responses. What a conversation has said is kept for its next turn, as far
    as :data:`_KEPT_BYTES` allows: to compute it again gives the same bits.
    """

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
        self._kept: OrderedDict[tuple[int, int], tuple[list[int], States]] = OrderedDict()
        self._kept_bytes = 0
        self._version: int | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @torch.inference_mode()
    def add(self, rows: Sequence[Row], version: int) -> None:
        """Rows that join with the next step; the context of several is computed once."""
        self._renew(version)
        leaders = {live.row.context: live for live in self._rows if live.leader is None and not live.versions}
        for row in rows:
            params = replace(row.request.params, max_new_tokens=0)
            key = stream_key(self._seed, row.request.key, row.sample_index)
            live = _Live(row, key, params, self._stop_ids(params), list(row.context))
            if params.repetition_penalty != 1.0:
                live.seen = torch.zeros(self._vocabulary, dtype=torch.bool, device=self._model.device)
                live.seen[live.ids] = True
            self._rows.append(live)
            self._reuse(live)
            if not live.fed:
                live.leader = leaders.get(row.context)
                leaders.setdefault(row.context, live)

    @property
    def _vocabulary(self) -> int:
        return int(self._model.config.get_text_config().vocab_size)

    def _reuse(self, live: _Live) -> None:
        """Takes over what the turn before left in the cache."""
        kept = self._kept.pop(live.conversation, None) if live.conversation is not None else None
        if kept is None:
            return
        ids, states = kept
        self._kept_bytes -= _bytes(states)
        if live.ids[: len(ids)] == ids and len(ids) < len(live.ids):
            self._cache.make_room(len(self._rows), len(live.ids))
            self._cache.put(len(self._rows) - 1, states)
            live.fed = live.kept = len(ids)

    def _keep(self, live: _Live, slot: int) -> None:
        if live.conversation is None or not live.fed:
            return
        states = self._cache.take(slot, live.fed)
        self._kept[live.conversation] = (live.ids[: live.fed], states)
        self._kept_bytes += _bytes(states)
        while self._kept_bytes > _KEPT_BYTES:
            self._kept_bytes -= _bytes(self._kept.popitem(last=False)[1][1])

    def _renew(self, version: int) -> None:
        """New weights: keys and values made with the old ones are made again."""
        if self._version is not None and version != self._version:
            self._kept.clear()
            self._kept_bytes = 0
            for live in self._rows:
                live.fed, live.leader = 0, None
        self._version = version

    @torch.inference_mode()
    def step(self, version: int) -> list[Completion]:
        """One step of the model: a token of each row that speaks, and contexts of others as far as there is room;
        the rows that are finished by it."""
        self._renew(version)
        speaking, logits = self._forward()
        require_finite_logits(logits, version)
        finished = []
        for slot, token, logprob in zip(speaking, *self._draw(speaking, logits), strict=True):
            live = self._rows[slot]
            live.ids.append(token)
            live.logprobs.append(logprob)
            live.versions.append(version)
            if live.seen is not None:
                live.seen[token] = True
            if token in live.stop_ids or len(live.versions) >= live.row.limit:
                finished.append(slot)
        return self._leave(finished, lambda live: "stop" if live.ids[-1] in live.stop_ids else "length")

    @torch.inference_mode()
    def remove(self, request_ids: Collection[int]) -> list[Completion]:
        """Takes the rows of these requests out as they are, with finish reason "abort"."""
        slots = [slot for slot, live in enumerate(self._rows) if live.row.request.request_id in request_ids]
        return self._leave(slots, lambda live: "abort")

    def _entries(self) -> list[tuple[int, int]]:
        """(slot, position) of the tokens that the next step computes: those of a row in their order."""
        entries = [(slot, live.fed) for slot, live in enumerate(self._rows) if len(live.ids) - live.fed == 1]
        room = -(-(len(entries) + 1) // WIDTHS[-1]) * WIDTHS[-1] - len(entries)
        for slot, live in enumerate(self._rows):
            count = len(live.ids) - live.fed
            if count > 1 and live.leader is None and room:
                entries += [(slot, live.fed + place) for place in range(min(count, room))]
                room -= min(count, room)
        return entries

    def _forward(self) -> tuple[list[int], Tensor]:
        """The rows whose context is computed up to their end, and the logits [n, V] that follow it."""
        entries = self._entries()
        columns = max((position for _, position in entries), default=0) + 1
        widths, columns = self._shapes.widths(len(entries), columns)
        self._cache.make_room(len(self._rows) + sum(widths), columns)
        speaking: list[int] = []
        found: list[Tensor] = []
        for width in widths:
            part, entries = entries[:width], entries[width:]
            # Unused slots behind the rows fill a step up.
            idle = range(len(self._rows), len(self._rows) + width - len(part))
            tokens = [self._rows[slot].ids[position] for slot, position in part] + [self._pad] * len(idle)
            slots, positions = [slot for slot, _ in part] + list(idle), [at for _, at in part] + [0] * len(idle)
            logits = self._cache.step(tokens, slots, positions, columns=columns)
            for place, (slot, position) in enumerate(part):
                live = self._rows[slot]
                live.fed = position + 1
                if live.fed == len(live.ids):
                    speaking.append(slot)
                    found.append(logits[place])
        self._follow()
        return speaking, torch.stack(found) if found else torch.zeros(0, 1)

    def _follow(self) -> None:
        """Rows whose leader has computed their context copy it, but for the last token: each computes that itself."""
        places = {id(live): slot for slot, live in enumerate(self._rows)}
        for slot, live in enumerate(self._rows):
            if live.leader is not None and live.leader.fed >= len(live.ids) - 1:
                self._cache.copy(places[id(live.leader)], slot)
                live.fed, live.leader = len(live.ids) - 1, None

    def _draw(self, slots: Sequence[int], logits: Tensor) -> tuple[list[int], list[float]]:
        """The next token of each of these rows and its log-probability.

        Always for the same number of rows at once, so that sums over the vocabulary round alike.
        """
        tokens, logprobs = [0] * len(slots), [0.0] * len(slots)
        by_params: dict[SamplingParams, list[int]] = {}
        for place, slot in enumerate(slots):
            by_params.setdefault(self._rows[slot].params, []).append(place)
        width = max(1, min(WIDTH, ROWS_OF_VOCABULARY // max(1, logits.shape[-1])))
        for params, places in by_params.items():
            for first in range(0, len(places), width):
                chosen = places[first : first + width]
                lives = [self._rows[slots[place]] for place in chosen]
                fill = width - len(chosen)
                keys = np.array([live.key for live in lives], dtype=np.uint64)
                drawn = [len(live.row.request.prefix) + len(live.versions) for live in lives]
                random = torch.zeros(width, dtype=torch.float64)
                random[: len(chosen)] = torch.from_numpy(uniforms(keys, np.array(drawn, dtype=np.uint64), 1)[:, 0])
                seen = None
                if params.repetition_penalty != 1.0:
                    masks = [live.seen for live in lives if live.seen is not None]
                    seen = torch.stack([*masks, *masks[:1] * fill])
                given = logits[[*chosen, *chosen[:1] * fill]]
                new, scores = draw(given, params, random.to(given.device), seen=seen)
                for place, token, logprob in zip(chosen, new.tolist(), scores.tolist(), strict=False):
                    tokens[place], logprobs[place] = token, logprob
        return tokens, logprobs

    def _leave(self, slots: Sequence[int], reason: Callable[[_Live], str]) -> list[Completion]:
        """Takes rows out; the last rows move to their slots."""
        done = [self._rows[slot].completion(reason(self._rows[slot])) for slot in slots]
        leaving = {id(self._rows[slot]) for slot in slots}
        for live in self._rows:
            if live.leader is not None and id(live.leader) in leaving:
                live.leader = None
        for slot in sorted(slots, reverse=True):
            self._keep(self._rows[slot], slot)
            last = len(self._rows) - 1
            if slot != last:
                self._rows[slot] = self._rows[last]
                self._cache.copy(last, slot)
            del self._rows[last]
        return done


def _bytes(states: States) -> int:
    return sum(tensor.nbytes for pair in states for tensor in pair)


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
