"""Arguments of the engine that are passed through (`rollout.vllm.extra`), and those that a run sets itself."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path

from rlinf.base.packages import install_command
from rlinf.config.context import Context
from rlinf.config.names import nearest

_KEY = "rollout.vllm.extra"
_OURS = "Set {} instead."
_LEARNED = "the policy is the learner's, whose weights are loaded into it"
_DRAWN = "each response has a random stream of its own"
_PLACED = "samplers are placed by the cluster section"

RESERVED: Mapping[str, tuple[str, str]] = {
    "model": (_LEARNED, _OURS.format("policy.path")),
    "model_weights": (_LEARNED, _OURS.format("policy.path")),
    "revision": (_LEARNED, _OURS.format("policy.path")),
    "hf_overrides": (_LEARNED, _OURS.format("policy.architecture or policy.logits_dtype")),
    "hf_config_path": (_LEARNED, _OURS.format("policy.path")),
    "load_format": (_LEARNED, "Take it out."),
    "tokenizer": ("the engine is given token ids", _OURS.format("policy.tokenizer.path")),
    "skip_tokenizer_init": ("the engine is given token ids", "Take it out."),
    "dtype": ("the learner's precision decides it", _OURS.format("rollout.vllm.dtype")),
    "seed": (_DRAWN, _OURS.format("run.seed")),
    "logprobs_mode": (
        "log-probabilities must be those of the distribution that tokens are drawn from",
        "Take it out: rollout.temperature, top_k, top_p and repetition_penalty shape that distribution.",
    ),
    "generation_config": ("it would change the distribution unseen", _OURS.format("rollout.temperature")),
    "override_generation_config": ("it would change the distribution unseen", _OURS.format("rollout.temperature")),
    "max_model_len": ("it follows from the limits of a row", _OURS.format("rollout.vllm.max_model_len")),
    "max_num_seqs": ("it has a key", _OURS.format("rollout.vllm.max_num_seqs")),
    "gpu_memory_utilization": ("it has a key", _OURS.format("rollout.vllm.gpu_memory_utilization")),
    "kv_cache_memory_bytes": ("it has a key", _OURS.format("rollout.vllm.kv_cache_memory_mb")),
    "enable_prefix_caching": ("it has a key", _OURS.format("rollout.vllm.enable_prefix_caching")),
    "enable_chunked_prefill": ("it has a key", _OURS.format("rollout.vllm.enable_chunked_prefill")),
    "enforce_eager": ("it has a key", _OURS.format("rollout.vllm.enforce_eager")),
    "tensor_parallel_size": (_PLACED, _OURS.format("rollout.vllm.tensor_parallel_size")),
    "pipeline_parallel_size": (
        "new weights are loaded by tensor-parallel workers alone",
        _OURS.format("rollout.vllm.tensor_parallel_size"),
    ),
    "data_parallel_size": ("each sampler is an engine of its own", _OURS.format("rollout.num_samplers")),
    "device_ids": (_PLACED, _OURS.format("cluster.gpus_per_sampler")),
    "distributed_executor_backend": (_PLACED, "Take it out."),
    "enable_sleep_mode": ("samplers sleep while the learner works", _OURS.format("rollout.sleep")),
    "worker_cls": ("weights are loaded by a part of the worker", "Take it out."),
    "worker_extension_cls": ("weights are loaded by it", "Take it out."),
    "scheduler_cls": ("responses are stepped, aborted and continued by hand", "Take it out."),
    "enable_return_routed_experts": ("it has a key", _OURS.format("rollout.router_replay")),
    "enable_lora": ("adapters are merged into the weights that are sent", _OURS.format("policy.lora.rank")),
    "runner": ("the sampler generates", "Take it out."),
    "convert": ("the sampler generates", "Take it out."),
    "disable_log_stats": ("the engine has no log of its own", "Take it out."),
}
"""Argument -> why a run sets it itself, or may not have it, and what to write instead."""


@functools.cache
def engine_arguments() -> tuple[str, ...] | None:
    """Return the arguments of the installed vLLM's engine, in its order; None without vLLM.

    They are the fields of its class EngineArgs, read from the source: an import of vLLM takes seconds.
    """
    spec = importlib.util.find_spec("vllm")
    if spec is None or not spec.submodule_search_locations:
        return None
    source = Path(next(iter(spec.submodule_search_locations))) / "engine" / "arg_utils.py"
    if not source.is_file():
        return None
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == "EngineArgs":
            typed = [part.target for part in node.body if isinstance(part, ast.AnnAssign)]
            fields = [target.id for target in typed if isinstance(target, ast.Name)]
            return tuple(name for name in fields if not name.startswith("_"))
    return None


def check_engine_flags(context: Context) -> None:
    """Check that the engine has each argument, and that no promise of the run depends on it."""
    config = context.config
    flags = config.rollout.vllm.extra
    if not flags or context.is_broken(_KEY):
        return
    known = engine_arguments()
    for name in flags:
        plain = name.lstrip("-").replace("-", "_")
        key = f"{_KEY}.{name}"
        if plain in RESERVED:
            why, fix = RESERVED[plain]
            context.error(key, f"{key} can't be passed through: {why}.", fix, at=(_KEY,))
        elif known is not None and name not in known:
            result = [plain] if plain in known else nearest(plain, known, 3)
            fix = f"Did you mean {' or '.join(result)}?" if result else "`vllm serve --help` lists them."
            context.error(key, f"{key} is no argument of the installed vLLM.", fix, at=(_KEY,))
    if known is None:
        context.warnings.append(
            f"{_KEY} is not checked, because vLLM is not installed here ({install_command('vllm')}): "
            f"an argument that it has not ends the run when the engine starts."
        )
