"""The processes of a simulator run: env workers step and act, learner ranks train."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlinf.algorithms.prepare import OnPolicy, Preparation
from rlinf.cluster import Cluster, RankInfo, WorkerGroup
from rlinf.cluster.weights.choice import choose
from rlinf.cluster.weights.proof import WeightProof
from rlinf.config import Config
from rlinf.config.derived import prior_transitions
from rlinf.datasets.robot_data.decisions import chunk_frames, transitions_batch
from rlinf.datasets.robot_data.leaves import environment_actions, observation_arrays
from rlinf.datasets.robot_data.reading import dataset_instructions, dataset_statistics, read_dataset
from rlinf.datasets.robot_data.remarks import ends_remark, missing_remark, rate_remark
from rlinf.datasets.robot_data.statistics import write_statistics
from rlinf.interfaces import Learner
from rlinf.models.attention_kernels import use_kernels_of_any_length
from rlinf.models.own import is_own, keep_class
from rlinf.rollouts.simulator.offline import OfflineRollout
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.schema import OffloadConfig
from rlinf.schema.derived import prompted
from rlinf.train.assemble.learner import all_ranks, torch_learner, towers_fsdp_learner
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.assemble.simulator_policy import make_off_policy, make_policy, make_trained_policy
from rlinf.train.assemble.stages import stages_of
from rlinf.train.assemble.tokenizer import kept_tokenizer
from rlinf.train.evaluation.simulator import VectorEvaluator
from rlinf.train.graph import Graph
from rlinf.train.init_from import carried_tokenizer
from rlinf.train.simulator_sft import Imitation
from rlinf.train.workers.env_pool import EnvPool
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.row_plan import DecisionPlan
from rlinf.train.workers.served_env_pool import ServedEnvPool
from rlinf.train.workers.simulator_workers import PolicyServerWorker, SimulatorWorker

if TYPE_CHECKING:
    import torch

    from rlinf.data.batch import Batch
    from rlinf.data.goals import GoalEnvironment
    from rlinf.datasets.robot_data.dataset import RobotDataset
    from rlinf.learners.off_policy.prior import PriorTransitions

# How many starts give their instruction: enough to meet every word of a task.
_TOKENIZER_STARTS = 500


def build_simulator_graph(setup: ResolvedRun, cluster: Cluster, folder: Path) -> Graph:
    """Start all workers and put them together."""
    config, devices, facts = setup.config, setup.devices, setup.config.facts
    size = setup.groups["env"]
    envs = EnvPool(
        cluster.spawn("env", functools.partial(_build_env, config, folder), n=size.n, resources=size.resources)
    )
    if config.env.reset_state_ids or config.evaluation.reset_state_ids:
        envs.require_start_states()
    pictures = envs.require_filming() if config.evaluation.video_every else ""
    if facts.vla and config.policy.path is None:
        _keep_tokenizer(config, envs, folder)
    learners = _spawn_learners(setup, cluster, envs.spaces(), folder)
    if facts.acts_in == "sampler":
        envs = _with_samplers(setup, envs, cluster, folder)
    rollout = VectorRollout(envs, config.collection)
    warm_start = Imitation(
        rollout,
        config.sft,
        seed=config.run.seed,
        folder=folder,
        success_key=config.env.success_key,
        send_weights=envs.acting.send_weights,
        indicator_dropout=config.policy.flow.advantage_dropout,
    )
    on_gpus = facts.acts_in == "sampler" and devices.all_on_gpus
    envs.acting.connect(
        choose(facts.weight_transport, learners, envs.acting.group, cuda=on_gpus, keep=facts.overlaps),
        WeightProof(learners, envs.acting.group.name) if config.rollout.verify_weights else None,
    )
    learner = _learner_pool(config, cluster, learners)
    dataset = config.sft.dataset or config.algorithm.prior_data
    if dataset is not None:
        write_statistics(folder, dataset_statistics(dataset))
    evaluator = VectorEvaluator(rollout, config.evaluation, folder)
    algorithm, staleness = config.algorithm, config.rollout.staleness
    return Graph(
        rollout=OfflineRollout() if facts.offline else rollout,
        learner=learner,
        preparation=Preparation() if facts.off_policy else OnPolicy(algorithm, facts, learner, staleness=staleness),
        send_weights=envs.acting.send_weights,
        unproved=lambda: envs.acting.unproved,
        evaluate=evaluator.evaluate if config.evaluation.size else None,
        film=evaluator.film if config.evaluation.size and config.evaluation.video_every else None,
        overlaps=facts.overlaps,
        warm_start_batch=None if facts.off_policy else warm_start.batch,
        warm_start_preparation=warm_start.prepare,
        write_policy_extras=functools.partial(keep_class, config.policy.name, envs.spaces())
        if is_own(config.policy.name)
        else None,
        restarts=envs.numbers,
        notes={
            "env.vectorization": envs.call_one(0, "vectorization"),
            **({"evaluation.video_every": pictures} if pictures else {}),
            **_dataset_notes(config, envs),
        },
    )


def start_learner(setup: ResolvedRun, cluster: Cluster, spaces: tuple[Any, Any], folder: Path) -> LearnerPool:
    """Start the ranks of the learner alone, for observation and action ``spaces``."""
    return _learner_pool(setup.config, cluster, _spawn_learners(setup, cluster, spaces, folder))


def _spawn_learners(setup: ResolvedRun, cluster: Cluster, spaces: tuple[Any, Any], folder: Path) -> WorkerGroup:
    size = setup.groups["learner"]
    return cluster.spawn(
        "learner",
        functools.partial(_build_learner, setup.config, setup.devices.learner_device, spaces, folder),
        n=size.n,
        resources=size.resources,
        rendezvous=size.n > 1,
    )


def _learner_pool(config: Config, cluster: Cluster, ranks: WorkerGroup) -> LearnerPool:
    # How rows are divided among the learner's ranks, if its policy has a rule for that.
    rule = ranks.call_one(0, "decision_rule")
    plan = None if rule is None else DecisionPlan(stages_of(config), seed=config.run.seed, rule=rule)
    return LearnerPool(ranks, cluster, offload=config.learner.offload != OffloadConfig(), plan=plan)


def _dataset_notes(config: Config, envs: EnvPool) -> dict[str, str]:
    """Remarks on recorded episodes that do not fit the run in every respect, by the key that names them."""
    notes: dict[str, str] = {}
    for key, path in (("sft.dataset", config.sft.dataset), ("algorithm.prior_data", config.algorithm.prior_data)):
        if path is None:
            continue
        remarks = [missing_remark(path), rate_remark(path, envs.call_one(0, "render_fps"))]
        if key == "algorithm.prior_data":
            remarks.append(ends_remark(path))
        if results := [remark for remark in remarks if remark is not None]:
            notes[key] = ". ".join(results)
    return notes


def _with_samplers(setup: ResolvedRun, envs: EnvPool, cluster: Cluster, folder: Path) -> EnvPool:
    """Return the same env workers, with a policy that acts in sampler actors."""
    size = setup.groups["sampler"]
    samplers = cluster.spawn(
        "sampler",
        functools.partial(_build_sampler, setup.config, setup.devices.sampler_device, envs.spaces(), folder),
        n=size.n,
        resources=size.resources,
    )
    return ServedEnvPool(envs.group, samplers, cluster, merge=setup.config.rollout.merge_requests)


def _build_env(config: Config, folder: Path, info: RankInfo) -> SimulatorWorker:
    env_indices = env_ranges(config.env.num_envs, info.size)[info.rank]
    build = functools.partial(make_policy, config, tokenizer=folder / "tokenizer")
    return SimulatorWorker(config.collection, env_indices, build, cores=config.cluster.threads_per_worker)


def _build_sampler(
    config: Config, device: str, spaces: tuple[Any, Any], folder: Path, _info: RankInfo
) -> PolicyServerWorker:
    import torch

    use_kernels_of_any_length()
    return PolicyServerWorker(make_policy(config, *spaces, tokenizer=folder / "tokenizer"), torch.device(device))


def _keep_tokenizer(config: Config, envs: EnvPool, folder: Path) -> None:
    """In the run directory before any policy is made: the language tower's, or one trained on instructions."""
    requested, language = config.policy.tokenizer, config.policy.vla.language

    def make() -> Any:
        from rlinf.models.loading import load_tokenizer
        from rlinf.models.tokenizer import train_tokenizer

        path = carried_tokenizer(config) or requested.path or config.policy.flow.pi0.path or language.path
        if path is None and config.facts.published:
            from rlinf.models.vla.published.reading import read_flow_checkpoint

            chosen = config.policy.flow.checkpoint
            path = read_flow_checkpoint(chosen, config.env.num_action_chunks).tokenizer
        if path is None and config.facts.openvla:
            path = config.policy.vla.checkpoint.path
        if path is not None:
            return load_tokenizer(str(path))
        texts = envs.call_one(0, "instructions", _TOKENIZER_STARTS)
        if config.sft.dataset is not None:
            texts += [text for text in dataset_instructions(config.sft.dataset) if text not in texts]
        texts = [prompted(config.policy.vla.prompt, text) for text in texts or [config.policy.vla.task or ""]]
        return train_tokenizer(
            texts, vocab_size=requested.vocab_size, split_digits=requested.split_digits, split_words=True
        )

    kept_tokenizer(folder / "tokenizer", make)


