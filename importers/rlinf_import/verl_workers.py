"""verl's model, samplers, learner and fully asynchronous training."""

from __future__ import annotations

import math

from rlinf_import.batches import share_of_run, warmup
from rlinf_import.models import adapters, precision, schedule
from rlinf_import.sheet import Sheet

_ACTOR, _ROLLOUT, _MODEL = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.model."
_FSDP, _MEGATRON = f"{_ACTOR}fsdp_config.", f"{_ACTOR}megatron."
_SAMPLERS = {"vllm": "vllm", "hf": "hf"}
_LAYOUT = {
    "tensor_model_parallel_size": "tensor_parallel",
    "pipeline_model_parallel_size": "pipeline_parallel",
    "context_parallel_size": "context_parallel",
    "expert_model_parallel_size": "expert_parallel",
    "virtual_pipeline_model_parallel_size": "virtual_pipeline",
    "sequence_parallel": "sequence_parallel",
    "use_distributed_optimizer": "distributed_optimizer",
}


def model(sheet: Sheet) -> None:
    """Set the model and its adapters."""
    sheet.copy("path", "enable_gradient_checkpointing", under=_MODEL)
    rank = f"{_MODEL}lora.rank" if sheet.count(f"{_MODEL}lora.rank") else f"{_MODEL}lora_rank"
    if sheet.count(rank):
        names = ("lora.alpha", "lora.target_modules") if rank.endswith(".rank") else ("lora_alpha", "target_modules")
        adapters(sheet, rank, f"{_MODEL}{names[0]}", f"{_MODEL}{names[1]}", f"{_MODEL}lora.dropout")
    for name in ("lora_rank", "lora_alpha", "target_modules", "lora"):
        sheet.ignore(f"{_MODEL}{name}", "without a rank above 0 nothing reads it")
    kernel = sheet.text(f"{_MODEL}override_config.attn_implementation")
    if kernel in ("sdpa", "eager", "flash_attention_2"):
        sheet.put("policy.attention", kernel, f"{_MODEL}override_config.attn_implementation")


def gpus(sheet: Sheet) -> int:
    """GPUs of all machines that train."""
    nodes, each = sheet.count("trainer.nnodes"), sheet.count("trainer.n_gpus_per_node")
    return (nodes or 1) * (each or 8)


def rollout(sheet: Sheet) -> None:
    """Set samplers and how they sample."""
    name = sheet.text(f"{_ROLLOUT}name")
    if name:
        sheet.put("rollout.sampler", _SAMPLERS.get(name, "vllm"), f"{_ROLLOUT}name")
        if name not in _SAMPLERS:
            sheet.differ(f"{_ROLLOUT}name", "samplers are hf, vllm or a server: vllm is set")
    sheet.copy("n", under=_ROLLOUT)
    temperature = sheet.number(f"{_ROLLOUT}temperature")
    if sheet.take(f"{_ROLLOUT}do_sample") is False:
        temperature = 0.0
    if temperature is not None:
        sheet.put("rollout.temperature", temperature, f"{_ROLLOUT}temperature", f"{_ROLLOUT}do_sample")
    sheet.copy("top_p", "top_k", under=_ROLLOUT)
    if sheet.value("rollout.sampler") == "vllm":
        sheet.copy("gpu_memory_utilization", "max_num_seqs", "enforce_eager", "enable_chunked_prefill", under=_ROLLOUT)
        sheet.copy("enable_prefix_caching", under=_ROLLOUT)
        length = sheet.count(f"{_ROLLOUT}max_model_len")
        if length:
            sheet.put("rollout.vllm.max_model_len", length, f"{_ROLLOUT}max_model_len")
        _copies(sheet)
    free = sheet.take(f"{_ROLLOUT}free_cache_engine")
    if isinstance(free, bool):
        sheet.put("rollout.sleep", "always" if free else "never", f"{_ROLLOUT}free_cache_engine")
    _validation(sheet)


