"""The sampler that needs transformers only: the default, and the reference for the others."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers import PreTrainedModel

from rlinf.data.messages import Completion, Metrics, SampleRequest, SamplingParams, WeightUpdate
from rlinf.models.checkpoint_names import by_expert
from rlinf.models.routing import RouteRecorder
from rlinf.models.vision.families import text_decoder
from rlinf.models.weight_digest import DigestRequest, TensorDigest, held_digests
from rlinf.models.weight_update import WeightTaker
from rlinf.samplers.attention import use_grouped_attention
from rlinf.samplers.continuous import LoneRows, RunningRows, SlotRows
from rlinf.samplers.decoding import DecodeBatch, DecodedRow, rows_of
from rlinf.samplers.kept_states import KeptStates
from rlinf.samplers.linear import use_weight_first_products
from rlinf.samplers.requests import check_requests
from rlinf.samplers.session import EngineSession, SessionSampler
from rlinf.samplers.sight import Sight
from rlinf.samplers.slots import Shapes, SlotCache


@functools.lru_cache(maxsize=64)
def _distribution(params: SamplingParams) -> SamplingParams:
    """Return what rows of one batch have in common: they may differ in their most tokens."""
    return replace(params, max_new_tokens=0)


class HFSampler(SessionSampler):
    """Generates with any causal language model of transformers, on the device that the model is on.

    Rows are sorted by expected length and decoded ``generation_batch_size`` at a time. A response is a function of the
    weights, its prompt and its stream key: not of the batch, its order or its size (up to rounding in the model).
    """

    takes_adapters = True

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        eos_token_ids: Collection[int],
        pad_token_id: int,
        seed: int,
        generation_batch_size: int,
        max_model_len: int,
        keep_cache: bool = False,
        sight: Sight | None = None,
        record_routes: bool = False,
    ) -> None:
        """``model`` becomes the sampler's: it is put in evaluation mode, and its attention may be exchanged for a
        faster one of the same result. ``max_model_len`` counts prompt and response tokens. ``keep_cache``: a response
        that is continued after new weights keeps the keys and values that it has. ``sight``: of a vision-language
        model. ``record_routes``: completions of :meth:`stream` have the experts of each token."""
        if generation_batch_size < 1:
            raise ValueError(f"generation_batch_size must be at least 1, got {generation_batch_size}")
        self._model = model.eval()
        use_grouped_attention(model if sight is None else text_decoder(model))
        use_weight_first_products(model)
        self._eos_token_ids = frozenset(eos_token_ids)
        self._pad_token_id = pad_token_id
        self._seed = seed
        self._batch_size = generation_batch_size
        self._max_model_len = max_model_len
        self._version = 0
        self._weights = WeightTaker()
        self._waiting: list[DecodedRow] = []
        self._batch: DecodeBatch | None = None
        self._streaming = False
        self._shapes: Shapes | None = None
        self._slots: SlotCache | None = None
        self._carried = KeptStates() if keep_cache else None
        self._home = model.device
        self._sight = sight
        self._routes = RouteRecorder(model) if record_routes else None

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        """Yield the same completions as they finish. Between two of them :meth:`load` and :meth:`abort` may be called.

        A prompt that leaves no room for a token gives completions with finish reason "too_long" and no tokens.

        Raises:
            RuntimeError: another stream of this sampler is not exhausted (or closed) yet.
        """
        if self._streaming:
            raise RuntimeError("this sampler is streaming already: exhaust or close that stream first")
        self._streaming = True
        try:
            yield from self._plan(requests)
            while self._waiting:
                self._batch = self._next_batch()
                while self._batch.rows:
                    yield from self._batch.step(self._version)
        finally:
            self._streaming, self._batch, self._waiting = False, None, []

    def session(self) -> EngineSession:
        """Open a session, in which :meth:`load` may be called at any time.

        Its responses are those of :meth:`stream` up to rounding, and do not depend on what else is open, to the last
        bit. Rows share steps of sizes that were found to round alike, or are decoded one at a time.

        Raises:
            RuntimeError: a stream or another session of this sampler is open.
        """
        if self._streaming:
            raise RuntimeError("this sampler is streaming already: close that stream or session first")
        self._streaming = True

        def on_close() -> None:
            self._streaming = False

        return EngineSession(
            HFEngine(
                self._running_rows(),
                version=lambda: self._version,
                most=self._batch_size,
                max_model_len=self._max_model_len,
                on_close=on_close,
            )
        )

    def _running_rows(self) -> RunningRows:
        if self._sight is not None:
            return self._lone_rows()
        if self._shapes is None:
            self._shapes = Shapes(self._model, max_model_len=self._max_model_len)
        if self._shapes.invariant:
            # Kept from session to session: new memory would have to be mapped page by page after every new weights.
            self._slots = self._slots or SlotCache(self._model)
            return SlotRows(
                self._model,
                self._shapes,
                self._slots,
                stop_ids=self._stop_ids,
                seed=self._seed,
                carried=self._carried,
            )
        return self._lone_rows()

    def _lone_rows(self) -> LoneRows:
        return LoneRows(
            self._model,
            stop_ids=self._stop_ids,
            pad_token_id=self._pad_token_id,
            seed=self._seed,
            sight=self._sight,
        )

    def _stop_ids(self, params: SamplingParams) -> set[int]:
        return set(params.stop_token_ids) | (set() if params.ignore_eos else set(self._eos_token_ids))

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """End these requests of the running stream: their responses as far as they are, finish reason "abort".

        They can be continued, also under newer weights, by requests that have the tokens as ``prefix``.
        """
        leaving = [row for row in self._waiting if row.request.request_id in request_ids]
        self._waiting = [row for row in self._waiting if row.request.request_id not in request_ids]
        running = self._batch.remove(request_ids) if self._batch is not None else []
        return running + [row.completion((), (), (), "abort") for row in leaving]

    def load(self, update: WeightUpdate) -> Metrics:
        """Load the weights in-place; the next token, also of a running stream, follows them.

        Raises:
            WeightUpdateError: the update does not fit the model; nothing was copied then.
        """
        metrics = self._weights.take(self._model, update)
        self._version = update.version
        return metrics

    def held_digests(self, requests: Mapping[str, DigestRequest]) -> dict[str, TensorDigest]:
        """Read back the requested weights (``requests``) from the model."""
        return held_digests(by_expert(self._model.state_dict(keep_vars=True).items()), requests)

    def sleep(self) -> None:
        """Move the weights to host memory (nothing to do on a CPU), and free the cache. :meth:`load` works asleep."""
        self._slots = None
        if self._carried is not None:
            self._carried.clear()
        if self._home.type == "cuda":
            self._model.to("cpu")
            torch.cuda.empty_cache()

    def wake(self) -> None:
        """Move the weights back to their device."""
        self._model.to(self._home)

    def _plan(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Fill the waiting list, longest rows first; return completions of the rows that need no token."""
        check_requests(requests)
        rows, done = rows_of(requests, self._max_model_len)
        self._waiting += rows
        # Rows of one batch share a distribution; equal contexts stay side by side, so a prompt is prefilled once.
        self._waiting.sort(key=lambda row: (len(row.context) + row.limit, row.context), reverse=True)
        self._waiting.sort(key=lambda row: repr(_distribution(row.request.params)))
        return done

    def _next_batch(self) -> DecodeBatch:
        """Take the next rows of the waiting list that share a sampling distribution."""
        params = _distribution(self._waiting[0].request.params)
        rows: list[DecodedRow] = []
        for row in self._waiting[: self._batch_size]:
            if _distribution(row.request.params) != params:
                break
            rows.append(row)
        del self._waiting[: len(rows)]
        return DecodeBatch(
            self._model,
            rows,
            params,
            stop_ids=self._stop_ids(params),
            pad_token_id=self._pad_token_id,
            seed=self._seed,
            sight=self._sight,
            routes=self._routes,
        )


