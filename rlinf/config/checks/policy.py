"""Checks of the policy's parts."""

from __future__ import annotations

import sys
from dataclasses import fields

from rlinf.base.machine import installed
from rlinf.base.packages import install_command
from rlinf.config.context import Context
from rlinf.config.derived import is_text, is_vla, learns_on_gpus, text_only_parts
from rlinf.models.architecture_numbers import read_architecture, written_config
from rlinf.models.checkpoint_files import without_token_head
from rlinf.models.vision.families import FAMILIES, REFUSED
from rlinf.schema.policy import VisionConfig


def check_policy(context: Context) -> None:
    """Check that a language model has weights or an architecture, and that adapters fit the learner."""
    policy = context.config.policy
    context.run(_check_origin)
    context.run(_check_head)
    context.run(_check_docstrings)
    context.run(_check_attention)
    context.run(_check_fused_logprobs)
    context.run(_check_logits_dtype)
    context.run(_check_comparison)
    backend = context.config.learner.backend
    if policy.lora.rank > 0 and (backend == "megatron" or (backend == "fsdp" and not is_text(context.config))):
        fix = "Set policy.lora.rank: 0, or learner.backend: torch (language models: or fsdp)."
        message = f"policy.lora is not supported by learner.backend: {backend}"
        if backend == "megatron":
            message += ": its layers hold several weights of a checkpoint each, and peft adapts single ones"
        context.error("policy.lora.rank", f"{message}.", fix)
    if policy.lora.rank == 0:
        for name in ("alpha", "dropout", "target_modules"):
            why = "is not read while policy.lora.rank is 0."
            context.unread(f"policy.lora.{name}", why, "Set policy.lora.rank: 16, for example.")
    if policy.lora.rank > 0 and not policy.lora.target_modules:
        fix = "Write target_modules: [q_proj, v_proj], for example."
        context.error("policy.lora.target_modules", "policy.lora.target_modules is empty: nothing would train.", fix)


def _check_attention(context: Context) -> None:
    if context.config.policy.attention == "flash_attention_2" and not installed("flash_attn"):
        message = "policy.attention: flash_attention_2 needs the package flash-attn and a GPU; it is not installed."
        fix = "Set policy.attention: sdpa, whose kernels on a GPU are fused as well, or install flash-attn."
        context.error("policy.attention", message, fix)


def _check_fused_logprobs(context: Context) -> None:
    config, name = context.config, "policy.fused_logprobs"
    if config.policy.fused_logprobs != "liger":
        return
    sampling, fix = config.rollout, f"Set {name}: builtin, which keeps no logits either."
    if not installed("liger_kernel"):
        message = f"{name}: liger needs the package liger-kernel and a GPU; it is not installed."
        context.error(name, message, f"{fix[:-1]}, or: {install_command('liger')}")
    elif not learns_on_gpus(config):
        message = f"{name}: liger is for GPUs, and the learner computes on the CPU."
        context.error(name, message, f"{fix} To plan for a cluster: cluster.gpu_memory_gb.")
    elif config.learner.backend == "megatron":
        context.error(name, f"{name}: liger is not supported by learner.backend: megatron, which splits logits.", fix)
    elif sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.repetition_penalty != 1.0:
        message = f"{name}: liger computes no distribution that top_k, top_p or repetition_penalty change."
        context.error(name, message, fix)


def _check_logits_dtype(context: Context) -> None:
    config, name = context.config, "policy.logits_dtype"
    if config.policy.logits_dtype != "float32":
        return
    if config.learner.backend == "megatron":
        message = f"{name}: float32 is not supported by learner.backend: megatron, whose output layer has one dtype."
        context.error(name, message, f"Set {name}: auto, or learner.backend: torch or fsdp.")
    elif config.policy.fused_logprobs == "liger":
        message = f"{name}: float32 is not supported by policy.fused_logprobs: liger, which multiplies in policy.dtype."
        context.error(name, message, f"Set {name}: auto, or policy.fused_logprobs: builtin.")


def _check_comparison(context: Context) -> None:
    """Check that there is something to compare with float32, and a learner that does so."""
    backend, key = context.config.learner.backend, "learner.compare_float32_every"
    if backend != "torch":
        context.unread(key, f"is not read by learner.backend: {backend}.", "Set learner.backend: torch.")
    elif context.config.policy.dtype == "float32":
        why = "is not read with policy.dtype: float32: there is nothing to compare."
        context.unread(key, why, "Set policy.dtype: bfloat16.")


def _check_origin(context: Context) -> None:
    policy = context.config.policy
    nowhere = policy.path is None and not policy.architecture  # read first, and so cited before policy.name
    if not is_text(context.config):
        return
    if nowhere:
        message = "the policy has neither a path nor an architecture."
        fix = "Set policy.path to a Hugging Face folder or name, or policy.architecture to {model_type: qwen2, ...}."
        context.error("policy.path", message, fix)
    elif policy.path is not None and policy.architecture:
        why = f"is not read: policy.path ({policy.path}) brings its own."
        context.unread("policy.architecture", why, "Keep one: policy.architecture=null takes it out.")
    elif policy.architecture and "model_type" not in policy.architecture:
        message = "policy.architecture does not name its model_type."
        context.error("policy.architecture", message, "Add model_type: qwen2 (or qwen3, llama).")


def _check_head(context: Context) -> None:
    """Check that folders of policy and teacher hold models that predict tokens, not encoders or models of scores."""
    config = context.config
    if not is_text(config) or ":" in config.policy.name:
        return
    for key, path in (("policy.path", config.policy.path), ("teacher.path", config.teacher.path)):
        wrong = without_token_head(written_config(path)) if path is not None else None
        if wrong is not None:
            context.error(key, f"{key}: {path}: {wrong}.", "Take a causal language model (...ForCausalLM).")


def _check_docstrings(context: Context) -> None:
    """Check that Python keeps docstrings: transformers makes its models with parts of them."""
    if sys.flags.optimize > 1 and (is_text(context.config) or is_vla(context.config)):
        message = "Python runs without docstrings (-OO, or PYTHONOPTIMIZE=2), which transformers needs to make models."
        context.error("policy.path", message, "Take it out; -O (PYTHONOPTIMIZE=1) works.")


def check_vision(context: Context) -> None:
    """Check that a policy that reads pictures has a sampler and a learner that do; no other reads `policy.vision`."""
    config = context.config
    if not is_text(config):
        return
    kind = read_architecture(config.policy).get("model_type")
    if kind in REFUSED:
        key = "policy.architecture.model_type" if config.policy.path is None else "policy.path"
        context.error(key, f"{key}: {kind}: {REFUSED[str(kind)]}.", f"Take one of {', '.join(FAMILIES)}.")
    elif kind in FAMILIES:
        for key, message, fix in text_only_parts(config):
            context.error(key, message, fix)
    elif config.policy.path is None:
        for name in ("evaluation.pictures", *(f"policy.vision.{item.name}" for item in fields(VisionConfig))):
            context.unread(name, "is not read: the policy is no vision-language model.", "Take it out.")
