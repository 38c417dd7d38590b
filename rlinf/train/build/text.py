"""The processes of a text run: env workers verify, samplers generate, learner ranks train."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlinf.algorithms import catalog
from rlinf.cluster import Cluster, RankInfo, Resources, WorkerGroup
from rlinf.cluster.weights.transport import choose
from rlinf.config import Config
from rlinf.config.facts import conversation_tokens, row_tokens
from rlinf.config.plan.precision import policy_dtype
from rlinf.config.schema import OffloadConfig
from rlinf.models.tokenizer_export import save_tokenizer
from rlinf.rollouts.text.env_worker import TextEnvWorker, text_env_worker, tokenizer_texts
from rlinf.rollouts.text.over_sampling import OverSamplingRollout
from rlinf.rollouts.text.prompts import PromptRenderer, prompt_renderer
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.rollouts.text.rows import Row, batch_of
from rlinf.rollouts.text.task_order import TaskOrder
from rlinf.samplers.build import SamplerSpec, build_sampler
from rlinf.streams import numpy_generator, stream_seed
from rlinf.train.build.devices import Devices
from rlinf.train.build.options import sampling_params
from rlinf.train.build.reward_model import learned_reward
from rlinf.train.build.text_learner import build_learner, language_model
from rlinf.train.build.tokenizer import kept_tokenizer
from rlinf.train.evaluation.text import TextEvaluator
from rlinf.train.graph import Graph, nothing
from rlinf.train.preparation import OnPolicy
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.sampler_pool import SamplerPool
from rlinf.train.workers.sampler_worker import SamplerWorker
from rlinf.train.workers.stored_weights import StoredWeights
from rlinf.train.workers.text_env_pool import TextEnvPool
from rlinf.types import Batch

_NOTE_CHARS = 160
"""Of a prompt or a response in a note."""


def build_text_graph(config: Config, cluster: Cluster, folder: Path) -> Graph:
    """Starts all workers and puts them together."""
    devices = Devices.of(config)
    config, precision = _with_dtype(config, devices)
    envs = _environments(config, cluster)
    train, held_out = envs.facts("train"), envs.facts("eval")
    tokenizer = _tokenizer(config, envs, train.num_tasks, folder)
    path = str(folder / "tokenizer")
    spec = _sampler_spec(config, devices, tokenizer, folder)
    renderer = prompt_renderer(config, tokenizer, train.system_prompt, end_token_ids=spec.eos_token_ids)
    learners = cluster.spawn(
        "learner",
        functools.partial(build_learner, config, path),
        n=config.learner.num_workers,
        resources=devices.resources(config, devices.learner),
        rendezvous=config.learner.num_workers > 1,
    )
    samplers = _samplers(config, cluster, devices, spec)
    sampler = SamplerPool(samplers, cluster)
    sampler.connect(choose(config, learners, samplers, cuda=devices.all_on_gpus))
    rollout = _make_rollout(config, sampler, envs, renderer, train.num_tasks)
    rollout.require_fitting_prompt()
    evaluator = _evaluator(config, rollout, held_out.num_tasks)
    learner = LearnerPool(learners, cluster, offload=config.learner.offload != OffloadConfig())
    sleeps = devices.samplers_sleep(config)
    return Graph(
        rollout=rollout,
        learner=learner,
        preparation=OnPolicy(config, learner),
        send_weights=sampler.send_weights,
        evaluate=evaluator.evaluate if evaluator.task_ids else None,
        warm_start_batch=functools.partial(_demonstrations, config, envs, rollout, tokenizer, train.num_tasks),
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
        notes={**train.notes, **precision, **_example_of_demonstrations(config, envs)},
    )


def build_text_evaluator(config: Config, cluster: Cluster, folder: Path) -> TextEvaluator:
    """Environments and samplers alone, which have the weights of the model at `policy.path`: nothing is trained."""
    from rlinf.models.loading import load_tokenizer

    devices = Devices.of(config)
    config, _ = _with_dtype(config, devices)
    envs = _environments(config, cluster)
    held_out = envs.facts("eval")
    tokenizer = load_tokenizer(str(config.policy.tokenizer.path or config.policy.path))
    spec = _sampler_spec(config, devices, tokenizer, folder)
    renderer = prompt_renderer(config, tokenizer, held_out.system_prompt, end_token_ids=spec.eos_token_ids)
    sampler = SamplerPool(_samplers(config, cluster, devices, spec), cluster)
    sampler.connect(StoredWeights())
    return _evaluator(config, _make_rollout(config, sampler, envs, renderer, held_out.num_tasks), held_out.num_tasks)


def _with_dtype(config: Config, devices: Devices) -> tuple[Config, dict[str, str]]:
    """The configuration with the precision that all workers compute in, and a note where it is not the usual one."""
    dtype = policy_dtype(config, on_gpu=devices.learner > 0 or devices.sampler > 0)
    chosen = config.policy.dtype == "auto" and dtype == "bfloat16" and devices.learner == 0
    note = {"policy.dtype auto": "bfloat16: a large model, and this CPU has instructions for it"} if chosen else {}
    return replace(config, policy=replace(config.policy, dtype=dtype)), note


def _environments(config: Config, cluster: Cluster) -> TextEnvPool:
    return TextEnvPool(
        cluster.spawn("env", functools.partial(_build_env, config), n=config.env.num_workers, resources=_cpu(config)),
        env_id=config.env.id,
        step_timeout_s=config.env.step_timeout_s,
        max_failures=config.env.max_failures,
    )


def _samplers(config: Config, cluster: Cluster, devices: Devices, spec: SamplerSpec) -> WorkerGroup:
    return cluster.spawn(
        "sampler",
        functools.partial(_build_sampler, config, spec),
        n=config.rollout.num_samplers,
        resources=devices.resources(config, devices.sampler),
    )


def _evaluator(config: Config, rollout: TextRollout, num_tasks: int) -> TextEvaluator:
    return TextEvaluator(
        rollout,
        size=config.evaluation.size,
        num_tasks=num_tasks,
        samples=config.evaluation.samples,
        temperature=config.evaluation.temperature,
        seed=config.evaluation.seed,
    )


def _make_rollout(
    config: Config, sampler: SamplerPool, envs: TextEnvPool, renderer: PromptRenderer, num_tasks: int
) -> TextRollout:
    """The rollout of the training side; evaluation uses it too."""
    make: Callable[..., TextRollout] = TextRollout
    if config.rollout.over_sampling > 0:
        extra = math.ceil(config.rollout.batch_size * config.rollout.over_sampling)
        make = functools.partial(OverSamplingRollout, extra=extra)
    return make(
        sampler,
        envs,
        renderer,
        TaskOrder(num_tasks, seed=config.run.seed, shuffle=config.data.shuffle),
        params=sampling_params(config),
        prompts=config.rollout.batch_size,
        group_size=config.algorithm.group_size,
        seed=config.run.seed,
        max_turns=config.env.max_turns,
        max_prompt_length=config.data.max_prompt_length,
        pad_token_id=renderer.tokenizer.pad_token_id,
        max_conversation_tokens=conversation_tokens(config),
        extra_columns=catalog.estimator(config.algorithm.adv_type).needs,
    )


def _cpu(config: Config) -> Resources:
    return Resources(cpus=config.cluster.cpus_per_worker, spread=True)


def _build_env(config: Config, _info: RankInfo) -> TextEnvWorker:
    return text_env_worker(config)


def _tokenizer(config: Config, envs: TextEnvPool, num_tasks: int, folder: Path) -> Any:
    """The policy's tokenizer, kept in the run directory; trained on the task's text where there is none."""
    wanted = config.policy.tokenizer

    def make() -> Any:
        from rlinf.models.loading import make_tokenizer

        return make_tokenizer(
            wanted.path or config.policy.path,
            vocab_size=wanted.vocab_size,
            split_digits=wanted.split_digits,
            texts=functools.partial(tokenizer_texts, envs, num_tasks, config.data.max_prompt_length),
        )

    return kept_tokenizer(folder / "tokenizer", make)


def _build_sampler(config: Config, spec: SamplerSpec, _info: RankInfo) -> SamplerWorker:
    return SamplerWorker(build_sampler(config.rollout, spec))


def _sampler_spec(config: Config, devices: Devices, tokenizer: Any, folder: Path) -> SamplerSpec:
    """What every sampler must know. Without a checkpoint it gets a folder with the configuration alone."""
    from rlinf.models.loading import architecture_config, checkpoint_config
    from rlinf.models.vocabulary import require_vocabulary

    if config.policy.path is None:
        model = str(folder / "architecture")
        architecture = architecture_config(config.policy.architecture, tokenizer)
        architecture.architectures = [_causal_class(architecture)]
        architecture.save_pretrained(model)
    else:
        model = config.policy.path
        architecture = checkpoint_config(model)
        require_vocabulary(architecture.get_text_config().vocab_size, tokenizer, model=model)
    return SamplerSpec(
        model=model,
        eos_token_ids=eos_token_ids(architecture, model, tokenizer),
        pad_token_id=tokenizer.pad_token_id,
        seed=stream_seed(config.run.seed, "sampler"),
        max_model_len=row_tokens(config),
        device=devices.sampler_device,
        dtype=config.policy.dtype,
        attention=config.policy.attention,
        random_weights=config.policy.path is None,
    )


def _causal_class(architecture: Any) -> str:
    """The class name that other engines find a model by."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return str(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[architecture.model_type])


