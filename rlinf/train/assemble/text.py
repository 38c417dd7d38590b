"""The processes of a text run: env workers verify, samplers generate, learner ranks train."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlinf.algorithms.prepare import OnPolicy
from rlinf.base.random_streams import stream_seed
from rlinf.cluster import Cluster, RankInfo, Starting
from rlinf.cluster.weights.choice import choose
from rlinf.cluster.weights.proof import WeightProof
from rlinf.cluster.weights.transport import StoredWeights
from rlinf.config import Config
from rlinf.data.batch import Batch
from rlinf.models.tokenizer_export import export_tokenizer
from rlinf.rollouts.text.continuous.over_sampling import OverSamplingRollout
from rlinf.rollouts.text.continuous.rollout import ContinuousRollout
from rlinf.rollouts.text.demonstrations import TextDemonstrations
from rlinf.rollouts.text.members import TextMixtureEnv
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.samplers.build import build_sampler
from rlinf.samplers.spec import SamplerSpec
from rlinf.schema.derived import is_agent
from rlinf.train.answer_probe import AnswerProbe
from rlinf.train.assemble.conversations import (
    conversation_members,
    conversation_rollout,
    conversation_spec,
    env_builder,
)
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.assemble.text_learner import begin_learner, language_model, learner_pool
from rlinf.train.assemble.tokenizer import kept_tokenizer, policy_tokenizer
from rlinf.train.assemble.tokenizer_texts import tokenizer_texts
from rlinf.train.evaluation.text import Evaluation, TextEvaluator
from rlinf.train.graph import Graph, WarmStartPreparation, imitated, nothing
from rlinf.train.reward_model import LearnedReward
from rlinf.train.teacher import connect_teacher
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.reward_worker import RewardWorker
from rlinf.train.workers.sampler_pool import SamplerPool
from rlinf.train.workers.sampler_session import SLICE_S
from rlinf.train.workers.sampler_worker import SamplerWorker
from rlinf.train.workers.text_env_pool import TextEnvPool


def _learned_reward(setup: ResolvedRun, cluster: Cluster, policy_model: Callable[[], Any]) -> Sequence[LearnedReward]:
    """Start the process of the learned reward; empty if the environment's reward is used.

    ``policy_model`` makes the language model of the policy."""
    config, size = setup.config, setup.groups.get("reward_model")
    if size is None:
        return ()
    build = functools.partial(_build, config, policy_model)
    group = cluster.spawn("reward_model", build, n=size.n, resources=size.resources)
    seed = stream_seed(config.run.seed, "reward")
    return (LearnedReward(LearnerPool(group, cluster), config.reward_model, seed=seed),)


def _build(config: Config, policy_model: Callable[[], Any], info: RankInfo) -> RewardWorker:
    import torch

    from rlinf.learners.reward import RewardLearner
    from rlinf.models.loading import activation_dtype, blank_reward_model, load_reward_model
    from rlinf.models.reward_model import RewardModel

    requested = config.reward_model
    device = "cuda" if requested.gpus > 0 else "cpu"
    dtype = activation_dtype(config.policy.dtype, device)
    if requested.path is not None:
        model = load_reward_model(requested.path, attention=config.policy.attention)
    else:
        model = blank_reward_model(policy_model().config)
    learner = RewardLearner(
        RewardModel(model, pack_rows=config.learner.pack, autocast=None if dtype == torch.float32 else dtype),
        lr=requested.lr,
        seed=config.run.seed,
        micro_batch_tokens=config.learner.micro_batch_tokens,
        device=device,
    )
    return RewardWorker(learner, rank=info.rank)


def build_text_graph(setup: ResolvedRun, cluster: Cluster, folder: Path) -> Graph:
    """Start all workers and put them together."""
    config, devices, facts = setup.config, setup.devices, setup.config.facts
    starting = _begin_environments(setup, cluster)
    # It takes seconds, while workers start.
    importlib.import_module("transformers.models.auto.tokenization_auto")
    envs = TextEnvPool(starting.ready(), config.env)
    train, held_out = envs.facts("train"), envs.facts("eval")
    tokenizer = _tokenizer(config, envs, train.num_tasks, folder)
    path = str(folder / "tokenizer")
    spec = conversation_spec(setup, tokenizer, folder)
    members = conversation_members(config, tokenizer, train, end_token_ids=spec.eos_token_ids)
    _decode_where_graded(config, members, envs)
    learner, sampler = _learner_and_samplers(setup, cluster, spec, path)
    if facts.continues_responses:
        rollout: TextRollout = _continuous(config, cluster, sampler, envs, members, folder)
    else:
        rollout = _rollout(config, cluster)(sampler, envs, members, config.collection)
    # Scale: in one process a batch has all of its columns; on a cluster tokens stay with samplers (record 0025).
    needed_here = facts.driver_reads_tokens or any(member.renderer.decodes_responses for member in members)
    remote = type(rollout) is TextRollout and cluster.concurrent and not needed_here
    rollout.rounds = {"train": functools.partial(sampler.round, remote=remote), "eval": sampler.round}
    rollout.require_fitting_prompt()
    tasks = conversation_members(config, tokenizer, held_out, end_token_ids=spec.eos_token_ids)
    evaluator = TextEvaluator(rollout, config.evaluation, tasks)
    curriculum, hint = rollout.curriculum, config.teacher.hint
    own = TextDemonstrations(envs, members, config.sft, seed=config.run.seed, curriculum=curriculum, hint=hint)
    evaluate = evaluator.evaluate if evaluator.task_ids else None
    warm_start, prepare_warm_start, evaluate, remarks = _imitation(config, tokenizer, learner, own, evaluate)
    teacher, about_teacher = connect_teacher(config, learner, tokenizer)
    sleeps = devices.samplers_sleep(config)
    gap_limit = facts.gap_limits[devices.learner > 0 or devices.sampler > 0]
    accepted, seed = config.rollout.gap_steps is None, config.run.seed
    prompts, params = rollout.fixed_prompts, rollout.params
    probe = AnswerProbe(sampler, learner, prompts, params, limit=gap_limit, gap_accepted=accepted, seed=seed)
    return Graph(
        rollout=rollout,
        learner=learner,
        preparation=OnPolicy(
            config.algorithm,
            facts,
            learner,
            teacher,
            ranks=learner,
            staleness=oldest_tokens(config),
            seed=config.run.seed,
        ),
        send_weights=probe.send,
        unproved=lambda: probe.unproved,
        gap_limit=gap_limit,
        evaluate=evaluate,
        warm_start_batch=warm_start,
        warm_start_preparation=prepare_warm_start,
        reward_models=_learned_reward(setup, cluster, functools.partial(language_model, config, path)),
        write_policy_extras=functools.partial(export_tokenizer, tokenizer, spec.eos_token_ids),
        overlaps=facts.overlaps,
        rendered=rollout.rendered,
        continuous=rollout if isinstance(rollout, ContinuousRollout) else None,
        sleep=sampler.sleep if sleeps else nothing,
        wake=sampler.wake if sleeps else nothing,
        counting=envs,
        restarts=lambda: {
            "failures/samplers": sampler.restarts,
            "failures/responses_redone": sampler.redone,
            "failures/env_workers": envs.restarts,
            "env/timeouts": envs.timeouts,
            "env/failures": envs.errors,
        },
        notes={**train.notes, **setup.notes, **remarks, **about_teacher, **_own_sampling(config)},
    )


def _learner_and_samplers(
    setup: ResolvedRun, cluster: Cluster, spec: SamplerSpec, tokenizer: str
) -> tuple[LearnerPool, SamplerPool]:
    """Start both, and connect the way of the weights from one to the other. ``tokenizer``: its folder."""
    config, facts = setup.config, setup.config.facts
    # Both read the tokenizer and make their models: side by side, for the libraries alone take seconds to import.
    coming, following = begin_learner(setup, cluster, tokenizer), _begin_samplers(setup, cluster, spec)
    learner, samplers = learner_pool(config, cluster, coming.ready()), following.ready()
    sampler = SamplerPool(samplers, cluster)
    transport = choose(
        facts.weight_transport,
        learner.group,
        samplers,
        cuda=setup.devices.all_on_gpus,
        keep=facts.overlaps,
        workers=config.rollout.vllm.tensor_parallel_size,
        transfer=facts.transfer_backend,
    )
    proof = WeightProof(learner.group, samplers.name) if config.rollout.verify_weights else None
    sampler.connect(transport, proof)
    return learner, sampler


def _imitation(
    config: Config,
    tokenizer: Any,
    learner: LearnerPool,
    own: TextDemonstrations,
    evaluate: Callable[[], Evaluation] | None,
) -> tuple[Callable[[int], Batch], WarmStartPreparation, Callable[[], Evaluation] | None, Mapping[str, int | str]]:
    """Return the batches of a warm start, their preparation, the evaluation of the run, and remarks.

    Imitate the files of ``sft.data`` if there are any, else ``own``: the demonstrations of the environments."""
    if not config.sft.steps or config.sft.data is None:
        return own.batch, imitated, evaluate, own.notes()
    from rlinf.train.assemble.supervised import supervised_data, warm_start_preparation, with_held_out_rows

    supervised = supervised_data(config, tokenizer)
    evaluate = with_held_out_rows(evaluate, learner, supervised.held_out, config.sft)
    preparation = warm_start_preparation(learner, config.sft)
    return supervised.train.batch, preparation, evaluate, supervised.notes


def oldest_tokens(config: Config) -> int | None:
    """Bound the age of tokens, in updates; None: over-sampling continues a response for as long as it takes."""
    endless = config.rollout.over_sampling > 0 and not config.rollout.staleness
    return None if endless else config.rollout.staleness


def _own_sampling(config: Config) -> dict[str, str]:
    """Note what plain ``generate`` would do otherwise with the exported policy than this run's samplers do."""
    from rlinf.models.gguf import model_folder
    from rlinf.models.response_ends import own_sampling

    result = "" if config.policy.path is None else own_sampling(model_folder(config.policy.path))
    return {"generation_config.json, which samplers and evaluations here do not apply": result} if result else {}


