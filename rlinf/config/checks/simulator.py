"""Simulator runs: what is not built yet is refused, and keys that the chosen kind of rollout ignores are reported."""

from __future__ import annotations

import os
from pathlib import Path

from rlinf.algorithms import catalog
from rlinf.base.json_text import parse_json
from rlinf.config.context import Context, neighbours
from rlinf.config.defaults import value_of
from rlinf.config.derived import (
    acts_in,
    collects_episodes,
    has_warm_start,
    is_off_policy,
    is_offline,
    is_text,
    is_vla,
    prior_transitions,
)
from rlinf.config.experiment import Config
from rlinf.config.extras import OWN_ENVIRONMENT
from rlinf.config.names import facts_of, leaves
from rlinf.schema.key import ACTOR_CRITIC

_SAMPLER_KEYS = (
    "rollout.merge_requests",
    "rollout.pipeline_stages",
    "rollout.num_samplers",
    "cluster.gpus_per_sampler",
)

# A policy that is loaded brings these with it.
_SHAPE = (
    "policy.tokenizer",
    "policy.value_head",
    "policy.vla",
    "policy.flow",
    *(key for key in leaves() if facts_of(key).read_by is ACTOR_CRITIC),
    "env.normalize_observations",
    "env.normalize_from",
)
_NATIVE = (
    "env.tasks",
    "env.wrappers",
    "env.reset_state_ids",
    "env.ignore_terminations",
    "env.frame_stack",
    "env.action_mask",
    "env.num_action_chunks",
)
_OF_A_DEMONSTRATOR = ("demonstrations", "perturbation", "dagger_rounds", "dagger_share", "gate")
_OF_A_DATASET = ("dataset_stride", "rename")
_ACTS_BY_NORMAL = ("sac", "tqc", "crossq")
_ACTS_BY = {
    **dict.fromkeys(_ACTS_BY_NORMAL, ("squashed_gaussian",)),
    "discrete_sac": ("categorical",),
}
_WITHOUT_HINDSIGHT: tuple[tuple[str, object, str, str], ...] = (
    ("algorithm.n_step", 1, "a return of several steps is of the goal that they were made for", "Set it to 1."),
    ("algorithm.priority_exponent", 0.0, "priorities are of transitions with their own goal", "Set it to 0."),
    (
        "env.num_action_chunks",
        1,
        "a chunk's reward is the sum of several, of which one goal is recorded",
        "Set it to 1.",
    ),
    ("env.normalize_rewards", False, "relabelled rewards are the environment's own", "Take it out."),
    ("env.frame_stack", 1, "stacked goals are none that compute_reward takes", "Set it to 1."),
    ("env.tasks", [], "rewards are computed by the environment of one task", "Take it out."),
)
_UNREAD_OFF_POLICY = (
    "policy.init_log_std",
    "policy.shared_critic",
    "learner.micro_batch_tokens",
    "learner.optimizer.name",
    "learner.optimizer.betas",
    "learner.optimizer.eps",
    "learner.optimizer.schedule",
    "learner.optimizer.warmup_steps",
    "learner.optimizer.weight_decay",
)


def check_simulator(context: Context) -> None:
    """Refuse or report every written key that a simulator run does not read."""
    if is_text(context.config):
        return
    context.run(_check_unbuilt)
    context.run(_check_wrappers)
    context.run(_check_layout)
    context.run(_check_native)
    context.run(_check_isolation)
    context.run(_check_policy)
    context.run(_check_warm_start)
    context.run(_check_levels)
    context.run(_check_dueling)
    context.run(_check_mask)
    context.run(_check_state_dependent_noise)
    env = context.config.env
    if env.frame_stack == 1:
        context.unread("env.frame_padding", "is not read with env.frame_stack: 1.", "Set env.frame_stack: 4.")
    if not env.normalize_observations and not env.normalize_rewards:
        why = "is not read without env.normalize_observations or env.normalize_rewards."
        context.unread("env.normalize_from", why, "Set one of them to true.")
    elif env.normalize_from is not None and context.config.policy.name != "actor_critic":
        message = f"env.normalize_from: policy.name: {context.config.policy.name} begins without statistics."
        context.error("env.normalize_from", message, "Take it out.")
    if is_off_policy(context.config):
        context.run(_check_off_policy)


