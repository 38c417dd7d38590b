"""`rollout.router_replay`: that there are experts, that the sampler records them, and that the learner replays them."""

from __future__ import annotations

from rlinf.base.machine import gpu_count
from rlinf.config.checks.engine_flags import engine_arguments
from rlinf.config.context import Context
from rlinf.config.derived import is_text, max_turns, text_envs
from rlinf.models.architecture_numbers import decoder_shape
from rlinf.schema.derived import is_agent

KEY = "rollout.router_replay"
FLAG = "enable_return_routed_experts"
"""Of vLLM's engine."""


def check_router_replay(context: Context) -> None:
    """Check every part that the experts of a token pass through."""
    config = context.config
    if not config.rollout.router_replay or not is_text(config):
        return
    decoder = decoder_shape(config.policy)
    if decoder is not None and not decoder.experts:
        context.error(KEY, f"{KEY}: the policy has no experts.", "Take it out.")
    if config.rollout.sampler == "vllm":
        _check_engine(context)
    elif config.rollout.sampler != "hf":
        message = f"{KEY}: rollout.sampler: {config.rollout.sampler} does not say which experts a token was sent to."
        context.error("rollout.sampler", message, "Set rollout.sampler: hf, or vllm where it samples on a GPU.")
    if config.learner.backend == "megatron" and config.learner.megatron.recompute != "none":
        message = f"{KEY}: recomputed layers are computed after the experts of their micro-batch are forgotten."
        context.error("learner.megatron.recompute", message, "Set it to none.")
    if config.policy.gradient_checkpointing:
        message = f"{KEY}: policy.gradient_checkpointing computes a layer again after its experts are forgotten."
        context.error("policy.gradient_checkpointing", message, "Set it to false.")
    if max_turns(config) > 1 or any(is_agent(env.id) for env in text_envs(config)):
        message = f"{KEY}: the experts of a conversation's later turns are not recorded."
        context.error("env.max_turns", message, "Set env.max_turns: 1.", at=("env.id",))
    for name in ("staleness", "over_sampling"):
        if getattr(config.rollout, name):
            message = f"{KEY}: rollout.{name} continues responses under newer weights, whose experts are others."
            context.error(f"rollout.{name}", message, "Set it to 0.")


def _check_engine(context: Context) -> None:
    """Check that the installed vLLM returns experts, which its runner for CPUs does not."""
    known = engine_arguments()
    if known is not None and FLAG not in known:
        message = f"{KEY}: the installed vLLM has no argument {FLAG}."
        context.error("rollout.sampler", message, "Install vLLM 0.32 or newer, or set rollout.sampler: hf.")
    elif context.config.cluster.address is None and not gpu_count():
        message = f"{KEY}: vLLM returns the experts of a token on GPUs alone, and this machine has none."
        context.error("rollout.sampler", message, "Set rollout.sampler: hf.")
