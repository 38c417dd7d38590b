"""Keys that only text, or only simulators, read: ``policy.name`` decides which of the two a run is."""

from __future__ import annotations

from pathlib import Path

from rlinf.config.context import Context
from rlinf.config.extras import simulator_extra
from rlinf.config.machine import installed
from rlinf.config.names import leaves

TEXT_ONLY = (
    "algorithm.max_len_mask",
    "algorithm.overlong_penalty",
    "cluster.gpus_per_sampler",
    "data",
    "env.max_turns",
    "evaluation.samples",
    "learner.pack",
    "policy.architecture",
    "policy.attention",
    "policy.dtype",
    "policy.gradient_checkpointing",
    "policy.lora",
    "policy.tokenizer",
    "policy.value_head",
    "reward_model",
    "rollout.generation_batch_size",
    "rollout.max_new_tokens",
    "rollout.num_samplers",
    "rollout.repetition_penalty",
    "rollout.sampler",
    "rollout.server",
    "rollout.temperature",
    "rollout.top_k",
    "rollout.top_p",
    "rollout.vllm",
    "sft",
)
SIMULATOR_ONLY = (
    "algorithm.entropy_type",
    "algorithm.logprob_type",
    "algorithm.n_step",
    "algorithm.replay_batch_size",
    "algorithm.replay_capacity",
    "algorithm.replay_ratio",
    "algorithm.replay_start",
    "algorithm.reward_type",
    "algorithm.sac_alpha",
    "algorithm.sac_target_entropy",
    "algorithm.sac_tau",
    "env.auto_reset",
    "env.frame_stack",
    "env.ignore_terminations",
    "env.isolation",
    "env.max_episode_steps",
    "env.normalize_observations",
    "env.normalize_rewards",
    "env.num_action_chunks",
    "env.num_envs",
    "env.python",
    "env.success_key",
    "env.vectorization",
    "env.wrappers",
    "evaluation.num_envs",
    "evaluation.video_episodes",
    "evaluation.video_every",
    "policy.activation",
    "policy.distribution",
    "policy.embedding_size",
    "policy.encoder",
    "policy.hidden_sizes",
    "policy.init_log_std",
    "policy.recurrent",
    "policy.shared_critic",
    "rollout.num_steps",
    "rollout.pipeline_stages",
)


def is_text(context: Context) -> bool:
    """Whether the policy is a language model on tasks (else it acts in a simulator)."""
    return context.config.policy.name == "causal_lm"


def check_kind(context: Context) -> None:
    """Report keys of the other kind, and a run without an environment."""
    if not context.config.env.id:
        fix = "Add `env:` with `id: rlinf_envs:rlinf/ReasoningGym-v0`, or any other gymnasium id."
        context.error("env.id", "env.id is missing: there is nothing to train on.", fix)
    _check_module(context)
    name = context.config.policy.name
    if name == "multimodal":
        message = "policy.name: multimodal is not built yet."
        fix = "Choose actor_critic: it reads Dict observations of images, states and tokens."
        context.error("policy.name", message, fix)
        context.broken.add("policy.name")
        return
    sections = SIMULATOR_ONLY if is_text(context) else TEXT_ONLY
    only = "by simulator policies" if is_text(context) else "by language models"
    other = "policy.name: actor_critic" if is_text(context) else "policy.name: causal_lm"
    for section in sections:
        for key in leaves():
            if key == section or key.startswith(f"{section}."):
                why = f"is read only {only}, and this policy is {name}."
                context.unread(key, why, f"Take it out, or choose {other}.", reads=("policy.name",))


def _check_module(context: Context) -> None:
    """``module:Id`` needs its module."""
    env = context.config.env
    module, colon, _ = env.id.partition(":")
    top = module.partition(".")[0]
    if not colon or env.isolation == "process" or not top.isidentifier():
        return
    if not installed(top) and not Path(f"{top}.py").exists() and not Path(top).is_dir():
        message = f"env.id: there is no module {top} here."
        extra = simulator_extra(env.id)
        fix = "Install what brings it, or write rlinf_envs:rlinf/ReasoningGym-v0 for an environment of ours."
        if extra is not None:
            fix = f"Install it: {extra.fix}."
        context.error("env.id", message, fix, reads=("env.isolation",))
