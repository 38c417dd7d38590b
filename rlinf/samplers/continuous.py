"""Continuous batching with a transformers model: rows join and leave between any two tokens."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlinf.data.messages import Completion, SamplingParams
from rlinf.models.distribution import ROWS_OF_VOCABULARY, draw
from rlinf.samplers.decoding import DecodeBatch, DecodedRow, require_finite_logits
from rlinf.samplers.kept_states import KeptStates
from rlinf.samplers.sight import Sight
from rlinf.samplers.slot_attention import Segment, within
from rlinf.samplers.slots import Shapes, SlotCache
from rlinf.samplers.streams import stream_key, uniforms

_DRAWN = 64
"""Rows whose tokens are drawn together, where the vocabulary is small."""


class RunningRows(Protocol):
    """Rows that are decoded together, by turns or alone."""

    def __len__(self) -> int: ...

    def add(self, rows: Sequence[DecodedRow], version: int) -> None:
        """Rows that join before the next step."""

    def step(self, version: int) -> list[Completion]:
        """One more token for every row, with weights ``version``; the rows that are finished by it."""

    def remove(self, request_ids: Collection[int]) -> list[Completion]:
        """Take the rows of these requests out as they are, with finish reason "abort"."""


@dataclass(eq=False)
class _Live:
    """A row in a slot."""

    row: DecodedRow
    slot: int
    key: int
    params: SamplingParams
    """One object for all rows that are drawn alike."""
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
    """An earlier row, which computes the first ``shared`` of ``ids`` for both."""
    shared: int = 0
    seen: Tensor | None = None

    @property
    def speaks(self) -> bool:
        """Whether all but the last of ``ids`` are computed."""
        return len(self.ids) - self.fed == 1

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

    Contexts are computed in the same steps as responses. The states of a conversation are kept for its next turn,
    as far as :class:`KeptStates` allows: to compute them again gives the same bits.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        shapes: Shapes,
        cache: SlotCache,
        *,
        stop_ids: Callable[[SamplingParams], Collection[int]],
        seed: int,
        carried: KeptStates | None = None,
    ) -> None:
        """``cache`` is cleared; ``stop_ids`` returns the tokens that end a response sampled with these parameters.

        With ``carried`` keys and values outlive the weights that made them, those of aborted responses also the
        session: a response goes on with them from where it was.
        """
        self._model, self._shapes, self._stop_ids, self._seed = model, shapes, stop_ids, seed
        self._cache = cache
        cache.clear()
        self._rows: list[_Live] = []
        """By slot, as they stand in a step."""
        self._params: dict[SamplingParams, SamplingParams] = {}
        self._kept, self._carried = KeptStates(), carried
        self._version: int | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @torch.inference_mode()
    def add(self, rows: Sequence[DecodedRow], version: int) -> None:
        """Rows that join with the next step; a prompt of several is computed once."""
        self._renew(version)
        used = {live.slot for live in self._rows}
        free = (slot for slot in itertools.count() if slot not in used)
        for row, slot in zip(rows, free, strict=False):
            sampling = replace(row.request.params, max_new_tokens=0)
            params = self._params.setdefault(sampling, sampling)
            key = stream_key(self._seed, row.request.key, row.sample_index)
            live = _Live(row, slot, key, params, self._stop_ids(params), list(row.context))
            if params.repetition_penalty != 1.0:
                live.seen = torch.zeros(self._vocabulary, dtype=torch.bool, device=self._model.device)
                live.seen[live.ids] = True
            self._rows.append(live)
            self._reuse(live)
        self._lead()
        self._cache.make_room(self._most_slots, 0)
        self._follow()

    @property
    def _most_slots(self) -> int:
        return max((live.slot + 1 for live in self._rows), default=0)

    @property
    def _vocabulary(self) -> int:
        return int(self._model.config.get_text_config().vocab_size)

    def _reuse(self, live: _Live) -> None:
        """Take over what the turn before, or the response as far as it was, left in the cache."""
        result = None if live.conversation is None else self._kept.take(live.conversation, live.ids)
        if result is None and self._carried is not None and live.row.request.prefix:
            result = self._carried.take(live.key, live.ids)
        if result is not None:
            count, states = result
            self._cache.make_room(live.slot + 1, len(live.ids))
            self._cache.put(live.slot, states)
            live.fed = live.kept = count

    def _keep(self, live: _Live, *, aborted: bool) -> None:
        if not live.fed:
            return
        if aborted and self._carried is not None:
            self._carried.keep(live.key, live.ids[: live.fed], self._cache.take(live.slot, live.fed))
        elif live.conversation is not None:
            self._kept.keep(live.conversation, live.ids[: live.fed], self._cache.take(live.slot, live.fed))

    def _renew(self, version: int) -> None:
        """Start on new weights: recompute keys and values made with the old ones, unless they are carried on."""
        if self._version is not None and version != self._version and self._carried is None:
            self._kept.clear()
            for live in self._rows:
                live.fed, live.leader = 0, None
            self._lead()
        self._version = version

    def _lead(self) -> None:
        """Rows of which nothing is computed wait for the first one of their context, or else of their prompt."""
        first: dict[tuple[int, ...], _Live] = {}
        for live in self._rows:
            if live.leader is not None:
                continue
            context, prompt = live.row.context, live.row.request.prompt_ids
            common = context if context in first else prompt
            if common in first and not live.fed:
                live.leader, live.shared = first[common], min(len(common), len(live.ids) - 1)
            else:
                first.setdefault(context, live)
                first.setdefault(prompt, live)

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
                finished.append(live)
        for live in finished:
            self._keep(live, aborted=False)
        return self._leave(finished, lambda live: "stop" if live.ids[-1] in live.stop_ids else "length")

    @torch.inference_mode()
    def remove(self, request_ids: Collection[int]) -> list[Completion]:
        """Take the rows of these requests out as they are, with finish reason "abort"."""
        leaving = [live for live in self._rows if live.row.request.request_id in request_ids]
        for live in leaving:
            self._keep(live, aborted=True)
        return self._leave(leaving, lambda live: "abort")

    def _arrange(self) -> int:
        """Move rows that need one more token into the first slots, those over more columns first; return their number.

        A row moves only if it is among rows of another number of columns.
        """
        columns = [self._shapes.columns(live.fed + 1) if live.speaks else 0 for live in self._rows]
        homes: dict[int, list[int]] = {}
        first = 0
        for wide, count in sorted(Counter(columns).items(), reverse=True):
            homes[wide] = list(range(first, first + count))
            first += count
        movers = [
            (live, wide)
            for live, wide in zip(self._rows, columns, strict=True)
            if not homes[wide][0] <= live.slot <= homes[wide][-1]
        ]
        if movers:
            moving = {live.slot for live, _ in movers}
            held = {live.slot for live in self._rows} - moving
            free = {wide: [slot for slot in home if slot not in held] for wide, home in homes.items()}
            targets = [free[wide].pop() for _, wide in movers]
            sources = [live.slot for live, _ in movers]
            self._cache.move(sources, targets, [live.fed for live, _ in movers])
            for (live, _), target in zip(movers, targets, strict=True):
                live.slot = target
        self._rows.sort(key=lambda live: live.slot)
        return len(columns) - columns.count(0)

    def _plan(self) -> tuple[list[tuple[int, int]], list[Segment]]:
        """(slot, position) of the tokens that the next step computes, those of a row in their order, and how they
        attend: a token of each row that speaks, and of contexts what fills the step up."""
        speaking = self._arrange()
        entries = [(slot, live.fed) for slot, live in enumerate(self._rows[:speaking])]
        segments: list[Segment] = []
        for slot, position in entries:
            columns = self._shapes.columns(position + 1)
            same = bool(segments) and segments[-1].columns == columns
            rows = slice(segments.pop().slots.start if same else slot, slot + 1)
            segments.append(Segment(rows, rows, columns))
        contexts = [live for live in self._rows[speaking:] if live.leader is None]
        room = self._shapes.widest - speaking % self._shapes.widest if contexts else 0
        for live in contexts:
            count = min(len(live.ids) - live.fed, room)
            if count:
                tokens = slice(len(entries), len(entries) + count)
                end = live.fed + count
                segments.append(Segment(tokens, slice(live.slot, live.slot + 1), self._shapes.columns(end)))
                entries += [(live.slot, position) for position in range(live.fed, end)]
                room -= count
        return entries, segments

    def _forward(self) -> tuple[list[int], Tensor]:
        """Return the rows whose context is computed up to their end, and the logits [n, V] that follow it."""
        self._cache.make_room(self._most_slots, 0)
        entries, segments = self._plan()
        self._cache.make_room(len(self._rows), max((segment.columns for segment in segments), default=0))
        speaking: list[int] = []
        results: list[Tensor] = []
        first = 0
        for width in self._shapes.widths(len(entries)):
            part = entries[first : first + width]
            kept: list[int] = []
            for index, (slot, position) in enumerate(part):
                live = self._rows[slot]
                live.fed = position + 1
                if live.fed == len(live.ids):
                    speaking.append(slot)
                    kept.append(index)
            padded = kept + [0] * (self._shapes.widths(max(1, len(kept)))[0] - len(kept))
            logits = self._cache.step(
                [self._rows[slot].ids[position] for slot, position in part],
                [slot for slot, _ in part],
                [position for _, position in part],
                within(segments, first, first + len(part)),
                width=width,
                kept=padded,
            )
            results.append(logits[: len(kept)])
            first += width
        self._follow()
        return speaking, torch.cat(results) if results else torch.zeros(0, 1)

    def _follow(self) -> None:
        """Rows whose leader has computed what they share copy it; the last token each computes itself."""
        sources, targets, lengths = [], [], []
        for live in self._rows:
            if live.leader is not None and live.leader.fed >= live.shared:
                sources.append(live.leader.slot)
                targets.append(live.slot)
                live.fed, live.leader = live.shared, None
                lengths.append(live.fed)
        self._cache.move(sources, targets, lengths)

    def _draw(self, slots: Sequence[int], logits: Tensor) -> tuple[list[int], list[float]]:
        """Draw the next token of each of these rows; return it with its log-probability.

        Always for the same number of rows at once, so that sums over the vocabulary round alike.
        """
        tokens, logprobs = [0] * len(slots), [0.0] * len(slots)
        by_params: dict[int, list[int]] = {}
        for index, slot in enumerate(slots):
            by_params.setdefault(id(self._rows[slot].params), []).append(index)
        width = max(1, min(_DRAWN, ROWS_OF_VOCABULARY // max(1, logits.shape[-1])))
        for rows in by_params.values():
            params = self._rows[slots[rows[0]]].params
            for first in range(0, len(rows), width):
                chosen = rows[first : first + width]
                lives = [self._rows[slots[index]] for index in chosen]
                fill = width - len(chosen)
                keys = np.array([live.key for live in lives], dtype=np.uint64)
                drawn = [len(live.row.request.prefix) + len(live.versions) for live in lives]
                random = torch.zeros(width, dtype=torch.float64)
                random[: len(chosen)] = torch.from_numpy(uniforms(keys, np.array(drawn, dtype=np.uint64), 1)[:, 0])
                seen = None
                if params.repetition_penalty != 1.0:
                    masks = [live.seen for live in lives if live.seen is not None]
                    seen = torch.stack([*masks, *masks[:1] * fill])
                chosen_logits = logits[[*chosen, *chosen[:1] * fill]]
                new, scores = draw(chosen_logits, params, random.to(chosen_logits.device), seen=seen)
                for index, token, logprob in zip(chosen, new.tolist(), scores.tolist(), strict=False):
                    tokens[index], logprobs[index] = token, logprob
        return tokens, logprobs

    def _leave(self, leaving: Sequence[_Live], reason: Callable[[_Live], str]) -> list[Completion]:
        """Take rows out; those that stay move when the next step is computed."""
        names = {id(live) for live in leaving}
        self._rows = [live for live in self._rows if id(live) not in names]
        for live in self._rows:
            if live.leader is not None and id(live.leader) in names:
                live.leader = None
        return [live.completion(reason(live)) for live in leaving]


class LoneRows:
    """Rows that are decoded one at a time: for models whose results depend on the other rows of the batch."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        stop_ids: Callable[[SamplingParams], Collection[int]],
        pad_token_id: int,
        seed: int,
        sight: Sight | None = None,
    ) -> None:
        self._model, self._stop_ids, self._pad, self._seed = model, stop_ids, pad_token_id, seed
        self._sight = sight
        self._rows: list[DecodeBatch] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Sequence[DecodedRow], version: int) -> None:
        """Rows that join before the next step."""
        for row in rows:
            params = replace(row.request.params, max_new_tokens=0)
            stop_ids = self._stop_ids(params)
            self._rows.append(
                DecodeBatch(
                    self._model,
                    [row],
                    params,
                    stop_ids=stop_ids,
                    pad_token_id=self._pad,
                    seed=self._seed,
                    sight=self._sight,
                )
            )

    def step(self, version: int) -> list[Completion]:
        """One more token for every row; the rows that are finished by it."""
        done = [completion for alone in self._rows for completion in alone.step(version)]
        self._rows = [alone for alone in self._rows if alone.rows]
        return done

    def remove(self, request_ids: Collection[int]) -> list[Completion]:
        """Take the rows of these requests out as they are, with finish reason "abort"."""
        done = [completion for alone in self._rows for completion in alone.remove(request_ids)]
        self._rows = [alone for alone in self._rows if alone.rows]
        return done
