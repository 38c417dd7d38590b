"""The processes of a text run: env workers verify, samplers generate, learner ranks train."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlinf.cluster import Cluster, RankInfo, Resources, WorkerGroup
from rlinf.cluster.weights.transport import choose
from rlinf.config import Config
from rlinf.config.machine import memory_bytes
from rlinf.config.plan.micro_batch import fitting_micro_batch
from rlinf.config.plan.precision import policy_dtype
from rlinf.config.schema import OffloadConfig
from rlinf.models.tokenizer_export import save_tokenizer
from rlinf.rollouts.text.demonstrations import TextDemonstrations
from rlinf.rollouts.text.env_worker import TextEnvWorker, text_env_worker, tokenizer_texts
from rlinf.rollouts.text.over_sampling import OverSamplingRollout
from rlinf.rollouts.text.prompts import prompt_renderer
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.samplers.build import build_sampler
from rlinf.samplers.spec import SamplerSpec, sampler_spec
from rlinf.train.build.devices import Devices
from rlinf.train.build.reward_model import learned_reward
from rlinf.train.build.text_learner import language_model, spawn_learners
from rlinf.train.build.tokenizer import kept_tokenizer, policy_tokenizer
from rlinf.train.evaluation.text import TextEvaluator
from rlinf.train.graph import Graph, nothing
from rlinf.train.preparation import OnPolicy
from rlinf.train.teacher import connect_teacher
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.sampler_pool import SamplerPool
from rlinf.train.workers.sampler_worker import SamplerWorker
from rlinf.train.workers.stored_weights import StoredWeights
from rlinf.train.workers.text_env_pool import TextEnvPool


def build_text_graph(config: Config, cluster: Cluster, folder: Path) -> Graph:
    """Starts all workers and puts them together."""
    devices = Devices.of(config)
    config, precision = settled(config, devices)
    envs = _environments(config, cluster)
    train, held_out = envs.facts("train"), envs.facts("eval")
    tokenizer = _tokenizer(config, envs, train.num_tasks, folder)
    path = str(folder / "tokenizer")
    spec = sampler_spec(config, tokenizer, folder, device=devices.sampler_device)
    renderer = prompt_renderer(config, tokenizer, train, end_token_ids=spec.eos_token_ids)
    learners = spawn_learners(config, cluster, devices, path)
    samplers = _samplers(config, cluster, devices, spec)
    sampler = SamplerPool(samplers, cluster)
    sampler.connect(choose(config, learners, samplers, cuda=devices.all_on_gpus))
    rollout = _rollout_class(config)(sampler, envs, renderer, train.num_tasks, config)
    rollout.require_fitting_prompt()
    evaluator = TextEvaluator(rollout, config.evaluation, num_tasks=held_out.num_tasks)
    demonstrations = TextDemonstrations(envs, renderer, train.num_tasks, config)
    learner = LearnerPool(learners, cluster, offload=config.learner.offload != OffloadConfig())
    evaluate = evaluator.evaluate if evaluator.task_ids else None
    make_batch, notes = demonstrations.batch, demonstrations.notes()
    if config.sft.steps and config.sft.data is not None:
        from rlinf.train.build.supervised import supervised_data, with_held_out_loss

        supervised = supervised_data(config, tokenizer)
        make_batch, notes = supervised.train.batch, supervised.notes
        evaluate = with_held_out_loss(evaluate, learner, supervised.held_out)
    teacher, about_teacher = connect_teacher(config, learner, tokenizer)
    sleeps = devices.samplers_sleep(config)
    return Graph(
        rollout=rollout,
        learner=learner,
        preparation=OnPolicy(config, learner, teacher),
        send_weights=sampler.send_weights,
        evaluate=evaluate,
        warm_start_batch=make_batch,
        reward=learned_reward(config, cluster, functools.partial(language_model, config, path)),
        save_tokenizer=functools.partial(save_tokenizer, tokenizer),
        overlaps=config.rollout.ahead > 0,
        sleep=sampler.sleep if sleeps else nothing,
        wake=sampler.wake if sleeps else nothing,
        restarts=lambda: {
            "failures/samplers": sampler.restarts,
            "failures/responses_redone": sampler.redone,
            "failures/env_workers": envs.restarts,
            "env/timeouts": envs.timeouts,
        },
        notes={**train.notes, **precision, **notes, **about_teacher},
    )


def build_text_evaluator(config: Config, cluster: Cluster, folder: Path) -> TextEvaluator:
    """Environments and samplers alone, which have the weights of the model at `policy.path`: nothing is trained."""
    from rlinf.models.loading import load_tokenizer

    devices = Devices.of(config)
    config, _ = settled(config, devices)
    envs = _environments(config, cluster)
    held_out = envs.facts("eval")
    tokenizer = load_tokenizer(str(config.policy.tokenizer.path or config.policy.path))
    spec = sampler_spec(config, tokenizer, folder, device=devices.sampler_device)
    renderer = prompt_renderer(config, tokenizer, held_out, end_token_ids=spec.eos_token_ids)
    sampler = SamplerPool(_samplers(config, cluster, devices, spec), cluster)
    sampler.connect(StoredWeights())
    rollout = _rollout_class(config)(sampler, envs, renderer, held_out.num_tasks, config)
    return TextEvaluator(rollout, config.evaluation, num_tasks=held_out.num_tasks)


def settled(config: Config, devices: Devices) -> tuple[Config, dict[str, str]]:
    """The configuration with what this machine decides, the same for all workers: precision and size of micro-batches.

    Notes tell where they are not what the configuration alone would say.
    """
    dtype = policy_dtype(config, on_gpu=devices.learner > 0 or devices.sampler > 0)
    chosen = config.policy.dtype == "auto" and dtype == "bfloat16" and devices.learner == 0
    notes = {"policy.dtype auto": "bfloat16: a large model, and this CPU has instructions for it"} if chosen else {}
    config = replace(config, policy=replace(config.policy, dtype=dtype))
    if devices.learner == 0:
        asked, fits = config.learner.micro_batch_tokens, fitting_micro_batch(config, memory_bytes())
        if fits < asked:
            notes["learner.micro_batch_tokens"] = f"{fits}: {asked} do not fit into half of this machine's memory"
            config = replace(config, learner=replace(config.learner, micro_batch_tokens=fits))
    return config, notes


def _environments(config: Config, cluster: Cluster) -> TextEnvPool:
    return TextEnvPool(
        cluster.spawn("env", functools.partial(_build_env, config), n=config.env.num_workers, resources=_cpu(config)),
        config.env,
    )


def _samplers(config: Config, cluster: Cluster, devices: Devices, spec: SamplerSpec) -> WorkerGroup:
    return cluster.spawn(
        "sampler",
        functools.partial(_build_sampler, config, spec),
        n=config.rollout.num_samplers,
        resources=devices.resources(config, devices.sampler),
    )


def _rollout_class(config: Config) -> type[OverSamplingRollout] | type[TextRollout]:
    """Of training; evaluation uses it too."""
    return OverSamplingRollout if config.rollout.over_sampling > 0 else TextRollout


def _cpu(config: Config) -> Resources:
    return Resources(cpus=config.cluster.cpus_per_worker, spread=True)


def _build_env(config: Config, _info: RankInfo) -> TextEnvWorker:
    return text_env_worker(config)


def _tokenizer(config: Config, envs: TextEnvPool, num_tasks: int, folder: Path) -> Any:
    """The policy's tokenizer, kept in the run directory; trained on the task's text where there is none."""
    texts = functools.partial(tokenizer_texts, envs, num_tasks, config.data.max_prompt_length)
    return kept_tokenizer(folder / "tokenizer", functools.partial(policy_tokenizer, config, texts))


def _build_sampler(config: Config, spec: SamplerSpec, _info: RankInfo) -> SamplerWorker:
    return SamplerWorker(build_sampler(config.rollout, spec))