def build_text_evaluator(setup: ResolvedRun, cluster: Cluster, folder: Path) -> TextEvaluator:
    """Environments and samplers alone, which have the weights of the model at `policy.path`: nothing is trained."""
    from rlinf.models.loading import load_tokenizer

    config = setup.config
    envs = TextEnvPool(_begin_environments(setup, cluster).ready(), config.env)
    held_out = envs.facts("eval")
    tokenizer = load_tokenizer(str(config.policy.tokenizer.path or config.policy.path))
    spec = conversation_spec(setup, tokenizer, folder)
    members = conversation_members(config, tokenizer, held_out, end_token_ids=spec.eos_token_ids)
    _decode_where_graded(config, members, envs)
    sampler = SamplerPool(_begin_samplers(setup, cluster, spec).ready(), cluster)
    sampler.connect(StoredWeights())
    rollout = _rollout(config, cluster)(sampler, envs, members, config.collection)
    rollout.rounds = {"eval": sampler.round}
    return TextEvaluator(rollout, config.evaluation, members)


def _begin_environments(setup: ResolvedRun, cluster: Cluster) -> Starting:
    size = setup.groups["env"]
    return cluster.begin("env", env_builder(setup.config), n=size.n, resources=size.resources)


def _decode_where_graded(config: Config, members: Sequence[TextMixtureEnv], envs: TextEnvPool) -> None:
    """Let the workers that grade responses make their texts. Only the gateway has those of an agent's calls."""
    if is_agent(config.env.id):
        return
    texts = [member.renderer.response_text() for member in members]
    decoders = [text for text in texts if text is not None]
    if len(decoders) == len(members):  # they have one tokenizer: all or none
        envs.read_tokens(decoders)
        for member in members:
            member.renderer.decodes_responses = False


