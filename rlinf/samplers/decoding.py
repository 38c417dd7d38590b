"""Decodes one batch of rows with a transformers model: one prefill per distinct prompt, finished rows leave at once."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlinf.base.errors import RunFailed
from rlinf.data.messages import Completion, SampleRequest, SamplingParams
from rlinf.data.token_array import TokenArray
from rlinf.models.distribution import draw
from rlinf.models.routing import RouteRecorder
from rlinf.models.vision.families import text_decoder
from rlinf.samplers.kv_cache import RowCache
from rlinf.samplers.requests import limit_of
from rlinf.samplers.sight import Sight
from rlinf.samplers.streams import stream_key, uniforms

_RANDOM_BLOCK = 64
"""Positions whose random numbers are made in one call."""


class NonFiniteLogits(RunFailed):
    """A policy that gives no distribution to draw from; the message states since which step."""


def require_finite_logits(logits: Tensor, version: int) -> None:
    """Raise NonFiniteLogits if a row of ``logits`` [B, V], made with weights ``version``, can't be drawn from."""
    if not bool(logits.amax(dim=-1).isfinite().all()):
        raise NonFiniteLogits(
            f"the policy's logits are not finite after step {version}: the update before made its weights too "
            "large. Lower learner.optimizer.lr (or sft.lr), or set learner.optimizer.grad_clip"
        )


@dataclass(frozen=True)
class DecodedRow:
    """One response to make: sample ``sample_index`` of ``request``, at most ``limit`` new tokens."""

    request: SampleRequest
    sample_index: int
    limit: int

    @property
    def context(self) -> tuple[int, ...]:
        """The tokens before the first new one."""
        return (*self.request.prompt_ids, *self.request.prefix)

    def completion(
        self,
        token_ids: Sequence[int],
        logprobs: Sequence[float],
        versions: Sequence[int],
        finish_reason: str,
        cached_tokens: int = 0,
        routes: np.ndarray | None = None,
    ) -> Completion:
        return Completion(
            request_id=self.request.request_id,
            sample_index=self.sample_index,
            token_ids=TokenArray.ints(token_ids),
            logprobs=TokenArray.floats(logprobs),
            finish_reason=finish_reason,
            policy_version=TokenArray.ints(versions),
            cached_tokens=cached_tokens,
            routes=routes,
        )


def rows_of(requests: Sequence[SampleRequest], max_model_len: int) -> tuple[list[DecodedRow], list[Completion]]:
    """List the responses to make, and the completions of those that have no room for a token."""
    rows: list[DecodedRow] = []
    done: list[Completion] = []
    for request in requests:
        limit, reason = limit_of(request, max_model_len)
        for sample_index in range(request.first_sample, request.first_sample + request.n):
            row = DecodedRow(request, sample_index, limit)
            if reason is None:
                rows.append(row)
            else:
                done.append(row.completion((), (), (), reason))
    return rows, done