def _build_learner(config: Config, device: str, spaces: tuple[Any, Any], folder: Path, info: RankInfo) -> LearnerWorker:
    import torch

    bucket_bytes = config.learner.weight_bucket_mb << 20
    if config.facts.off_policy:
        off_policy = _off_policy_learner(config, torch.device(device), spaces, folder, info)
        return LearnerWorker(off_policy, rank=info.rank, bucket_bytes=bucket_bytes)
    policy = functools.partial(make_trained_policy, config, *spaces, tokenizer=folder / "tokenizer")
    learner = (towers_fsdp_learner if config.learner.backend == "fsdp" else torch_learner)(
        config, torch.device(device), info, policy
    )
    # Of a user's own policy nothing is known.
    rule = getattr(learner.policy, "decision_rule", None)
    return LearnerWorker(learner, rank=info.rank, bucket_bytes=bucket_bytes, rule=rule)


def _off_policy_learner(
    config: Config, device: torch.device, spaces: tuple[Any, Any], folder: Path, info: RankInfo
) -> Learner:
    from rlinf.learners.off_policy.learner import OffPolicyLearner
    from rlinf.learners.off_policy.objective import Placement
    from rlinf.learners.off_policy.offline import OfflineLearner

    ranks = all_ranks(device, info, timeout_s=config.cluster.call_timeout_s)
    policy, placement = make_off_policy(config, *spaces), Placement(device, info.rank, info.size, ranks)
    if config.facts.offline:
        return OfflineLearner(
            policy,
            config.algorithm,
            config.learner.optimizer,
            seed=config.run.seed,
            recorded=_recorded(config, policy, spaces),
            placement=placement,
        )
    return OffPolicyLearner(
        policy,
        config.algorithm,
        config.learner.optimizer,
        seed=config.run.seed,
        replay_folder=folder / "replay" / f"rank_{info.rank}" if info.size > 1 else folder / "replay",
        placement=placement,
        prior=_make_prior(config, policy, spaces),
        goals=_make_goals(config, spaces),
    )