def _check_unbuilt(context: Context) -> None:
    """Report options that simulators are to have one day: a run that ignored them would not be the requested one."""
    config = context.config
    backend, vla = config.learner.backend, is_vla(config)
    if backend == "megatron" or (backend == "fsdp" and not vla):
        trains = "language models" if backend == "megatron" else "language models and vla policies"
        message = f"learner.backend: {backend} trains {trains} only."
        context.error("learner.backend", message, "Set learner.backend: torch.")
    if config.evaluation.temperature not in (0.0, 1.0):
        message = "evaluation.temperature: simulator policies are not sharpened or flattened."
        fix = "Write 0 for the most likely action, or 1 to draw from the policy."
        context.error("evaluation.temperature", message, fix)


def _check_wrappers(context: Context) -> None:
    for wrapper in context.config.env.wrappers:
        if not isinstance(wrapper, str) and len(wrapper) != 1:
            message = f"env.wrappers: {wrapper or '{}'} is not one wrapper with its arguments."
            fix = "For example: [{RescaleAction: {min_action: -1, max_action: 1}}, FlattenObservation]."
            context.error("env.wrappers", message, fix)


def _check_layout(context: Context) -> None:
    """Check that keys have a reader: a step is a number of whole episodes, or of decisions of every env."""
    config = context.config
    if collects_episodes(config):
        why = f"is not read by adv_type: {config.algorithm.adv_type}, whose steps are whole episodes."
        context.unread("rollout.num_steps", why, "Set rollout.batch_size (start states per step).")
        return
    chosen = f"loss_type: {config.algorithm.loss_type}" if is_off_policy(config) else "adv_type: gae"
    steps = "updates on recorded transitions" if is_offline(config) else "rollout.num_steps decisions of every env"
    why = f"is not read by {chosen}, whose steps are {steps}."
    for key in ("rollout.batch_size", "algorithm.group_size", "env.auto_reset"):
        context.unread(key, why, "Take it out, or choose adv_type: grpo.")
    for name in ("dynamic_sampling", "filter_rewards", "difficulty_mask"):
        if getattr(config.algorithm, name):
            message = f"algorithm.{name} compares whole episodes, and a step of {chosen} cuts them."
            context.error(f"algorithm.{name}", message, "Take it out, or choose adv_type: grpo.")


def _check_native(context: Context) -> None:
    config = context.config
    if config.env.vectorization != "native":
        return
    if collects_episodes(config):
        message = "env.vectorization: native cannot start episodes from given seeds, which whole episodes need."
        context.error("env.vectorization", message, "Set it to auto.")
    for key in _NATIVE:
        if context.changed(key):
            message = f"{key}: env.vectorization: native takes the environment as it is."
            context.error(key, message, "Set env.vectorization: auto.")


def _check_isolation(context: Context) -> None:
    env = context.config.env
    if env.isolation == "none":
        why = "is not read with env.isolation: none."
        context.unread("env.python", why, "Set env.isolation: process.")
        return
    if env.vectorization == "native":
        message = "env.vectorization: native vector environments cannot be isolated: they step in the env worker."
        context.error("env.vectorization", message, "Set it to auto.")
    if env.python is not None and not os.access(env.python, os.X_OK):
        message = f"env.python: {env.python} is no program that can be started."
        fix = "Name the interpreter of the environment's virtual environment: path/to/venv/bin/python."
        context.error("env.python", message, fix)
    elif env.python is not None:
        for simulator in OWN_ENVIRONMENT.values():
            lacks = simulator.missing_assets(env.python) if env.id.startswith(simulator.begins) else ""
            if lacks and simulator.assets_key not in env.kwargs:
                fix = f"make venvs/{simulator.module}, or write env.kwargs: {{{simulator.assets_key}: FOLDER}}."
                context.error("env.python", f"env.python: {lacks}, which {env.id} draws with.", fix)


