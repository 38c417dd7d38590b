"""Samples from a running OpenAI-compatible server (``vllm serve``), for those who keep inference apart.

The server is started with::

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs --generation-config vllm \\
        --worker-extension-cls rlinf.samplers.vllm_weights.WeightReceiver

(on a CPU also ``--no-enable-chunked-prefill``, without which vLLM can't serve seeded requests there). The
log-probabilities option is required (a probe checks it); developer mode and the worker extension are what
:meth:`ServerSampler.load` pushes weights through. They let anyone who reaches the port exchange the weights: keep it
inside a trusted network.
"""

from __future__ import annotations

import base64
import json
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from typing import Any
from urllib.parse import urlsplit

from torch import Tensor

from rlinf.config.schema.rollout import ServerConfig
from rlinf.samplers.requests import check_requests, in_request_order, limit_of
from rlinf.samplers.streams import stream_key
from rlinf.samplers.weights import WeightLayout
from rlinf.types import Completion, Metrics, SampleRequest, WeightUpdate

_CONCURRENT = 128
"""Requests under way at a time; a request is one prompt with all its responses, so this fills most engines."""
_BUCKET_BYTES = 64 << 20


class ServerError(RuntimeError):
    """The server could not be reached in time, or refused; the message has its address and its answer."""


class ServerSampler:
    """A :class:`rlinf.interfaces.Sampler` behind HTTP. :meth:`stream` yields the responses of a prompt together.

    A response depends on its stream key, not on the batch. Token ids go both ways, so no tokenizer is involved here.
    """

    def __init__(
        self,
        config: ServerConfig,
        *,
        eos_token_ids: Collection[int],
        seed: int,
        max_model_len: int,
        layout: WeightLayout | None = None,
    ) -> None:
        """``layout`` of the served model, where known, lets :meth:`load` name weights that do not fit.

        Raises:
            ServerError: nothing answers at ``config.base_url``, or it reports log-probabilities before processing.
        """
        if not config.base_url:
            raise ValueError("rollout.sampler: server needs rollout.server.base_url, such as http://host:8000/v1")
        self._base = config.base_url.rstrip("/")
        # The weight endpoints are beside /v1, not under it.
        self._root = self._base.removesuffix("/v1")
        if urlsplit(self._base).scheme not in ("http", "https"):
            raise ValueError(f"rollout.server.base_url must begin with http:// or https://, got {config.base_url!r}")
        self._timeout_s = config.timeout_s
        self._eos_token_ids = frozenset(eos_token_ids)
        self._seed = seed
        self._layout = layout
        self._version = 0
        self._arrived: set[str] = set()
        self._streaming = False
        served = self._served_model(config.model)
        self._model: str = served["id"]
        # The server cuts prompts and responses at its own limit, which may be the smaller one.
        self._max_model_len = min(max_model_len, served.get("max_model_len") or max_model_len)
        self._check_logprobs()

    def sample(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """All completions of all requests, ordered by (position of the request, sample index)."""
        return in_request_order(requests, self.stream(requests))

    def stream(self, requests: Sequence[SampleRequest]) -> Iterator[Completion]:
        """The same completions as their prompts are finished.

        Raises:
            ServerError: a request failed or took longer than ``timeout_s``.
        """
        check_requests(requests)
        if self._streaming:
            raise RuntimeError("this sampler is streaming already: exhaust or close that stream first")
        self._streaming = True
        pool = ThreadPoolExecutor(max_workers=_CONCURRENT, thread_name_prefix="sampler")
        try:
            pending = set()
            for request in requests:
                _, reason = limit_of(request, self._max_model_len)
                if reason is None:
                    pending.add(pool.submit(self._complete, request))
                    continue
                for sample_index in range(request.first_sample, request.first_sample + request.n):
                    yield Completion(request.request_id, sample_index, (), (), reason, ())
            while pending:
                done, pending = wait(pending, return_when=FIRST_COMPLETED)
                for finished in done:
                    yield from finished.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self._streaming = False

    def load(self, update: WeightUpdate) -> Metrics:
        """Sends the weights to every worker of the server; later requests follow them.

        Raises:
            RuntimeError: a stream is under way; its tokens could not be told apart by version.
            WeightUpdateError: the update does not fit the ``layout``.
            ServerError: the server has no developer endpoints or no weight receiver, or refused.
        """
        if self._streaming:
            raise RuntimeError("exhaust or close the running stream before load()")
        started = time.perf_counter()
        tensors = dict(update.tensors)
        if self._layout is not None:
            tensors = self._layout.distinct(update, self._arrived)
        try:
            for bucket in _buckets(tensors):
                self._post(f"{self._root}/collective_rpc", {"method": "receive_encoded", "args": [_encoded(bucket)]})
            if update.is_last:
                self._post(f"{self._root}/collective_rpc", {"method": "finish_encoded"})
                self._post(f"{self._root}/update_weight_version", {"new_version": str(update.version)})
                self._post(f"{self._root}/reset_prefix_cache?reset_running_requests=true", {})
        except ServerError as error:
            raise ServerError(
                f"weights {update.version} could not be pushed; the server needs VLLM_SERVER_DEV_MODE=1 and "
                f"--worker-extension-cls rlinf.samplers.vllm_weights.WeightReceiver: {error}"
            ) from error
        self._version = update.version
        moved = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        return {"weight_update_s": time.perf_counter() - started, "weight_update_bytes": float(moved)}

    def sleep(self) -> None:
        """Nothing to do: the server's memory is not shared with a learner."""

    def wake(self) -> None:
        """Nothing to do."""

    def _complete(self, request: SampleRequest) -> list[Completion]:
        """One HTTP request: all responses of a prompt."""
        params = request.params
        greedy = params.temperature == 0.0
        limit, _ = limit_of(request, self._max_model_len)
        stops = set(params.stop_token_ids) | (set() if params.ignore_eos else self._eos_token_ids)
        # The server gives response j of a request the seed plus j: a stream per sample, wherever the group begins.
        key = stream_key(self._seed, (*request.key, len(request.prefix)), 0) >> 2
        body = {
            "model": self._model,
            "prompt": [*request.prompt_ids, *request.prefix],
            "n": request.n,
            "seed": key + request.first_sample,
            "max_tokens": limit,
            "temperature": params.temperature,
            "top_k": 0 if greedy else params.top_k,
            "top_p": 1.0 if greedy else params.top_p,
            "repetition_penalty": params.repetition_penalty,
            "stop_token_ids": sorted(stops),
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
        }
        answer = self._post(f"{self._base}/completions", body)
        completions = []
        for choice in answer["choices"]:
            if choice.get("token_ids") is None:
                raise ServerError(f"{self._base} returns no token ids: it must support return_token_ids (vLLM does)")
            tokens = tuple(choice["token_ids"])
            completions.append(
                Completion(
                    request_id=request.request_id,
                    sample_index=request.first_sample + choice["index"],
                    token_ids=tokens,
                    logprobs=tuple(choice["logprobs"]["token_logprobs"]),
                    finish_reason=choice["finish_reason"],
                    policy_version=(self._version,) * len(tokens),
                )
            )
        return completions

    def _served_model(self, name: str | None) -> dict[str, Any]:
        """The server's description of model ``name``, or of the only one it serves."""
        models = {model["id"]: model for model in self._post(f"{self._base}/models", None)["data"]}
        if name is None and len(models) == 1:
            return dict(next(iter(models.values())))
        if name not in models:
            raise ServerError(f"{self._base} serves {sorted(models)}: set rollout.server.model to one of them")
        return dict(models[name])

    def _check_logprobs(self) -> None:
        """Draws one token where one is allowed: its log-probability is 0 exactly when processing comes first."""
        body = {"model": self._model, "prompt": [0], "max_tokens": 1, "allowed_token_ids": [0], "logprobs": 0}
        (choice,) = self._post(f"{self._base}/completions", body)["choices"]
        (logprob,) = choice["logprobs"]["token_logprobs"]
        if abs(logprob) > 1e-4:
            raise ServerError(
                f"{self._base} reports log-probabilities from before temperature, top-k and top-p: "
                "start it with --logprobs-mode processed_logprobs"
            )

    def _post(self, url: str, body: Mapping[str, Any] | None) -> Any:
        """The decoded answer to a POST of ``body`` (a GET for None).

        Raises:
            ServerError: no answer within ``timeout_s``, or a status other than success.
        """
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise ServerError(f"{url} answered {error.code}: {error.read().decode(errors='replace')[:500]}") from error
        except TimeoutError as error:
            raise ServerError(
                f"{url} gave no answer within {self._timeout_s:g} s (rollout.server.timeout_s)"
            ) from error
        except OSError as error:
            raise ServerError(f"{url} can't be reached: {error}") from error
        return json.loads(text) if text else None


def _buckets(tensors: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The tensors in portions of about :data:`_BUCKET_BYTES`, so that no HTTP body holds a whole model."""
    bucket: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors.items():
        bytes_ = tensor.numel() * tensor.element_size()
        if bucket and size + bytes_ > _BUCKET_BYTES:
            yield bucket
            bucket, size = {}, 0
        bucket[name] = tensor
        size += bytes_
    if bucket:
        yield bucket


def _encoded(bucket: Mapping[str, Tensor]) -> str:
    """The tensors as base64 of the safetensors format: remote calls of the server carry text only."""
    from safetensors.torch import save

    # A copy each: safetensors refuses tensors that share memory, as the weights of a bucket may.
    return base64.b64encode(save({n: t.detach().cpu().clone().contiguous() for n, t in bucket.items()})).decode()
