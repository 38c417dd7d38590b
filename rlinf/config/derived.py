"""What follows from a configuration: a function for each fact, and :class:`Facts`, all of a run's at once.

Checks and the plan call the functions, since a configuration that is being checked may be wrong. Of one that
passed them all facts are derived at once, when they are first used, and kept: ``config.facts``.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Literal

from rlinf.algorithms.catalog import OFF_POLICY, columns_of, estimator, loss
from rlinf.base.machine import gpu_count
from rlinf.base.redaction import public_url
from rlinf.config.placeholders import expand
from rlinf.schema import (
    AlgorithmConfig,
    EnvConfig,
    Sections,
)
from rlinf.schema.derived import (
    DerivedConfig,
    TextEnv,
    activation_dtype,
    gpus_per_learner,
    is_agent,
)
from rlinf.schema.env import TaskConfig

_EXACT_GAP, _ROUNDED_GAP = 0.02, 0.1
"""Nats: far above what rounding makes of the same log-probability in float32 (1e-6 to 1e-4) and in bfloat16 (0.01)."""


def run_directory(config: Sections) -> str:
    """``run.dir`` with its placeholders and ``~`` filled in; raises PlaceholderError for one that does not exist."""
    return os.path.expanduser(expand(config.run.dir, {"name": config.run.name, "seed": config.run.seed}))


def is_text(config: Sections) -> bool:
    """Whether the policy is a language model on tasks (else it acts in a simulator)."""
    return config.policy.name == "causal_lm"


def text_only_parts(config: Sections) -> list[tuple[str, str, str]]:
    """(key, message, fix) for each part of a run that does not read the pictures of a vision-language model."""
    results = []
    if config.learner.backend == "megatron":
        message = "learner.backend: megatron has no vision tower: it trains models of text."
        results.append(("learner.backend", message, "Set learner.backend: torch or fsdp."))
    if config.teacher.path is not None:
        message = "teacher.path: a teacher reads text alone, and the policy reads pictures."
        results.append(("teacher.path", message, "Take it out."))
    if config.reward_model.supervision != "none":
        message = "reward_model.supervision: a learned reward reads text alone, and the policy reads pictures."
        results.append(("reward_model.supervision", message, "Set it to none."))
    if is_agent(config.env.id):
        message = "env.id: agents send text alone to the policy, which reads pictures."
        results.append(("env.id", message, "Take an environment (docs/vision.md), or a model of text."))
    return results


def is_vla(config: Sections) -> bool:
    """Whether the policy has towers for vision and language, with action tokens or with a flow behind them."""
    return config.policy.name in ("vla", "flow")


def uses_pi0(config: Sections) -> bool:
    """Whether a flow is that of a PI0 model."""
    pi0 = config.policy.flow.pi0
    return config.policy.name == "flow" and (pi0.path is not None or bool(pi0.architecture))


def uses_published(config: Sections) -> bool:
    """Whether a flow is that of a published checkpoint."""
    return config.policy.name == "flow" and config.policy.flow.checkpoint.path is not None


def uses_openvla(config: Sections) -> bool:
    """Whether a policy of action tokens is a whole OpenVLA checkpoint."""
    return config.policy.name == "vla" and config.policy.vla.checkpoint.path is not None


def is_pretrained(config: Sections) -> bool:
    """Whether training begins from a pretrained language model, alone or inside of a `vla` policy."""
    policy = config.policy
    if is_vla(config):
        vla, flow = policy.vla, policy.flow
        paths = (policy.path, vla.language.path, vla.checkpoint.path, flow.pi0.path, flow.checkpoint.path)
        return any(path is not None for path in paths)
    return is_text(config) and policy.path is not None


def is_off_policy(config: Sections) -> bool:
    """Whether the learner keeps transitions in a replay buffer and takes batches without advantages."""
    return config.algorithm.loss_type in OFF_POLICY


def is_offline(config: Sections) -> bool:
    """Whether the learner takes recorded transitions alone, so that a run has no environment steps but evaluations."""
    return is_off_policy(config) and OFF_POLICY[config.algorithm.loss_type].offline


def collects_episodes(config: Sections) -> bool:
    """Whether an iteration of a simulator run is a number of whole episodes (else of decisions of every env)."""
    return "values" not in columns_of(config.algorithm.adv_type) and not is_off_policy(config)


def holds_fragments(config: Sections) -> bool:
    """Whether a row of a batch is a stretch of steps in a simulator, and no whole episode or conversation."""
    return not is_text(config) and not collects_episodes(config)


def text_envs(config: Sections) -> tuple[TextEnv, ...]:
    """Return the environments of a text run: those of `env.tasks`, or the one of `env.id`."""
    env, for_all = config.env, config.evaluation.env_kwargs or {}
    if not env.tasks:
        splits = {"train": env.kwargs, "eval": {**env.kwargs, **for_all}}
        return (TextEnv("", env.id, splits, env.max_turns),)
    return tuple(
        TextEnv(
            text_env_name(config, task),
            task.id or env.id,
            {
                "train": {**env.kwargs, **task.kwargs},
                "eval": {**env.kwargs, **task.kwargs, **for_all, **task.evaluation_kwargs},
            },
            env.max_turns if task.max_turns is None else task.max_turns,
            task.weight,
            task.evaluation_size,
        )
        for task in env.tasks
    )


def text_env_name(config: Sections, task: TaskConfig) -> str:
    """Return an environment's name in a mixture's metrics: its own, else its id's last part without the version.

    >>> tasks = TaskConfig(id="rlinf_envs:rlinf/Math-v0"), TaskConfig("sums")
    >>> tuple(text_env_name(Sections(), task) for task in tasks)
    ('Math', 'sums')
    """
    name = task.name or (task.id or config.env.id).rpartition(":")[2].rpartition("/")[2].partition("-v")[0]
    return name.replace(" ", "_").replace("/", "_")


def max_turns(config: Sections) -> int:
    """Return the most responses of the policy in one conversation, of all environments."""
    return max(env.max_turns for env in text_envs(config))


def compares_groups(config: Sections) -> bool:
    """Whether the advantage estimator compares the members of a group with one another."""
    try:
        compares = estimator(config.algorithm.adv_type).compares_groups
    except ValueError:  # a name that the configuration's check has yet to refuse
        return False
    return compares and not is_off_policy(config)


def needs_values(config: Sections) -> bool:
    """Return whether the critic must be evaluated before advantages are made."""
    algorithm = config.algorithm
    if is_off_policy(config):
        return False
    return "values" in estimator(algorithm.adv_type).needs or "values" in loss(algorithm.loss_type).needs


def needs_reference(config: Sections) -> bool:
    """Return whether a KL term requires the reference policy."""
    algorithm = config.algorithm
    in_reward = estimator(algorithm.adv_type).penalises_tokens(algorithm)
    return algorithm.kl_beta > 0 or (in_reward and algorithm.kl_coef > 0)


def keeps_reference(config: Sections) -> bool:
    """Whether the learner keeps a copy of its weights for reinforcement learning: for a KL term, or as a teacher."""
    return needs_reference(config) or config.teacher.past_policy in ("start", "average")


def teacher_name(config: Sections) -> str | None:
    """Name the teacher in words; None if there is none."""
    teacher = config.teacher
    past = {
        "none": None,
        "start": "the policy of the first step",
        "average": "the average of the policy's weights",
        "current": "the policy itself",
    }
    server = None if teacher.base_url is None else public_url(teacher.base_url)
    name = teacher.path or server or past[teacher.past_policy]
    return name if name is None or teacher.hint is None else f"{name}, with a hint in its prompt"


def recomputes_logprobs(config: Sections) -> bool:
    """Whether the learner evaluates a batch again though log-probabilities came with its actions."""
    configured = config.learner.recompute_logprobs
    return not is_vla(config) or (gpu_count() > 0 if configured is None else configured)


def prior_transitions(algorithm: AlgorithmConfig) -> int:
    """Transitions of `algorithm.prior_data` in each off-policy update."""
    return round(algorithm.replay_batch_size * algorithm.prior_share) if algorithm.prior_data is not None else 0


def rows_per_iteration(config: Sections) -> int:
    """Responses, or whole episodes, of one training iteration."""
    return config.rollout.batch_size * config.algorithm.group_size


def decisions_per_iteration(config: Sections) -> int:
    """Count the decisions of one training iteration if rows are fragments."""
    return config.env.num_envs * config.rollout.num_steps


def optimizer_steps_per_iteration(config: Sections) -> int:
    """Optimiser steps of one training iteration."""
    return config.algorithm.update_epochs * config.algorithm.num_minibatches


def conversation_tokens(config: Sections) -> int:
    """Return the most tokens after the first prompt: one response, or all turns with the environment's text between.

    Without `rollout.max_conversation_tokens` there is room for a whole response in every turn. There is also room
    for an answer of the environment between two of them, as long as a prompt may be.
    """
    limit, turns = config.rollout.max_conversation_tokens, max_turns(config)
    room = turns * config.rollout.max_new_tokens + (turns - 1) * config.data.max_prompt_length
    return room if limit is None else limit


def row_tokens(config: Sections) -> int:
    """Return the most tokens of a row of text: its prompt and its conversation."""
    return config.data.max_prompt_length + conversation_tokens(config)


def training_env(config: Sections) -> EnvConfig:
    """Return the environment of training."""
    return replace(config.env, start_timeout_s=config.cluster.start_timeout_s)


def evaluation_env(config: Sections) -> EnvConfig:
    """Return the environment of evaluations: that of training, with other arguments, on other start states."""
    return replace(
        training_env(config),
        kwargs={**config.env.kwargs, **(config.evaluation.env_kwargs or {})},
        reset_state_ids=config.evaluation.reset_state_ids,
    )


def acts_in(config: Sections) -> Literal["worker", "sampler"]:
    """Where the policy acts: with `rollout.act_in: auto`, a checkpoint is too large for every env worker."""
    rollout = config.rollout
    if rollout.act_in != "auto":
        return rollout.act_in
    flow, vla = config.policy.flow, config.policy.vla
    paths = (vla.language.path, vla.checkpoint.path, flow.pi0.path, flow.checkpoint.path)
    large = is_vla(config) and any(path is not None for path in paths)
    return "sampler" if large or rollout.pipeline_stages > 1 or rollout.num_samplers > 1 else "worker"


def driver_reads_tokens(config: Sections) -> bool:
    """Return whether tokens of a response are needed on the way from samplers to environments and learner.

    The next turn follows on the previous ones; texts that end a response are searched in it; a learned reward judges
    it; the experts of its tokens (`rollout.router_replay`) come with it.
    """
    judged = config.reward_model.supervision != "none"
    return bool(config.rollout.stop or judged or config.rollout.router_replay or max_turns(config) > 1)


def continues_responses(config: Sections) -> bool:
    """Whether what is unfinished when new weights come goes on under them; otherwise whole batches are collected ahead.

    A server can't be interrupted, nor can an agent's episode; greedy responses and a reward model's own samples belong
    to one batch and its weights.
    """
    if not (config.rollout.staleness > 0 and is_text(config)):
        return False
    alone = config.reward_model.supervision == "none" and "greedy_rewards" not in columns_of(config.algorithm.adv_type)
    return alone and config.rollout.sampler != "server" and not is_agent(config.env.id)


def learns_on_gpus(config: Sections) -> bool:
    """Return whether learner ranks will have GPUs: those of this machine, or of the one that the plan is for."""
    return gpus_per_learner(config.cluster, on_gpus=config.cluster.gpu_memory_gb is not None or gpu_count() > 0) > 0


def shares_gpus(config: Sections) -> bool:
    """Return whether samplers are put on the learner's GPUs, if there are any."""
    return config.cluster.placement != "separate"