def _check_policy(context: Context) -> None:
    policy = context.config.policy
    if policy.path is not None:
        for key in _SHAPE:
            why = f"is not read: policy.path ({policy.path}) brings its own."
            context.unread(key, why, "Take it out.")
        return
    if policy.distribution in ("categorical", "beta"):
        why = f"is not read by policy.distribution: {policy.distribution}."
        context.unread("policy.init_log_std", why, "Take it out.")
    if policy.recurrent != "none":
        why = f"is not read: a policy with recurrent: {policy.recurrent} always shares its layers with the critic."
        context.unread("policy.shared_critic", why, "Take it out.")
    if any(width < 1 for width in policy.hidden_sizes):
        message = f"policy.hidden_sizes must be widths of at least 1, not {policy.hidden_sizes}."
        context.error("policy.hidden_sizes", message, "For example: [64, 64].")


def _check_warm_start(context: Context) -> None:
    sft = context.config.sft
    if not has_warm_start(context.config):
        for key in context.switched_off("sft.steps", (*_OF_A_DEMONSTRATOR, "dataset", *_OF_A_DATASET)):
            context.unread(key, "is not read without a warm start.", "Set sft.steps: 200, for example.")
    elif sft.dataset is None:
        for name in _OF_A_DATASET:
            context.unread(f"sft.{name}", "is not read without sft.dataset.", "Take it out.")
    else:
        for name in (*_OF_A_DEMONSTRATOR, "expert"):
            why = "is not read with sft.dataset, whose episodes are imitated."
            context.unread(f"sft.{name}", why, "Take it out.")
    if sft.dagger_rounds == 0:
        why = "is not read while sft.dagger_rounds is 0."
        for name in ("dagger_share", "gate"):
            context.unread(f"sft.{name}", why, "Set sft.dagger_rounds: 3, for example.")
    elif context.config.policy.recurrent != "none":
        message = "sft.dagger_rounds needs single decisions of the policy, and a recurrent one needs all before them."
        context.error("sft.dagger_rounds", message, "Set policy.recurrent: none, or sft.dagger_rounds: 0.")
    if sft.gate is not None:
        context.unread("sft.dagger_share", "is not read with sft.gate, which decides who acts.", "Take it out.")


def _check_levels(context: Context) -> None:
    """Check that an advantage has a position to go to; with one action a decision, an action is a chunk."""
    algorithm, chunk = context.config.algorithm, context.config.env.num_action_chunks
    if chunk > 1 and algorithm.reward_type == "action_level" and algorithm.logprob_type == "chunk_level":
        message = (
            f"algorithm.reward_type: action_level gives each of the {chunk} actions of a decision an advantage, and "
            "with logprob_type: chunk_level they share one log-probability."
        )
        fix = "Set algorithm.logprob_type: action_level (or token_level), or reward_type: chunk_level."
        context.error("algorithm.reward_type", message, fix)