def eos_token_ids(architecture: Any, model: str, tokenizer: Any) -> tuple[int, ...]:
    """The tokenizer's end, and whatever the checkpoint's configurations add (chat models have several)."""
    from transformers import GenerationConfig

    named = [architecture.eos_token_id]
    if (Path(model) / "generation_config.json").exists():
        named.append(GenerationConfig.from_pretrained(model).eos_token_id)
    listed = [token for entry in named for token in (entry if isinstance(entry, list) else [entry])]
    return tuple(sorted({tokenizer.eos_token_id, *(token for token in listed if token is not None)}))


def _example_of_demonstrations(config: Config, envs: TextEnvPool) -> dict[str, str]:
    """A note with what the warm start imitates, which the environment may have made of a bare answer."""
    if not config.sft.steps:
        return {}
    ((prompt, response),) = envs.demonstrations("train", [0])
    shown = [textwrap.shorten(text, _NOTE_CHARS, placeholder=" ...") for text in (prompt, response)]
    return {"sft imitates, for example": " -> ".join(shown)}


def _demonstrations(
    config: Config, envs: TextEnvPool, rollout: TextRollout, tokenizer: Any, num_tasks: int, step: int
) -> Batch:
    """The supervised batch of warm-start step ``step``: correct responses with advantage 1."""
    import torch

    pool = min(num_tasks, config.sft.max_tasks or num_tasks)
    picked = numpy_generator(config.run.seed, "sft", step).integers(pool, size=config.sft.batch_size).tolist()
    rows = []
    for place, (prompt, response) in enumerate(envs.demonstrations("train", picked)):
        tokens = [*tokenizer.encode(response, add_special_tokens=False), tokenizer.eos_token_id]
        rows.append(
            Row(
                group=place,
                sample=0,
                task_id=picked[place],
                domain="",
                answer=response,
                prompt_text=prompt,
                prompt_ids=rollout.renderer.prompt(prompt),
                tokens=tokens,
                logprobs=[0.0] * len(tokens),
                mask=[True] * len(tokens),
                versions=[0] * len(tokens),
            )
        )
    batch = batch_of(rows, pad_token_id=tokenizer.pad_token_id, multi_turn=False)
    return batch.replace(advantages=torch.ones_like(batch.rollout_logprobs))