def gap_limit(config: Sections, *, on_gpu: bool) -> float | None:
    """Return `rollout.gap_limit`, or for null a limit above rounding alone; None if more than rounding is expected.

    Caches of older weights, dropout in the learner and quantisation change log-probabilities by any amount.
    """
    rollout, policy = config.rollout, config.policy
    if rollout.gap_limit is not None:
        return rollout.gap_limit
    if rollout.keep_cache or (policy.lora.rank and policy.lora.dropout) or samples_quantised(config):
        return None
    sampled = rollout.vllm.dtype if rollout.sampler == "vllm" and rollout.vllm.dtype != "auto" else policy.dtype
    kinds = {activation_dtype(dtype, on_gpu=on_gpu) for dtype in (policy.dtype, sampled)}
    # A server computes in a precision of its own.
    return _EXACT_GAP if kinds == {"float32"} and rollout.sampler != "server" else _ROUNDED_GAP


def samples_quantised(config: Sections) -> bool:
    """Whether the engine keeps weights, or keys and values, in fewer bits than the learner (`rollout.vllm.extra`)."""
    extra, dtypes = config.rollout.vllm.extra, ("auto", "bfloat16", "float16", None)
    fewer = extra.get("quantization") is not None or extra.get("kv_cache_dtype", "auto") not in dtypes
    return fewer and config.rollout.sampler in ("vllm", "auto")