def _check_off_policy(context: Context) -> None:
    config = context.config
    name, entry = config.algorithm.loss_type, catalog.off_policy(config.algorithm.loss_type)
    ranks, drawn = config.learner.num_workers, config.algorithm.replay_batch_size
    if ranks > 1 and entry.one_rank:
        message = f"learner.num_workers: loss_type: {name} has one rank: {entry.one_rank}."
        context.error("learner.num_workers", message, "Set it to 1.")
    elif drawn % ranks:
        message = f"learner.num_workers {ranks} does not divide algorithm.replay_batch_size {drawn}:"
        context.error("learner.num_workers", message, f"use {neighbours(ranks, drawn)}.")
    if ":" in config.policy.name:
        message = f"policy.name: loss_type: {name} has networks of its own, and {config.policy.name} is none of them."
        context.error("policy.name", message, "Set it to actor_critic, or choose adv_type: gae.")
    if config.policy.distribution not in ("auto", *_ACTS_BY.get(name, ())):
        acts = f"acts by a {_ACTS_BY[name][0]}" if name in _ACTS_BY else "has no distribution to choose"
        message = f"policy.distribution: loss_type: {name} {acts}, not {config.policy.distribution}."
        context.error("policy.distribution", message, "Set it to auto.")
    if not config.policy.hidden_sizes:
        message = f"policy.hidden_sizes: loss_type: {name} needs a hidden layer at least."
        context.error("policy.hidden_sizes", message, "For example: [64, 64].")
    if has_warm_start(config):
        message = f"sft.steps: loss_type: {name} learns from transitions, not from demonstrations."
        context.error("sft.steps", message, "Set it to 0, or choose adv_type: grpo.")
    if entry.discrete and config.env.num_action_chunks > 1:
        message = f"env.num_action_chunks: loss_type: {name} has a value for each action, and a chunk has too many."
        context.error("env.num_action_chunks", message, "Set it to 1.")
    unread = [key for key in _UNREAD_OFF_POLICY if not (config.policy.use_sde and key == "policy.init_log_std")]
    for key in (*unread, f"learner.optimizer.{'critic_lr' if entry.one_network else 'grad_clip'}"):
        context.unread(key, f"is not read by loss_type: {name}.", "Take it out.")
    if entry.offline:
        context.run(_check_offline)
    else:
        context.run(_check_prior)
    context.run(_check_memory)
    context.run(_check_hindsight)
    if config.algorithm.priority_exponent == 0:
        why = "is not read without algorithm.priority_exponent."
        context.unread("algorithm.priority_correction", why, "Add priority_exponent: 0.6.")
    policy = config.policy
    if name == "tqc" and config.algorithm.dropped_quantiles >= policy.num_quantiles:
        message = f"algorithm.dropped_quantiles {config.algorithm.dropped_quantiles} leaves none of the "
        message += f"{policy.num_quantiles} of a critic (policy.num_quantiles)."
        context.error("algorithm.dropped_quantiles", message, f"Use at most {policy.num_quantiles - 1}.")
    if config.algorithm.sac_alpha != "auto":
        why = f"is not read with a fixed algorithm.sac_alpha ({config.algorithm.sac_alpha})."
        context.unread("algorithm.sac_target_entropy", why, "Set sac_alpha: auto.")


def _check_prior(context: Context) -> None:
    """Check the recorded transitions that are added to those of the run."""
    algorithm, ranks = context.config.algorithm, context.config.learner.num_workers
    if algorithm.prior_data is None:
        for name in ("prior_share", "prior_rename"):
            why = "is not read without algorithm.prior_data."
            context.unread(f"algorithm.{name}", why, "Name a dataset.")
        return
    recorded = prior_transitions(context.config.algorithm)
    if not 0 < recorded < algorithm.replay_batch_size:
        message = f"algorithm.prior_share {algorithm.prior_share} of {algorithm.replay_batch_size} transitions is "
        message += "none of them, or all."
        context.error("algorithm.prior_share", message, "Set it to 0.5, for example.")
    elif recorded % ranks or (algorithm.replay_batch_size - recorded) % ranks:
        message = f"learner.num_workers {ranks} does not divide the {recorded} transitions of algorithm.prior_data and "
        message += f"the {algorithm.replay_batch_size - recorded} of the run that are in each update."
        context.error("learner.num_workers", message, "Change replay_batch_size.")
    if algorithm.priority_exponent > 0:
        message = "algorithm.priority_exponent: recorded transitions have no priorities in a run's buffer."
        context.error("algorithm.priority_exponent", message, "Set it to 0, or take prior_data out.")
    if context.config.env.normalize_rewards:
        message = "env.normalize_rewards divides the run's rewards, and those of algorithm.prior_data stay as recorded."
        context.error("env.normalize_rewards", message, "Take it out.")


def _check_offline(context: Context) -> None:
    """Check that there are recorded transitions, and that an expectile is one."""
    algorithm, name = context.config.algorithm, context.config.algorithm.loss_type
    if algorithm.prior_data is None:
        message = f"algorithm.prior_data: loss_type: {name} learns from recorded transitions, and there are none."
        fix = "Name a folder that `rlinf record FILE --to-the-end --keep-failures --out DIR` writes."
        context.error("algorithm.prior_data", message, fix)
    if algorithm.expectile >= 1:
        message = f"algorithm.expectile must lie between 0 and 1, not {algorithm.expectile:g}."
        context.error("algorithm.expectile", message, "For example: 0.7.")
    why = f"is not read by loss_type: {name}, which takes no environment steps."
    for key in ("rollout.num_steps", "env.normalize_rewards"):
        context.unread(key, why, "Take it out.")