class DecodeBatch:
    """Rows that are decoded side by side. Row ``i`` of every tensor belongs to ``rows[i]``; all are at one step.

    Prompts are padded on the left, so that the new token is in the same column for every row. When a row is
    finished, the last row replaces it: leaving costs what one row costs, not a copy of the batch.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        rows: Sequence[DecodedRow],
        params: SamplingParams,
        *,
        stop_ids: Collection[int],
        pad_token_id: int,
        seed: int,
        sight: Sight | None = None,
        routes: RouteRecorder | None = None,
    ) -> None:
        """``rows`` share ``params`` but for ``max_new_tokens`` (their ``limit`` holds); ``stop_ids`` end a response.
        ``routes``: of the model, whose experts then come with the completions."""
        self.rows = list(rows)
        self._recorder = routes
        self._context_routes: list[Tensor] = []
        """[tokens before the first new one, E] of each row."""
        self.model = model
        self._sight = sight
        self._params = params
        self._pad = pad_token_id
        self._device = model.device
        accepted = inspect.signature(model.forward).parameters
        self._extra: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        self._takes_positions = "position_ids" in accepted
        self._stop_ids = torch.tensor(sorted(stop_ids), dtype=torch.int64, device=self._device)
        self._keys = np.array([stream_key(seed, row.request.key, row.sample_index) for row in rows], dtype=np.uint64)
        # The stream of a response runs through its prefix: a continued response draws what it would have drawn.
        self._offsets = np.array([len(row.request.prefix) for row in rows], dtype=np.uint64)
        longest = max(row.limit for row in rows)
        self._tokens = torch.zeros(len(rows), longest, dtype=torch.int64, device=self._device)
        self._logprobs = torch.zeros(len(rows), longest, dtype=torch.float32, device=self._device)
        self._limits = torch.tensor([row.limit for row in rows], device=self._device)
        self._next_limit = min(row.limit for row in rows)
        self._versions: list[int] = []
        self._random = torch.empty(0)
        self._random_start = 0
        self._cache: RowCache | None = None
        self._seen: Tensor | None = None

    @torch.inference_mode()
    def step(self, version: int) -> list[Completion]:
        """One more token for every row, with weights ``version``; returns the rows that are finished by it."""
        step = len(self._versions)
        if self._cache is None or version != self._versions[-1]:
            # New weights: keys and values made with the old ones are dropped.
            logits = self._prefill(step)
        else:
            logits = self._forward(self._tokens[: len(self.rows), step - 1 : step])
            if self._recorder is not None:
                self._routes[: len(self.rows), step - 1] = self._recorder.taken()
        require_finite_logits(logits, version)
        tokens, logprobs = draw(logits, self._params, self._uniforms(step), seen=self._seen)
        live = len(self.rows)
        self._tokens[:live, step] = tokens
        self._logprobs[:live, step] = logprobs
        if self._seen is not None:
            self._seen.scatter_(1, tokens[:, None], True)
        self._versions.append(version)
        return self._finish(tokens, step + 1)

    @torch.inference_mode()
    def remove(self, request_ids: Collection[int]) -> list[Completion]:
        """Take the rows of these requests out as they are, with finish reason "abort"."""
        leaving = [position for position, row in enumerate(self.rows) if row.request.request_id in request_ids]
        return self._leave(leaving, ["abort"] * len(leaving))

    # -- the model ---------------------------------------------------------------------------------------------------

    def _prefill(self, step: int) -> Tensor:
        """Build the cache from prompts and the ``step`` tokens so far; return logits [B, V] of the next token."""
        written = self._tokens[: len(self.rows), :step].tolist()
        contexts = [row.context + tuple(tokens) for row, tokens in zip(self.rows, written, strict=True)]
        # The feature tokens of a picture are its own, so contexts with other pictures are other contexts.
        distinct = {context: index for index, context in enumerate(dict.fromkeys(contexts))}
        width = max(len(context) for context in distinct)
        ids = torch.full((len(distinct), width), self._pad, dtype=torch.int64)
        mask = torch.zeros(len(distinct), width, dtype=torch.int64)
        for index, context in enumerate(distinct):
            ids[index, width - len(context) :] = torch.tensor(context)
            mask[index, width - len(context) :] = 1
        ids, mask = ids.to(self._device), mask.to(self._device)
        self._cache = cache = RowCache(self.model.config)
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        if self._sight is None:
            logits = self._run(ids, mask, positions)
        else:
            pictures = {context: row.request.pictures for context, row in zip(contexts, self.rows, strict=True)}
            inputs = self._sight.inputs(self.model, ids, mask, [pictures[context] for context in distinct])
            logits = self._sight.logits(self.model, cache, mask, inputs)
            # Text goes on from the largest position of the last token, whose axes differ within a picture.
            own = inputs["position_ids"]
            positions = own if own.ndim == 2 else own.amax(dim=0)
        sources = torch.tensor([distinct[context] for context in contexts], device=self._device)
        if self._recorder is not None:
            self._take_context_routes(self._recorder.taken().unflatten(0, ids.shape), sources.tolist(), step)
        cache.select(sources)
        self._positions = positions[sources, -1:]
        self._prepare_mask(mask[sources], padded=len(set(map(len, distinct))) > 1)
        if self._params.repetition_penalty != 1.0:
            seen = torch.zeros(logits.shape, dtype=torch.int64, device=self._device)
            self._seen = (seen.scatter_add_(1, ids.clamp(min=0), mask * (ids >= 0)) > 0)[sources]
        return logits[sources]

    def _take_context_routes(self, routes: Tensor, indices: Sequence[int], step: int) -> None:
        """Keep the experts [U, width, E] of a prefill: of each row's context, and of its ``step`` tokens so far."""
        if not self._context_routes:
            self._routes = routes.new_full((len(self.rows), self._tokens.shape[1], routes.shape[2]), -1)
        width = routes.shape[1]
        lengths = [len(row.context) for row in self.rows]
        self._context_routes = [
            routes[index, width - step - length : width - step] for index, length in zip(indices, lengths, strict=True)
        ]
        self._routes[: len(self.rows), :step] = routes[indices, width - step :]

    def _run(self, ids: Tensor, mask: Tensor | None, positions: Tensor) -> Tensor:
        """Logits [B, V] after the last of the tokens ``ids`` [B, n]."""
        extra = {"position_ids": positions} if self._takes_positions else {}
        output = self.model(
            input_ids=ids, attention_mask=mask, past_key_values=self._cache, use_cache=True, **extra, **self._extra
        )
        logits: Tensor = output.logits[:, -1]
        return logits

    def _prepare_mask(self, mask: Tensor, *, padded: bool) -> None:
        """Build the attention mask of all steps to come, once: ``mask`` [B, width] marks the columns that are
        tokens."""
        assert self._cache is not None
        rows, width = mask.shape
        self._columns = width
        self._mask: Tensor | None = None
        reads = self.model if self._sight is None else text_decoder(self.model)
        attention = reads.config._attn_implementation
        self._additive = self._cache.plain and attention.endswith("sdpa")
        if not padded:
            return
        total = width + int(self._limits.max())
        if self._additive:
            self._mask = torch.zeros(rows, 1, 1, total, dtype=self.model.dtype, device=self._device)
            self._mask[:, 0, 0, :width].masked_fill_(mask == 0, torch.finfo(self.model.dtype).min)
        else:
            self._mask = torch.ones(rows, total, dtype=torch.int64, device=self._device)
            self._mask[:, :width] = mask

    def _forward(self, tokens: Tensor) -> Tensor:
        """Logits [B, V] after one more token [B, 1] for every row."""
        self._positions = self._positions + 1
        self._columns += 1
        mask = self._mask[: len(self.rows), ..., : self._columns] if self._mask is not None else None
        if self._sight is None:
            return self._run(tokens, mask, self._positions)
        inputs = {"input_ids": tokens, "position_ids": self._positions}
        return self._sight.logits(self.model, self._cache, mask, inputs)

    def _uniforms(self, step: int) -> Tensor:
        """Return the random numbers [B] of this step."""
        column = step - self._random_start
        if column >= (self._random.shape[1] if self._random.ndim == 2 else 0):
            block = uniforms(self._keys, self._offsets + np.uint64(step), _RANDOM_BLOCK)
            self._random, self._random_start, column = torch.from_numpy(block).to(self._device), step, 0
        return self._random[:, column]

    # -- rows end ---------------------------------------------------------------------------------------------------

    def _finish(self, tokens: Tensor, length: int) -> list[Completion]:
        """End the rows that drew a stop token or reached their limit with their ``length``-th token."""
        stopped = (tokens[:, None] == self._stop_ids).any(dim=1)
        ended = stopped if length < self._next_limit else stopped | (self._limits <= length)
        indices = ended.nonzero().flatten().tolist()
        if not indices:
            return []
        stops = stopped.tolist()
        return self._leave(indices, ["stop" if stops[index] else "length" for index in indices])

    def _leave(self, indices: list[int], reasons: list[str]) -> list[Completion]:
        """Take rows out; the last rows move to their slots."""
        if not indices:
            return []
        length = len(self._versions)
        tokens, logprobs = (tensor[indices, :length].tolist() for tensor in (self._tokens, self._logprobs))
        completions = [
            self.rows[position].completion(
                tokens[i], logprobs[i], self._versions, reasons[i], routes=self._routes_of(position, length)
            )
            for i, position in enumerate(indices)
        ]
        kept = len(self.rows) - len(indices)
        leaving = set(indices)
        holes = [position for position in indices if position < kept]
        movers = [position for position in range(kept, len(self.rows)) if position not in leaving]
        for hole, mover in zip(holes, movers, strict=True):
            self.rows[hole] = self.rows[mover]
            if self._context_routes:
                self._context_routes[hole] = self._context_routes[mover]
        del self.rows[kept:], self._context_routes[kept:]
        if kept:
            self._move(holes, movers, kept)
        return completions

    def _routes_of(self, position: int, length: int) -> np.ndarray | None:
        """Return the experts of a row's prompt and of all of its ``length`` tokens but the last."""
        if not self._context_routes:
            return None
        return torch.cat([self._context_routes[position], self._routes[position, : length - 1]]).cpu().numpy()

    def _move(self, holes: list[int], movers: list[int], kept: int) -> None:
        """Move the state of rows ``movers`` to ``holes`` and keep the first ``kept`` rows."""
        self._keys[holes], self._offsets[holes] = self._keys[movers], self._offsets[movers]
        self._keys, self._offsets = self._keys[:kept], self._offsets[:kept]
        sources = torch.tensor(movers, dtype=torch.int64, device=self._device)
        targets = torch.tensor(holes, dtype=torch.int64, device=self._device)
        for name in ("_tokens", "_logprobs", "_limits", "_random", "_positions", "_mask", "_seen", "_routes"):
            tensor = getattr(self, name, None)
            if tensor is not None:
                if holes:
                    tensor[targets] = tensor[sources]
                setattr(self, name, tensor[:kept])
        if self._cache is not None:
            self._cache.move_rows(targets, sources, kept)
        self._next_limit = min(row.limit for row in self.rows)