def has_warm_start(config: Sections) -> bool:
    """Whether supervised training comes first, however its length is given."""
    return config.sft.steps > 0 or config.sft.epochs is not None


def trains_on_files_alone(config: Sections) -> bool:
    """Whether a run is supervised training on `sft.data` and nothing else, so that it needs no environment."""
    return has_files_alone(config) and config.run.max_steps == 0


def has_files_alone(config: Sections) -> bool:
    """Whether `sft.data` is all that a language model has to train on."""
    return is_text(config) and not config.env.id and not config.env.tasks and config.sft.data is not None


def derive(config: Sections) -> DerivedConfig:
    """Derive all facts of a configuration that passed its checks."""
    rollout, shares = config.rollout, shares_gpus(config)
    return DerivedConfig(
        run_kind="supervised" if trains_on_files_alone(config) else "text" if is_text(config) else "simulator",
        run_dir=run_directory(config),
        vla=is_vla(config),
        pi0=uses_pi0(config),
        published=uses_published(config),
        openvla=uses_openvla(config),
        off_policy=is_off_policy(config),
        offline=is_offline(config),
        labelled=config.policy.name == "flow" and config.policy.flow.advantage,
        collects_episodes=collects_episodes(config),
        holds_fragments=holds_fragments(config),
        needs_values=needs_values(config),
        needs_reference=needs_reference(config),
        keeps_reference=keeps_reference(config),
        teacher=teacher_name(config),
        text_envs=text_envs(config),
        max_turns=max_turns(config),
        recomputes_logprobs=recomputes_logprobs(config),
        conversation_tokens=conversation_tokens(config),
        row_tokens=row_tokens(config),
        training_env=training_env(config),
        evaluation_env=evaluation_env(config),
        acts_in=acts_in(config),
        overlaps=rollout.staleness > 0,
        weight_transport="object_store" if config.cluster.backend == "local" else rollout.weight_transport,
        transfer_backend=None if rollout.weight_transport != "vllm" else "ipc" if shares else "nccl",
        shares_gpus=shares,
        driver_reads_tokens=driver_reads_tokens(config),
        continues_responses=continues_responses(config),
        gap_limits={on_gpu: gap_limit(config, on_gpu=on_gpu) for on_gpu in (False, True)},
        text_only_parts=text_only_parts(config),
    )
