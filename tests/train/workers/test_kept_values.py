"""Images stay with the env workers: ranks are given those of their rows, and learn what they learn of whole batches."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import image_envs  # noqa: F401
import pytest
import torch

from rlinf.algorithms.prepare import AlgorithmState, prepare_batch
from rlinf.cluster import Cluster, RankInfo, WorkerDied, WorkerGroup, connect
from rlinf.cluster.api import Assembled
from rlinf.config import Config, load
from rlinf.data.batch import Batch, concatenate
from rlinf.data.inputs import ObservationInputs
from rlinf.data.shards import RankBatch
from rlinf.learners.torch import TorchLearner
from rlinf.rollouts.simulator.local_images import keep_images_local
from rlinf.rollouts.simulator.rollout import VectorRollout, env_ranges
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.assemble.simulator_policy import make_policy
from rlinf.train.assemble.stages import stages_of
from rlinf.train.plain_state import load_plain, save_plain
from rlinf.train.workers.env_pool import EnvPool
from rlinf.train.workers.kept_values import RemoteObservations
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.row_plan import DecisionPlan
from rlinf.train.workers.simulator_workers import SimulatorWorker

KINDS = {
    "fragments": "rollout: {num_steps: 7}\nalgorithm: {adv_type: gae, loss_type: actor_critic, update_epochs: 2, "
    "num_minibatches: 3}\n",
    "episodes": "rollout: {batch_size: 3}\nalgorithm: {adv_type: grpo, group_size: 2, num_minibatches: 2}\n",
    "chunks": "rollout: {num_steps: 7}\nalgorithm: {adv_type: gae, loss_type: actor_critic, num_minibatches: 2, "
    "logprob_type: action_level}\n",
    "memory": "rollout: {num_steps: 7}\nalgorithm: {adv_type: gae, loss_type: actor_critic, num_minibatches: 2}\n",
}
ENV = {"chunks": ", num_action_chunks: 2"}
POLICY = {"memory": ", recurrent: gru"}


def config_of(kind: str, folder: Path) -> Config:
    file = folder / f"{kind}.yaml"
    env = "id: image_envs:Gallery-v0, num_envs: 4, num_workers: 2, normalize_observations: true" + ENV.get(kind, "")
    policy = "name: actor_critic, hidden_sizes: [8], embedding_size: 8" + POLICY.get(kind, "")
    file.write_text(f"env: {{{env}}}\npolicy: {{{policy}}}\n{KINDS[kind]}")
    return load(file, ["cluster.backend=local", f"run.dir={folder / 'run'}"])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with connect(ClusterConfig(backend="local")) as local:
        yield local


def workers(config: Config, cluster: Cluster) -> WorkerGroup:
    def build(info: RankInfo) -> SimulatorWorker:
        env_indices = env_ranges(config.env.num_envs, info.size)[info.rank]
        return SimulatorWorker(config.collection, env_indices, functools.partial(make_policy, config))

    return cluster.spawn("env", build, n=config.env.num_workers)


def collected(config: Config, cluster: Cluster) -> tuple[Batch, Batch]:
    """The same batch with all observations in it, and with the images where they were made."""
    with workers(config, cluster) as group:
        whole, _ = VectorRollout(group, config.collection).collect(0)  # type: ignore[arg-type]
    # The cluster ends these workers.
    return whole, VectorRollout(EnvPool(workers(config, cluster)), config.collection).collect(0)[0]


@pytest.mark.parametrize("kind", KINDS)
def test_images_are_apart_and_can_be_fetched(kind: str, tmp_path: Path, cluster: Cluster) -> None:
    whole, apart = collected(config_of(kind, tmp_path), cluster)
    inputs = ObservationInputs.of(apart.inputs)
    assert list(inputs.observations) == ["observation.numbers"]
    assert len(inputs.sources) == 2
    decided = whole.mask.unflatten(1, (-1, whole.positions_per_decision)).any(dim=2)
    fetched = inputs.fetched()
    for name, leaf in ObservationInputs.of(whole.inputs).observations.items():
        assert fetched.observations[name][decided].equal(leaf[decided])
    save_plain(apart, tmp_path / "batch.pt")
    kept = ObservationInputs.of(load_plain(tmp_path / "batch.pt").inputs)
    assert kept.observations["observation.picture"].equal(fetched.observations["observation.picture"])


def test_places_follow_their_rows(tmp_path: Path, cluster: Cluster) -> None:
    whole, apart = collected(config_of("episodes", tmp_path), cluster)
    rows = torch.tensor([4, 0, 5, 0])
    mixed = concatenate([apart.select(rows), apart.select([2])])
    assert ObservationInputs.of(mixed.inputs).sources == ObservationInputs.of(apart.inputs).sources
    back = concatenate([apart.select([5]), apart.select([0])])
    for some, numbers in ((mixed, [*rows.tolist(), 2]), (back, [5, 0])):
        expected = whole.select(numbers)
        found = ObservationInputs.of(some.inputs.fetched()).observations["observation.picture"]
        picture = ObservationInputs.of(expected.inputs).observations["observation.picture"]
        assert found[expected.mask].equal(picture[expected.mask])


class Ranks:
    """Learners of this process that are called one after the other and share no gradient."""

    name = "learner"

    def __init__(self, config: Config, spaces: Any, size: int) -> None:
        self.size, self.given = size, []
        policy = functools.partial(make_policy, config, *spaces)
        self.learners = [
            TorchLearner(policy(), stages=stages_of(config), seed=1, micro_batch_tokens=5, rank=rank, size=size)
            for rank in range(size)
        ]

    def call(self, method: Any) -> list[Any]:
        return [learner.data_place for learner in self.learners]

    def submit(self, method: str, *, per_rank: Any, **options: Any) -> list[Any]:
        self.given = [_real(one) for (one,) in per_rank]
        ranks = [LearnerWorker(learner, rank=rank) for rank, learner in enumerate(self.learners)]
        return [getattr(rank, method)(one, **options) for rank, one in zip(ranks, self.given, strict=True)]

    def gather(self, handles: Any) -> list[Any]:
        return list(handles)


def _real(argument: Any) -> Any:
    if isinstance(argument, Assembled):
        return argument.of(_real)
    return argument.result() if hasattr(argument, "result") else argument


class InPlace:
    def share(self, value: Any) -> Any:
        return value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3])
def test_ranks_learn_from_their_rows_as_from_the_whole_batch(
    kind: str, size: int, tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlinf.learners.torch.sum_gradients", lambda parameters, ranks: None)
    config = config_of(kind, tmp_path)
    with workers(config, cluster) as group:
        spaces = EnvPool(group).spaces()
    batches: list[Batch] = []
    for batch in collected(config, cluster):
        ready, _ = prepare_batch(
            batch, config.algorithm, AlgorithmState.of(config.algorithm), fragments=config.facts.holds_fragments
        )
        batches.append(ready)
    learned = []
    for batch, divided in zip(batches, (False, True), strict=True):
        ranks: Any = Ranks(config, spaces, size)
        rule = ranks.learners[0].policy.decision_rule
        plan = DecisionPlan(stages_of(config), seed=1, rule=rule)
        pool = LearnerPool(ranks, InPlace(), plan=plan if divided else None)  # type: ignore[arg-type]
        pool.evaluate(batch)
        pool.update(batch, step=2)
        if divided and size > 1:
            assert all(isinstance(one, RankBatch) for one in ranks.given)
        learned.append([learner.policy.state_dict() for learner in ranks.learners])
    for whole, own in zip(*learned, strict=True):
        assert all(torch.equal(whole[name], own[name]) for name in whole)
    counts = [name for name in learned[0][0] if name.endswith("normalizer.count")]
    assert counts
    assert all(float(learned[0][0][name]) > 1 for name in counts)


def test_a_rank_is_sent_the_images_of_its_rows_alone(tmp_path: Path, cluster: Cluster) -> None:
    config = config_of("fragments", tmp_path)
    pool = EnvPool(workers(config, cluster))
    spaces = pool.spaces()
    batch, _ = VectorRollout(pool, config.collection).collect(0)
    decisions = int(batch.mask.sum())
    ranks: Any = Ranks(config, spaces, 4)
    rule = replace(ranks.learners[0].policy.decision_rule, observed=())
    plan = DecisionPlan(stages_of(config), seed=1, rule=rule)
    LearnerPool(ranks, InPlace(), plan=plan).evaluate(batch)  # type: ignore[arg-type]
    shown = [ObservationInputs.of(one.batch.inputs).observations["observation.picture"] for one in ranks.given]
    assert sum(len(one.flatten(0, 1)) for one in shown) == decisions
    assert max(len(one.flatten(0, 1)) for one in shown) < decisions


def test_images_of_a_worker_that_died_are_cut_where_they_are_needed(tmp_path: Path, cluster: Cluster) -> None:
    config = config_of("fragments", tmp_path)
    with workers(config, cluster) as group:
        part, leaves = keep_images_local(group.call_one(0, "collect", 0))
        assert part.batch is not None

    class Dead:
        def submit_pieces(self, *args: Any, count: int) -> Any:
            return self, [self] * count

        def result(self) -> Any:
            raise WorkerDied("env rank 0 of 1 died", group="env", rank=0, method="leaves_of_rows")

    class Value:
        def result(self) -> Any:
            return leaves

    source = RemoteObservations(Dead(), 0, Value())  # type: ignore[arg-type]
    (piece,) = source.pieces([torch.tensor([3, 1])])()
    (name,) = leaves
    assert _real(piece)[name].equal(leaves[name][torch.tensor([3, 1])])


def test_small_leaves_stay_in_the_batch(tmp_path: Path, cluster: Cluster) -> None:
    config = config_of("fragments", tmp_path)
    with workers(config, cluster) as group:
        part = group.call_one(0, "collect", 0)
    assert part.batch is not None
    inputs = ObservationInputs.of(part.batch.inputs)
    numbers = {"observation.numbers": inputs.observations["observation.numbers"]}
    bare = replace(part, batch=part.batch.replace(inputs=replace(inputs, observations=numbers)))
    assert keep_images_local(bare) == (bare, {})