def _check_hindsight(context: Context) -> None:
    """Report keys that go with relabelled goals alone, and those that do not go with them."""
    config = context.config
    strategy = config.algorithm.hindsight
    if strategy == "none":
        why = "is not read without algorithm.hindsight."
        context.unread("algorithm.hindsight_goals", why, "Add hindsight: future.")
        return
    for key, without, why, fix in _WITHOUT_HINDSIGHT:
        if value_of(config, key) != without:
            context.error(key, f"{key} does not go with algorithm.hindsight: {strategy}: {why}.", fix)
    if "FlattenObservation" in config.env.wrappers:
        message = f"env.wrappers: FlattenObservation hides the goals that algorithm.hindsight: {strategy} relabels."
        context.error("env.wrappers", message, "Take it out: policy.encoder: auto reads all parts of an observation.")


def _check_dueling(context: Context) -> None:
    """Options of the networks that only some losses have."""
    name = context.config.algorithm.loss_type
    mine = catalog.off_policy(name).policy_options if is_off_policy(context.config) else ()
    readers: dict[str, list[str]] = {}
    for other, entry in catalog.OFF_POLICY.items():
        for key in entry.policy_options:
            readers.setdefault(key, []).append(other)
    for key, others in readers.items():
        if key not in mine:
            context.unread(key, f"is not read by loss_type: {name}.", f"It is read by loss_type: {', '.join(others)}.")


def _check_mask(context: Context) -> None:
    """Check that the policy reads the mask of legal actions."""
    config, loss = context.config, context.config.algorithm.loss_type
    if config.env.action_mask is None:
        return
    if config.policy.name in ("vla", "flow"):
        message = f"env.action_mask: policy.name: {config.policy.name} does not read which actions are legal."
        context.error("env.action_mask", message, "Take it out, or set policy.name: actor_critic.")
    if config.env.num_action_chunks > 1:
        message = "env.action_mask: the legal actions of a chunk are known only for its first."
        context.error("env.action_mask", message, "Set env.num_action_chunks: 1.")
    if is_off_policy(config) and not catalog.off_policy(loss).discrete:
        message = f"env.action_mask: loss_type: {loss} has continuous actions, which have no mask."
        context.error("env.action_mask", message, "Take it out, or choose loss_type: dqn.")
    if loss == "discrete_sac" and config.algorithm.sac_alpha == "auto" and config.algorithm.sac_target_entropy is None:
        message = "env.action_mask: the entropy that sac_alpha: auto steers to counts all actions, legal or not."
        fix = "Set algorithm.sac_target_entropy (0.5 for half a dozen legal actions), or a number for sac_alpha."
        context.error("algorithm.sac_target_entropy", message, fix)


def _check_state_dependent_noise(context: Context) -> None:
    """Check that the noise that depends on the state is that of normal actions."""
    policy, loss = context.config.policy, context.config.algorithm.loss_type
    if not policy.use_sde:
        context.unread("policy.sde_sample_freq", "is not read without policy.use_sde.", "Add use_sde: true.")
    elif is_off_policy(context.config) and loss not in _ACTS_BY_NORMAL:
        message = f"policy.use_sde: loss_type: {loss} has no normal actions whose noise could depend on the state."
        context.error("policy.use_sde", message, f"Take it out, or choose loss_type: {', '.join(_ACTS_BY_NORMAL)}.")
    elif policy.distribution not in ("auto", "gaussian", "squashed_gaussian"):
        message = f"policy.use_sde is of normal actions, not of policy.distribution: {policy.distribution}."
        context.error("policy.use_sde", message, "Set policy.distribution: gaussian or squashed_gaussian.")
    elif policy.sde_sample_freq == 0:
        message = "policy.sde_sample_freq 0 is no number of decisions."
        context.error("policy.sde_sample_freq", message, "Use -1 to draw once a rollout, or 1 for each decision.")