def _make_goals(config: Config, spaces: tuple[Any, Any]) -> GoalEnvironment | None:
    """Make an environment of the learner's own, which is never stepped; None without `algorithm.hindsight`.

    Raises SpaceError for observations without goals.
    """
    from rlinf.data.goals import require_goals
    from rlinf.data.spaces import observation_leaves
    from rlinf.rollouts.isolation.vec_env import IsolatedVecEnv
    from rlinf.rollouts.vec_env.sync import SyncVecEnv

    if config.algorithm.hindsight == "none":
        return None
    require_goals(observation_leaves(spaces[0]), config.env.id)
    env = config.facts.training_env
    # A timer works in a process's main thread alone, and rewards are computed from arrays.
    return IsolatedVecEnv(env, 1) if env.isolation == "process" else SyncVecEnv(replace(env, step_timeout_s=0.0), 1)


def _make_prior(config: Config, policy: Any, spaces: tuple[Any, Any]) -> PriorTransitions | None:
    """All transitions of the dataset; None without one. The policy's running statistics begin with theirs."""
    from rlinf.learners.off_policy.prior import PriorTransitions

    algorithm = config.algorithm
    if algorithm.prior_data is None:
        return None
    batch = _recorded(config, policy, spaces)
    return PriorTransitions(batch, algorithm, prior_transitions(algorithm))


def _recorded(config: Config, policy: Any, spaces: tuple[Any, Any]) -> Batch:
    """Read the transitions of `algorithm.prior_data`, with which the policy's running statistics begin.

    Raises DatasetError for a dataset that does not fit the environment, or has no rewards.
    """
    assert config.algorithm.prior_data is not None
    batch = prior_batch(read_dataset(config.algorithm.prior_data), config, policy, spaces)
    policy.observe(batch.inputs, batch.mask)
    return batch


def prior_batch(result: RobotDataset, config: Config, policy: Any, spaces: tuple[Any, Any]) -> Batch:
    """Build the transitions of a dataset as the policy's own decisions.

    Raises DatasetError for a dataset that does not fit the environment, or has no rewards.
    """
    algorithm, chunk = config.algorithm, config.env.num_action_chunks
    chunks = environment_actions(result, spaces[1], algorithm.prior_rename)[chunk_frames(result, chunk)]
    observations, finals = (
        observation_arrays(result, spaces[0], algorithm.prior_rename, finals=after) for after in (False, True)
    )
    actions = policy.own_actions(chunks if chunk > 1 else chunks[:, 0])
    return transitions_batch(result, observations, finals, actions, chunk)
