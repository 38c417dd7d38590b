"""Keys that only some kinds of policy read: ``policy.name`` decides which kind a run is."""

from __future__ import annotations

import functools
from pathlib import Path

from rlinf.base.user_code import nearest_module
from rlinf.config.context import Context
from rlinf.config.derived import is_text, trains_on_files_alone
from rlinf.config.extras import OWN_ENVIRONMENT, simulator_extra
from rlinf.config.machine import installed
from rlinf.config.names import leaves
from rlinf.schema.derived import AGENT, VERIFIERS

_TEXT = (
    "algorithm.max_len_mask",
    "algorithm.overlong_penalty",
    "data",
    "env.max_turns",
    "env.num_tasks",
    "evaluation.samples",
    "learner.compare_float32_every",
    "learner.pack",
    "policy.architecture",
    "policy.attention",
    "reward_model",
    "rollout.gap_limit",
    "rollout.gap_steps",
    "rollout.generation_batch_size",
    "rollout.keep_cache",
    "rollout.max_conversation_tokens",
    "rollout.max_new_tokens",
    "rollout.over_sampling",
    "rollout.replay_arrivals",
    "rollout.sleep",
    "rollout.repetition_penalty",
    "rollout.sampler",
    "rollout.server",
    "rollout.top_k",
    "rollout.top_p",
    "rollout.vllm",
    "algorithm.opd_coef",
    "sft.data",
    "sft.dpo_beta",
    "sft.dpo_imitation",
    "sft.eval_data",
    "sft.eval_fraction",
    "sft.loss",
    "sft.max_tasks",
    "sft.max_tokens",
    "teacher",
)
_LANGUAGE = (
    "learner.offload",
    "policy.dtype",
    "policy.gradient_checkpointing",
    "policy.lora",
    "policy.tokenizer",
    "policy.value_head",
    "rollout.temperature",
)
_SIMULATORS = (
    "algorithm.entropy_type",
    "algorithm.logprob_type",
    "algorithm.n_step",
    "algorithm.prior_data",
    "algorithm.prior_rename",
    "algorithm.prior_share",
    "algorithm.replay_batch_size",
    "algorithm.replay_capacity",
    "algorithm.replay_ratio",
    "algorithm.replay_start",
    "algorithm.reward_type",
    "algorithm.sac_alpha",
    "algorithm.sac_target_entropy",
    "algorithm.double_q",
    "algorithm.epsilon_end",
    "algorithm.epsilon_start",
    "algorithm.epsilon_steps",
    "algorithm.exploration_noise",
    "algorithm.policy_delay",
    "algorithm.priority_correction",
    "algorithm.priority_exponent",
    "algorithm.random_shift",
    "algorithm.sequence_length",
    "algorithm.burn_in",
    "algorithm.target_noise",
    "algorithm.target_noise_clip",
    "algorithm.target_tau",
    "algorithm.target_update_every",
    "env.auto_reset",
    "env.frame_stack",
    "env.reset_state_ids",
    "evaluation.reset_state_ids",
    "env.ignore_terminations",
    "env.isolation",
    "env.max_episode_steps",
    "env.normalize_observations",
    "env.normalize_rewards",
    "env.num_action_chunks",
    "env.num_envs",
    "env.vectorization",
    "env.wrappers",
    "evaluation.num_envs",
    "evaluation.video_episodes",
    "evaluation.video_every",
    "evaluation.words",
    "rollout.act_in",
    "rollout.num_steps",
    "rollout.merge_requests",
    "rollout.pipeline_stages",
    "sft.dagger_rounds",
    "sft.dagger_share",
    "sft.dataset",
    "sft.dataset_stride",
    "sft.demonstrations",
    "sft.expert",
    "sft.image_shift",
    "sft.color_jitter",
    "sft.perturbation",
    "sft.rename",
)
ACTOR_CRITIC = (
    "policy.activation",
    "policy.distribution",
    "policy.critic_layer_norm",
    "policy.dueling",
    "policy.embedding_size",
    "policy.distribution_options",
    "policy.encoder",
    "policy.encoder_options",
    "policy.hidden_sizes",
    "policy.init_log_std",
    "policy.recurrent",
    "policy.shared_critic",
)

OWN = "module:Class"
"""Stands for every policy of a user's own."""
READERS: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (("causal_lm",), "by language models", _TEXT),
    (("causal_lm", "vla", "flow"), "by language models and vla policies", _LANGUAGE),
    (("actor_critic", "vla", "flow", OWN), "by simulator policies", _SIMULATORS),
    (("actor_critic",), "by simulator policies with policy.name: actor_critic", ACTOR_CRITIC),
    (("vla", "flow"), "by policy.name: vla and flow", ("policy.vla", "learner.recompute_logprobs")),
    (("flow",), "by policy.name: flow", ("policy.flow",)),
)
"""Policies by name, what they are called in a message, and the keys or sections that only they read."""


def check_kind(context: Context) -> None:
    """Report keys of other kinds, and a run without an environment."""
    tasks = context.config.env.tasks
    named = context.config.env.id or (tasks and is_text(context.config))
    if not named and not trains_on_files_alone(context.config):
        fix = "Add `env:` with `id: rlinf_envs:rlinf/ReasoningGym-v0`, or any other gymnasium id."
        if context.config.sft.data is not None:
            fix += " Supervised training alone needs none: rlinf sft, or run.max_steps: 0."
        context.error("env.id", "env.id is missing: there is nothing to train on.", fix)
    _check_module(context)
    name = OWN if ":" in context.config.policy.name else context.config.policy.name
    for readers, words, sections in READERS:
        if name in readers:
            continue
        fix = f"Take it out, or choose policy.name: {readers[0]}."
        why = f"is read only {words}, and this policy is {context.config.policy.name}."
        for key in _keys_of(sections):
            context.unread(key, why, fix, reads=("policy.name",))


@functools.cache
def _keys_of(sections: tuple[str, ...]) -> list[str]:
    """The keys that ``sections`` name or hold, in the order of the schema."""
    within = tuple(f"{section}." for section in sections)
    return [key for key in leaves() if key in sections or key.startswith(within)]


def _check_module(context: Context) -> None:
    """``module:Id`` needs its module."""
    env = context.config.env
    for name, simulator in OWN_ENVIRONMENT.items():
        if env.id.startswith(simulator.begins) and env.isolation == "none" and not installed(simulator.module):
            message = f"env.id: {name} is not installed here; its pins clash with ours."
            context.error(
                "env.id", message, f"Give it an environment of its own: {simulator.fix}.", reads=("env.isolation",)
            )
    module, colon, _ = env.id.removeprefix(AGENT).partition(":")
    top = module.partition(".")[0]
    foreign = env.isolation == "process" or env.id.startswith(VERIFIERS)
    if not colon or foreign or not top.isidentifier():
        return
    if not installed(top) and not Path(f"{top}.py").exists() and not Path(top).is_dir():
        message = f"env.id: there is no module {top} here{nearest_module(top)}."
        extra = simulator_extra(env.id)
        fix = "Install what brings it, or write rlinf_envs:rlinf/ReasoningGym-v0 for an environment of ours."
        if extra is not None:
            fix = f"Install it: {extra.fix}."
        context.error("env.id", message, fix, reads=("env.isolation",))