def check_acting(context: Context) -> None:
    """Only samplers have stages, and every stage has envs."""
    config = context.config
    if is_text(context.config):
        return
    if acts_in(config) == "worker":
        for key in _SAMPLER_KEYS:
            why = "is not read where policies act inside the env workers."
            context.unread(key, why, "Set rollout.act_in: sampler, or take it out.")
        return
    stages = config.rollout.pipeline_stages
    fewest = config.env.num_envs // config.env.num_workers
    if stages > fewest:
        message = f"rollout.pipeline_stages {stages} is more than the {fewest} envs of a worker."
        context.error("rollout.pipeline_stages", message, f"Use at most {max(fewest, 1)}.")
    if stages > 1 and config.env.vectorization == "native":
        message = "env.vectorization: native steps all envs together, which leaves nothing to overlap."
        fix = "Set env.vectorization: sync, or rollout.pipeline_stages: 1."
        context.error("env.vectorization", message, fix)


_OF_SEQUENCES = ("algorithm.sequence_length", "algorithm.burn_in")
_WITHOUT_MEMORY: tuple[tuple[str, object, str], ...] = (
    ("algorithm.n_step", 1, "returns of several steps"),
    ("algorithm.priority_exponent", 0.0, "priorities"),
    ("algorithm.prior_data", None, "recorded transitions, whose recurrent states were not stored"),
    ("algorithm.random_shift", 0, "image augmentation"),
    ("algorithm.hindsight", "none", "other goals"),
)


def _check_memory(context: Context) -> None:
    """Report keys of sequences without a memory, and what a memory of an off-policy run rules out."""
    config = context.config
    algorithm, name = config.algorithm, config.algorithm.loss_type
    if not _remembers(config):
        for key in _OF_SEQUENCES:
            why = "is not read without policy.recurrent: transitions are sampled one by one."
            context.unread(key, why, "Set policy.recurrent: gru.")
        return
    if not catalog.off_policy(name).recurrent_policy:
        others = ", ".join(other for other, entry in catalog.OFF_POLICY.items() if entry.recurrent_policy)
        message = f"policy.recurrent: loss_type: {name} learns from single transitions, without memory."
        context.error("policy.recurrent", message, f"Set it to none, or choose loss_type: {others}.")
        return
    for key, without, what in _WITHOUT_MEMORY:
        if value_of(config, key) != without:
            message = f"{key}: a policy with memory learns from sequences, which have no {what}."
            context.error(key, message, "Take it out, or set policy.recurrent: none.")
    length, whole = algorithm.sequence_length, algorithm.sequence_length + algorithm.burn_in
    ranks, drawn = config.learner.num_workers, algorithm.replay_batch_size
    if drawn % (length * ranks):
        message = f"algorithm.replay_batch_size {drawn} is no number of sequences of {length}"
        message += f" for each of {ranks} ranks." if ranks > 1 else "."
        nearest = max(1, round(drawn / (length * ranks))) * length * ranks
        context.error("algorithm.replay_batch_size", message, f"Set it to {nearest}.")
    needed = whole * config.env.num_envs
    for key in ("replay_start", "replay_capacity"):
        held = getattr(algorithm, key)
        if held < needed:
            message = f"algorithm.{key} {held} is less than one sequence of {whole} decisions (sequence_length and "
            message += f"burn_in) of each of {config.env.num_envs} environments."
            context.error(f"algorithm.{key}", message, f"Set it to {needed} or more.")


def _remembers(config: Config) -> bool:
    """Return whether an off-policy run's networks have a memory: requested, or that of an exported policy."""
    policy = config.policy
    if policy.path is None:
        return policy.recurrent != "none"
    try:
        exported = parse_json((Path(policy.path) / "policy.json").read_text())
    except (OSError, ValueError):  # a folder that the build has yet to refuse
        return False
    return isinstance(exported, dict) and exported.get("recurrent", "none") != "none"
