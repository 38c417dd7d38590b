"""Samples from a running OpenAI-compatible server (``vllm serve``), for setups that keep inference separate.

The server is started with::

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode processed_logprobs --generation-config vllm \\
        --worker-extension-cls rlinf.samplers.vllm_weights.WeightReceiver

(on a CPU also ``--no-enable-chunked-prefill``, without which vLLM can't serve seeded requests there; of a
vision-language model also ``--enable-scale-out``, behind which prompts may have tokens and pictures). The
log-probabilities option is required (a probe checks it); developer mode and the worker extension are what
:meth:`ServerSampler.load` pushes weights through. They let anyone who reaches the port exchange the weights:
keep it inside a trusted network.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torch import Tensor

from rlinf.data.messages import Completion, Metrics, SampleRequest, WeightUpdate
from rlinf.data.pictures import as_data, digest
from rlinf.data.split import split_by_size
from rlinf.models.weight_digest import DigestRequest, Digests
from rlinf.models.weight_update import WeightLayout, figures
from rlinf.samplers import server_digests
from rlinf.samplers.requests import limit_of
from rlinf.samplers.server_answers import Question, ServerEngine
from rlinf.samplers.server_http import Server, ServerError
from rlinf.samplers.session import EngineSession, SessionSampler
from rlinf.samplers.sight import Sight, with_placeholders
from rlinf.samplers.streams import stream_key
from rlinf.schema.rollout import ServerConfig

_BUCKET_BYTES = 64 << 20


class ServerSampler(SessionSampler):
    """A :class:`rlinf.interfaces.Sampler` behind HTTP.

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
        abortable: bool = True,
        sight: Sight | None = None,
    ) -> None:
        """``layout`` of the served model, if given, lets :meth:`load` name weights that do not fit.

        ``abortable`` has every token sent at once; without it a response comes in one piece, which costs the server
        less, and :meth:`abort` is refused. ``sight``: of a vision-language model; pictures are sent as ``data:`` URLs,
        and the server's own image processor reads them.

        Raises:
            ServerError: nothing answers at ``config.base_url``, it reports log-probabilities before processing, or
                it cannot leave tokens of pictures out of the distribution.
        """
        if not config.base_url:
            raise ValueError("rollout.sampler: server needs rollout.server.base_url, such as http://host:8000/v1")
        self._server = Server(config.base_url, timeout_s=config.timeout_s, api_key_env=config.api_key_env)
        self._eos_token_ids = frozenset(eos_token_ids)
        self._seed = seed
        self._layout = layout
        self._abortable = abortable
        self._sight = sight
        self._version = 0
        self._pushed = False
        self._arrived: set[str] = set()
        self._session: EngineSession | None = None
        served = self._served_model(config.model)
        self._model: str = served["id"]
        # The server cuts prompts and responses at its own limit, which may be the smaller one.
        self._max_model_len = min(max_model_len, served.get("max_model_len") or max_model_len)
        self._check_logprobs()
        if sight is not None and sight.excluded:
            self._exclude(sight.excluded)

    # -- sampling ----------------------------------------------------------------------------------------------------

    def session(self) -> EngineSession:
        """Open a session; :meth:`load` is refused until it is closed.

        The server's own prefix cache serves conversations.

        Raises:
            RuntimeError: a stream or another session of this sampler is open.
            ServerError: the server has lost the weights of the last :meth:`load`.
        """
        if self._session is not None:
            raise RuntimeError("this sampler is streaming already: close that stream or session first")
        self._check_weights()

        def on_close() -> None:
            self._session = None

        self._session = EngineSession(
            ServerEngine(
                self._server,
                question=self._question,
                version=self._version,
                max_model_len=self._max_model_len,
                on_close=on_close,
            )
        )
        return self._session

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """End these requests of the running stream: their responses as far as they are, finish reason "abort".

        They can be continued, also under newer weights, by requests that have the tokens as ``prefix``.

        Raises:
            RuntimeError: the sampler was not made ``abortable``: parts of the responses would be missing.
        """
        if not self._abortable:
            raise RuntimeError("this sampler was not made abortable: its responses come in one piece")
        return [] if self._session is None else self._session.abort(request_ids)

    # -- weights -----------------------------------------------------------------------------------------------------

    def load(self, update: WeightUpdate) -> Metrics:
        """Send the weights to every worker of the server; later requests follow them.

        Raises:
            RuntimeError: a stream is under way; its tokens could not be distinguished by version.
            WeightUpdateError: the update does not fit the ``layout``.
            ServerError: the server has no developer endpoints or no weight receiver, or refused.
        """
        if self._session is not None:
            raise RuntimeError("exhaust or close the running stream or session before load()")
        started = time.perf_counter()
        tensors = dict(update.tensors)
        if self._layout is not None:
            tensors = self._layout.distinct(update, self._arrived)
        call, root = self._server.call, self._server.root
        try:
            # No HTTP body holds a whole model.
            for names in split_by_size(((name, tensor.nbytes) for name, tensor in tensors.items()), _BUCKET_BYTES):
                bucket = _encoded({name: tensors[name] for name in names})
                call(f"{root}/collective_rpc", {"method": "receive_encoded", "args": [bucket]})
            if update.is_last:
                call(f"{root}/collective_rpc", {"method": "finish_encoded"})
                call(f"{root}/update_weight_version", {"new_version": str(update.version)})
                call(f"{root}/reset_prefix_cache?reset_running_requests=true", {})
                if self._sight is not None:
                    call(f"{root}/reset_encoder_cache", {})
        except ServerError as error:
            raise ServerError(
                f"weights {update.version} could not be pushed; the server needs VLLM_SERVER_DEV_MODE=1 and "
                f"--worker-extension-cls rlinf.samplers.vllm_weights.WeightReceiver: {error}"
            ) from error
        if update.is_last:
            self._version, self._pushed = update.version, True
        return figures(tensors, time.perf_counter() - started)

    def held_digests(self, requests: Mapping[str, DigestRequest]) -> Digests | str:
        """Read back the requested weights (``requests``) from the server; return a sentence if it cannot do that."""
        try:
            return server_digests.held(self._server, requests)
        except ServerError as error:
            return (
                f"{self._server.name} does not read its weights back; it needs --worker-extension-cls "
                f"rlinf.samplers.vllm_weights.WeightReceiver of this version of rlinf ({error})"
            )

    def sleep(self) -> None:
        """Nothing to do: the server's memory is not shared with a learner."""

    def wake(self) -> None:
        """Nothing to do."""

    # -- requests ----------------------------------------------------------------------------------------------------

    def _question(self, request: SampleRequest) -> Question:
        """Build the HTTP request for all responses of a prompt."""
        params = request.params
        greedy = params.temperature == 0.0
        limit, _ = limit_of(request, self._max_model_len)
        stops = set(params.stop_token_ids) | (set() if params.ignore_eos else self._eos_token_ids)
        # The server gives response j of a request the seed plus j: a stream per sample, wherever the group begins.
        key = stream_key(self._seed, (*request.key, len(request.prefix)), 0) >> 2
        sampling = {
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
            # The end of a response is sent at once whatever the interval is. Were the tokens before it held back,
            # aborting would throw away more of the responses that go on than of those that end.
            "stream_interval": 1 if self._abortable else limit,
        }
        tokens = [*request.prompt_ids, *request.prefix]
        body = {"model": self._model, "stream": True, "return_token_ids": True}
        if not request.pictures:
            url = f"{self._server.base}/completions"
            return Question(url, {**body, "prompt": tokens, **sampling})
        url = f"{self._server.root}/inference/v1/generate"
        shown = self._shown(tokens, request.pictures)
        return Question(url, {**body, **shown, "sampling_params": sampling}, len(tokens))

    def _shown(self, tokens: Sequence[int], pictures: Sequence[str]) -> dict[str, Any]:
        """Write a prompt whose pictures the server reads: tokens go both ways, a placeholder for each picture."""
        if self._sight is None or self._sight.placeholder is None:
            raise ServerError("the tokenizer has no token for pictures, by which a server would find them")
        parts = [{"type": "image_url", "url": as_data(uri), "uuid": digest(uri)} for uri in pictures]
        plain = with_placeholders(tokens, pictures, self._sight.reader, self._sight.placeholder)
        return {"token_ids": plain, "content_parts": parts}

    # -- what the server is ------------------------------------------------------------------------------------------

    def _served_model(self, name: str | None) -> dict[str, Any]:
        """Return the server's description of model ``name``, or of the only one it serves."""
        models = {model["id"]: model for model in self._server.call(f"{self._server.base}/models")["data"]}
        if name is None and len(models) == 1:
            return dict(next(iter(models.values())))
        if name not in models:
            raise ServerError(f"{self._server.name} serves {sorted(models)}: set rollout.server.model to one of them")
        return dict(models[name])

    def _check_logprobs(self) -> None:
        """Draw one token of which only one is allowed: its log-probability is 0 exactly when processing comes first."""
        body = {"model": self._model, "prompt": [0], "max_tokens": 1, "allowed_token_ids": [0], "logprobs": 0}
        answer = self._server.call(f"{self._server.base}/completions", body)
        try:
            logprob = answer["choices"][0]["logprobs"]["token_logprobs"][0]
        except (LookupError, TypeError) as error:
            raise ServerError(
                f"{self._server.name} reports no log-probabilities of tokens as vLLM's server does: {answer!r:.200}"
            ) from error
        if abs(logprob) > 1e-4:
            raise ServerError(
                f"{self._server.name} reports log-probabilities from before temperature, top-k and top-p: "
                "start it with --logprobs-mode processed_logprobs"
            )

    def _exclude(self, ids: Sequence[int]) -> None:
        """Take tokens out of the server's distribution, until it ends."""
        try:
            self._server.call(f"{self._server.root}/collective_rpc", {"method": "exclude", "args": [list(ids)]})
        except ServerError as error:
            raise ServerError(
                f"{self._server.name} cannot leave the tokens of pictures out of its distribution; it needs "
                "VLLM_SERVER_DEV_MODE=1 and --worker-extension-cls rlinf.samplers.vllm_weights.WeightReceiver of this "
                f"version of rlinf: {error}"
            ) from error

    def _check_weights(self) -> None:
        """Check that the server was not restarted: it would answer with the weights it was started with, without a
        sign."""
        if not self._pushed:
            return
        result = self._server.call(f"{self._server.root}/weight_info")["weight_version"]
        if result != str(self._version):
            raise ServerError(
                f"{self._server.name} has weights {result!r} instead of {self._version}: was it restarted, or does "
                "another run push to it? Start this run again to push the weights of its last checkpoint"
            )


def _encoded(bucket: Mapping[str, Tensor]) -> str:
    """Encode the tensors as base64 of the safetensors format: remote calls of the server carry text only."""
    from safetensors.torch import save

    # A copy each: safetensors refuses tensors that share memory, as the weights of a bucket may.
    return base64.b64encode(save({n: t.detach().cpu().clone().contiguous() for n, t in bucket.items()})).decode()