def _begin_samplers(setup: ResolvedRun, cluster: Cluster, spec: SamplerSpec) -> Starting:
    rollout, size = setup.config.rollout, setup.groups["sampler"]
    return cluster.begin(
        "sampler", lambda _info: SamplerWorker(build_sampler(rollout, spec)), n=size.n, resources=size.resources
    )


def _continuous(
    config: Config,
    cluster: Cluster,
    sampler: SamplerPool,
    envs: TextEnvPool,
    members: Sequence[TextMixtureEnv],
    folder: Path,
) -> ContinuousRollout:
    # In one process a slice ends when a response does: how much is generated must not depend on the clock.
    open_session = functools.partial(sampler.session, slice_s=SLICE_S if cluster.concurrent else math.inf)
    return ContinuousRollout(
        sampler,
        envs,
        members,
        config.collection,
        open_session=open_session,
        folder=folder,
        concurrent=cluster.concurrent,
    )


def _rollout(config: Config, cluster: Cluster) -> Callable[..., TextRollout]:
    """Of training; evaluation uses it too."""
    return OverSamplingRollout if config.rollout.over_sampling > 0 else conversation_rollout(config, cluster.address)


def _tokenizer(config: Config, envs: TextEnvPool, num_tasks: int, folder: Path) -> Any:
    """Return the policy's tokenizer, kept in the run directory; trained on the task's text if there is none."""
    texts = functools.partial(tokenizer_texts, config, envs, num_tasks)
    return kept_tokenizer(folder / "tokenizer", functools.partial(policy_tokenizer, config, texts))