class HFEngine:
    """A :class:`rlinf.samplers.session.SteppedEngine` over :class:`~rlinf.samplers.continuous.RunningRows`."""

    def __init__(
        self,
        rows: RunningRows,
        *,
        version: Callable[[], int],
        most: int,
        max_model_len: int,
        on_close: Callable[[], Any],
    ) -> None:
        """``version`` gives that of the weights, ``most`` how many rows are decoded side by side."""
        self._rows, self._version, self._most, self._max_model_len = rows, version, most, max_model_len
        self._on_close = on_close
        self._waiting: deque[DecodedRow] = deque()
        self._request_ids: set[int] = set()

    @property
    def running(self) -> int:
        return len(self._waiting) + len(self._rows)

    def add(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        self._request_ids.update(request.request_id for request in requests)
        rows, done = rows_of(requests, self._max_model_len)
        self._waiting += rows
        return done

    def step(self, max_s: float) -> list[Completion]:
        """Decode one more token of every row; rows that wait join first."""
        room = min(self._most - len(self._rows), len(self._waiting))
        if room:
            self._rows.add([self._waiting.popleft() for _ in range(room)], self._version())
        return self._rows.step(self._version())

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        leaving = [row for row in self._waiting if row.request.request_id in request_ids]
        self._waiting = deque(row for row in self._waiting if row.request.request_id not in request_ids)
        return self._rows.remove(request_ids) + [row.completion((), (), (), "abort") for row in leaving]

    def end_session(self) -> None:
        self._waiting.clear()
        self._rows.remove(self._request_ids)
        self._on_close()