def _copies(sheet: Sheet) -> None:
    parallel = sheet.count(f"{_ROLLOUT}tensor_model_parallel_size") or 1
    sheet.put("rollout.vllm.tensor_parallel_size", parallel, f"{_ROLLOUT}tensor_model_parallel_size")
    own = (sheet.count("rollout.nnodes") or 0) * (sheet.count("rollout.n_gpus_per_node") or 8)
    keys = ("rollout.nnodes", "rollout.n_gpus_per_node") if own else ("trainer.nnodes", "trainer.n_gpus_per_node")
    sheet.put("rollout.num_samplers", max(1, (own or gpus(sheet)) // parallel), *keys)
    if own:
        sheet.put("cluster.placement", "separate", *keys)


def _validation(sheet: Sheet) -> None:
    section = f"{_ROLLOUT}val_kwargs."
    drawn = sheet.take(f"{section}do_sample")
    temperature = sheet.number(f"{section}temperature")
    if drawn is True and temperature is not None:
        sheet.put("evaluation.temperature", temperature, f"{section}temperature", f"{section}do_sample")
    samples = sheet.count(f"{section}n")
    if samples and samples > 1 and drawn is True and temperature:
        sheet.put("evaluation.samples", samples, f"{section}n")
    sheet.ignore(f"{_ROLLOUT}val_kwargs", "evaluations are greedy, or sample with rollout.top_p and rollout.top_k")


def learner(sheet: Sheet) -> None:
    """Set backend, layout, optimiser and precision."""
    strategy = sheet.text(f"{_ACTOR}strategy")
    backend = {"fsdp": "fsdp", "fsdp2": "fsdp", "megatron": "megatron"}.get(strategy)
    if any(key.startswith(_MEGATRON) for key, _ in sheet.source.leaves()):
        backend = "megatron"
    causes = [] if backend == "megatron" and strategy != "megatron" else [f"{_ACTOR}strategy"]
    sheet.put("learner.backend", backend or "fsdp", *causes)
    engine = sheet.text("hydra_choice.model_engine")
    if engine in ("fsdp", "megatron"):
        sheet.ignore("hydra_choice.model_engine", f"learner.backend is {backend or 'fsdp'}")
    elif engine:
        sheet.differ("hydra_choice.model_engine", "learners are torch, fsdp or megatron: fsdp is set")
    sheet.ignore(f"{_ACTOR}strategy", "keys of actor.megatron choose learner.backend: megatron")
    if backend is None:
        sheet.differ(f"{_ACTOR}strategy", "learners are torch, fsdp or megatron: fsdp is set")
    sheet.put("learner.num_workers", gpus(sheet), "trainer.nnodes", "trainer.n_gpus_per_node")
    if backend == "megatron":
        for theirs, ours in _LAYOUT.items():
            sheet.copy_as(f"{_MEGATRON}{theirs}", f"learner.megatron.{ours}")
        recompute = sheet.text(f"{_MEGATRON}override_transformer_config.recompute_granularity")
        if recompute in ("full", "selective"):
            key = f"{_MEGATRON}override_transformer_config.recompute_granularity"
            sheet.put("learner.megatron.recompute", recompute, key)
    why = "sequences are split over ranks by learner.megatron.context_parallel alone; results do not depend on it"
    for key in (f"{_ACTOR}ulysses_sequence_parallel_size", f"{_FSDP}ulysses_sequence_parallel_size"):
        sheet.ignore(key, why)
    _optimiser(sheet)
    if sheet.take(f"{_ACTOR}use_dynamic_bsz") is True:
        tokens = sheet.count(f"{_ACTOR}ppo_max_token_len_per_gpu")
        if tokens:
            sheet.put("learner.micro_batch_tokens", tokens, f"{_ACTOR}ppo_max_token_len_per_gpu")
    for part, ours in (("param", "weights"), ("optimizer", "optimizer")):
        for section in (_FSDP, _MEGATRON):
            value = sheet.take(f"{section}{part}_offload")
            if isinstance(value, bool):
                sheet.put(f"learner.offload.{ours}", value, f"{section}{part}_offload")
    key = f"{_FSDP}model_dtype" if sheet.written(f"{_FSDP}model_dtype") else f"{_FSDP}dtype"
    if sheet.text(key):
        precision(sheet, key)
        sheet.differ(key, "policy.dtype is that of activations; master weights stay float32")


def _optimiser(sheet: Sheet) -> None:
    sheet.copy("optim.lr", "optim.weight_decay", "optim.betas", "grad_clip", "optim.clip_grad", under=_ACTOR)
    rate = f"{_ACTOR}optim.lr_scheduler_type"
    for key in (f"{_ACTOR}optim.warmup_style", f"{_ACTOR}optim.lr_decay_style", rate):
        if sheet.text(key):
            schedule(sheet, key)
    if sheet.value("learner.optimizer.schedule") in ("cosine", "linear"):
        sheet.copy("optim.min_lr_ratio", under=_ACTOR)
    steps = sheet.number(f"{_ACTOR}optim.lr_warmup_steps")
    if steps and steps > 0:
        warmup(sheet, steps, "iterations", f"{_ACTOR}optim.lr_warmup_steps")
    sheet.ignore(f"{_ACTOR}optim.lr_warmup_steps", "it is off, and so it is here")


def warm_share(sheet: Sheet) -> None:
    """Set the warm-up as a share of the run, once its length is set."""
    steps = sheet.number(f"{_ACTOR}optim.lr_warmup_steps")
    if steps is None or steps <= 0:
        share_of_run(sheet, f"{_ACTOR}optim.lr_warmup_steps_ratio")
    sheet.ignore(f"{_ACTOR}optim.lr_warmup_steps_ratio", "lr_warmup_steps decides, or it is off")


def asynchronous(sheet: Sheet) -> None:
    """Fully asynchronous training: batches are required samples, and weights may be older than one iteration."""
    if sheet.count("data.train_batch_size"):
        return
    part = sheet.count(f"{_ACTOR}ppo_mini_batch_size") or 256
    batches = sheet.count("async_training.require_batches") or 1
    keys = (f"{_ACTOR}ppo_mini_batch_size", "async_training.require_batches", "data.train_batch_size")
    sheet.put("rollout.batch_size", part * batches, *keys)
    sheet.put("algorithm.num_minibatches", batches, "async_training.require_batches")
    stale = sheet.number("async_training.staleness_threshold") or 0.0
    every = sheet.count("async_training.trigger_parameter_sync_step") or 1
    aged = ("async_training.staleness_threshold", "async_training.trigger_parameter_sync_step")
    sheet.put("rollout.staleness", max(1, math.ceil(stale * every)), *aged)
    sheet.differ(aged[0], "rollout.staleness is the age of weights in training iterations")
    total = sheet.count("rollout.total_rollout_steps")
    if total:
        sheet.put("run.max_steps", max(1, total // (part * batches)), "rollout.total_rollout_steps")
