"""Rows of text stay where they were made: what is learned from them is what is learned from rows on the driver."""

from __future__ import annotations

import functools
import math
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs
import torch
from learner_cases import MICRO_BATCH_TOKENS, make_batch, make_stage, policy_of, tiny_model

from rlinf.algorithms.advantages.distributed import complete
from rlinf.algorithms.advantages.estimate import AdvantageInputs, Advantages
from rlinf.algorithms.objective import Objective
from rlinf.algorithms.prepare import AlgorithmState, prepare_batch, prepare_rows
from rlinf.cluster import Cluster, WorkerDied, connect
from rlinf.cluster.api import Assembled
from rlinf.cluster.local import LocalHandle
from rlinf.config import Config
from rlinf.data.batch import Batch, concatenate
from rlinf.data.inputs import TextInputs
from rlinf.data.ragged import LOGPROBS, TOKENS, RaggedRows
from rlinf.data.remote_rows import RemoteColumns, RemoteRows, join_rows
from rlinf.learners.torch import TorchLearner
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.schema import AlgorithmConfig
from rlinf.schema.algorithm import OverlongPenaltyConfig
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.graph import Graph
from rlinf.train.plain_state import load_plain, save_plain
from rlinf.train.quarantine import BadBatch, require_finite
from rlinf.train.run import build_graph
from rlinf.train.workers.kept_values import RemoteRowStore
from rlinf.train.workers.learner_pool import LearnerPool
from rlinf.train.workers.learner_worker import LearnerWorker
from rlinf.train.workers.row_plan import TextPlan
from rlinf.train.workers.sampler_pool import RoundSession, SamplerPool

COLUMNS = ("actions", "rollout_logprobs", "policy_version", "mask", "terminated", "truncated")
COLUMNS += ("rewards", "group_ids")
"""That a policy, an estimator or a loss reads."""


class Makers:
    """Workers of this process that cut up what they made; those in ``dead`` do not answer."""

    name = "sampler"

    def __init__(self, dead: tuple[int, ...] = ()) -> None:
        self.dead = dead

    def submit_pieces(self, rank: int, function: Callable[..., Any], *args: Any, count: int) -> Any:
        if rank in self.dead:
            error = WorkerDied("sampler died", group=self.name, rank=rank, method=function.__name__)
            return LocalHandle(self.name, rank, "", None, error), [
                LocalHandle(self.name, rank, "", None, error)
            ] * count
        pieces = function(*map(_real, args))
        assert len(pieces) == count
        done = LocalHandle(self.name, rank, "", None, None)
        return done, [LocalHandle(self.name, rank, "", piece, None) for piece in pieces]


def _real(argument: Any) -> Any:
    if isinstance(argument, Assembled):
        return argument.of(_real)
    return argument.result() if isinstance(argument, LocalHandle) else argument


def kept_by_makers(batch: Batch, *, dead: tuple[int, ...] = ()) -> RemoteRows:
    """The rows of a batch of one turn, with tokens and log-probabilities at two makers, in parts of three rows."""
    inputs = TextInputs.of(batch.inputs)
    group: Any = Makers(dead)
    sources = [RemoteRowStore(group, rank) for rank in range(2)]
    places: list[tuple[RemoteRowStore, int] | None] = [None] * batch.num_rows
    order = torch.randperm(batch.num_rows, generator=torch.Generator().manual_seed(1))
    for number, rows in enumerate(order.split(3)):
        lengths = inputs.response_lengths[rows].tolist()
        tokens, logprobs = (column.numpy()[rows.numpy()] for column in (batch.actions, batch.rollout_logprobs))
        runs = RaggedRows.of_rows(
            {
                TOKENS: [row[:length].astype(np.int32) for row, length in zip(tokens, lengths, strict=True)],
                LOGPROBS: [row[:length] for row, length in zip(logprobs, lengths, strict=True)],
            }
        )
        source = sources[number % 2]
        first = source.add(LocalHandle("sampler", number % 2, "", runs, None), len(rows))
        for place, row in enumerate(rows.tolist()):
            places[row] = (source, first + place) if lengths[place] else None
    assert batch.truncated is not None
    return RemoteRows(
        inputs=inputs,
        lengths=batch.mask.sum(dim=1),
        rewards=batch.rewards,
        group_ids=batch.group_ids,
        truncated=batch.truncated.any(dim=1),
        policy_version=batch.policy_version[:, 0],
        num_positions=batch.num_positions,
        columns=(RemoteColumns.of({TOKENS: torch.int64, LOGPROBS: torch.float32}, places),),
        reward_details=batch.reward_details,
    )


class Maker:
    """Makes rows of 30,000 tokens, more than Ray sends to the caller, and counts those that it is given."""

    def __init__(self, info: Any) -> None: ...

    def make(self, portions: int) -> Iterator[tuple[int, RaggedRows]]:
        for number in range(portions):
            rows = [np.full(30_000, 10 * number + row, np.int32) for row in range(3)]
            yield len(rows), RaggedRows.of_rows({TOKENS: rows})

    def firsts(self, *pieces: RaggedRows) -> list[list[int]]:
        return [[int(piece.columns[TOKENS][span][0]) for span in piece.spans()] for piece in pieces]

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_rows_of_an_actor_that_was_killed_are_still_given_to_others() -> None:
    wanted = [np.array([0, 4]), np.array([5]), np.array([3, 1, 2])]
    with connect(ClusterConfig()) as cluster, cluster.spawn("maker", Maker, n=2) as group:
        source = RemoteRowStore(group, 0)
        for count, runs in group.stream(0, "make", 2, pairs=True):
            source.add(runs, count)
        assert group.call_one(1, "firsts", *source.pieces(wanted)()) == [[0, 11], [12], [10, 1, 2]]
        with pytest.raises(WorkerDied):
            group.call_one(0, "die")
        assert group.call_one(1, "firsts", *source.pieces(wanted)()) == [[0, 11], [12], [10, 1, 2]]
        assert source.fetch(np.array([4])).columns[TOKENS][0] == 11
        group.restart([0])
        assert group.call_one(1, "firsts", *source.pieces(wanted)()) == [[0, 11], [12], [10, 1, 2]]


def of_one_turn() -> Batch:
    """Whole rows are valid or, two of them, nothing; some were cut, one has no response."""
    batch = make_batch(groups=5, group_size=4)
    inputs = TextInputs.of(batch.inputs)
    lengths = inputs.response_lengths.clone()
    lengths[9] = 0
    every, valid = torch.arange(batch.num_positions), lengths.clone()
    valid[[2, 13]] = 0
    ends = every == valid[:, None] - 1
    return batch.replace(
        inputs=replace(inputs, response_lengths=lengths),
        mask=every < valid[:, None],
        rollout_logprobs=batch.rollout_logprobs * (every < lengths[:, None]),
        rewards=(torch.arange(20) % 3 > 0).float() * (valid > 0),
        terminated=ends,
        truncated=ends & (torch.arange(20) % 4 == 1)[:, None],
        advantages=None,
        returns=None,
    )


def same(one: Batch, other: Batch) -> None:
    """Equal wherever a response is."""
    valid = torch.arange(one.num_positions) < TextInputs.of(one.inputs).response_lengths[:, None]
    for name in COLUMNS:
        column, expected = getattr(one, name), getattr(other, name)
        if expected is None:
            assert column is None
        elif expected.shape == valid.shape:
            assert torch.where(valid, column, 0).equal(torch.where(valid, expected, 0)), name
        else:
            assert column.equal(expected), name
    for name, tensor in other.inputs.named().items():
        assert one.inputs.named()[name].equal(tensor)


def of_one_token() -> Batch:
    """The same where nobody says more than one."""
    batch = of_one_turn()
    inputs = TextInputs.of(batch.inputs)
    inputs = replace(inputs, response_lengths=inputs.response_lengths.clamp(max=1))
    cut = {name: getattr(batch, name)[:, :1] for name in ("actions", "rollout_logprobs", "policy_version", "mask")}
    ends = cut["mask"]
    return batch.replace(inputs=inputs, terminated=ends, truncated=ends & batch.truncated.any(dim=1)[:, None], **cut)  # type: ignore[union-attr]


@pytest.mark.parametrize("dead", [(), (1,), (0, 1)])
def test_rows_are_fetched_also_from_makers_that_died(dead: tuple[int, ...]) -> None:
    batch = of_one_turn()
    remote = kept_by_makers(batch, dead=dead)
    same(remote.fetch(), batch)


def test_places_follow_their_rows(tmp_path: Path) -> None:
    batch = of_one_turn()
    first, second = kept_by_makers(batch), kept_by_makers(batch.replace(group_ids=batch.group_ids + 5))
    rows = [7, 0, 3]
    mixed = join_rows([first.select(rows), second.select([2, 2]), first])
    assert isinstance(mixed, RemoteRows)
    whole = batch.replace(group_ids=batch.group_ids + 5)
    expected = concatenate([batch.select(rows), whole.select([2, 2]), batch])
    same(mixed.fetch(), expected)
    assert len(mixed.columns[0].stores) == 4
    with_one_here = join_rows([first.select(rows), whole.select([2, 2]), first])
    assert isinstance(with_one_here, Batch)
    same(with_one_here, expected)
    save_plain(mixed, tmp_path / "batch.pt")
    same(load_plain(tmp_path / "batch.pt"), mixed.fetch())


class Ranks:
    """Learners of this process that are called one after the other and share no gradient."""

    name = "learner"

    def __init__(self, size: int, *, minibatches: int, critic: bool) -> None:
        self.size, self.given = size, list[Any]()
        objective = Objective.of("actor_critic" if critic else "actor", kl_beta=0.05)
        self.stage = replace(make_stage(minibatches=minibatches, reference=True, critic=critic), objective=objective)
        self.workers = [
            LearnerWorker(
                TorchLearner(
                    policy_of(tiny_model(layers=1), value_head=critic),
                    stages=[self.stage],
                    seed=3,
                    micro_batch_tokens=MICRO_BATCH_TOKENS,
                    rank=rank,
                    size=size,
                ),
                rank=rank,
            )
            for rank in range(size)
        ]

    def call(self, method: Any) -> list[Any]:
        return [worker.data_rank() for worker in self.workers]

    def submit(self, method: str, *, per_rank: Any, **options: Any) -> list[Any]:
        self.given = [_real(one) for (one,) in per_rank]
        pairs = zip(self.workers, self.given, strict=True)
        return [LocalHandle(self.name, 0, method, getattr(one, method)(given, **options), None) for one, given in pairs]

    def submit_remote(self, rank: int, method: str, given: Any, **options: Any) -> Any:
        halves = getattr(self.workers[rank], method)(_real(given), **options)
        return tuple(LocalHandle(self.name, rank, method, half, None) for half in halves)

    submit_pieces = Makers.submit_pieces
    dead = ()

    def gather(self, handles: Any) -> list[Any]:
        return [handle.result() for handle in handles]


class InPlace:
    def share(self, value: Any) -> Any:
        return value


OPTIONS: list[dict[str, Any]] = [
    {"adv_type": "grpo"},
    {"adv_type": "grpo", "max_len_mask": True, "difficulty_mask": True},
    {"adv_type": "grpo", "overlong_penalty": OverlongPenaltyConfig(safe_length=2, max_length=6, coef=0.5)},
    {"adv_type": "grpo", "normalize_advantages": True, "keep_zero_groups": True, "use_valid_token_scale": True},
    {"adv_type": "gae", "normalize_advantages": True, "max_len_mask": True},
    {"adv_type": "reinforce_pp", "kl_coef": 0.1},
    {"adv_type": "reinforce_pp_baseline", "gamma": 0.9, "keep_zero_groups": True},
    {"adv_type": "rloo"},
    {"adv_type": "maxrl"},
    {"adv_type": "opo"},
    {"adv_type": "raw", "whiten_rewards": True},
]


def at_night(make: Callable[[], Batch], size: int) -> Any:
    return pytest.param(make, size, marks=pytest.mark.slow)


CASES = [(of_one_turn, 2), at_night(of_one_turn, 1), at_night(of_one_turn, 8)]
CASES += [(of_one_token, 2), at_night(of_one_token, 1)]  # of more ranks some have no gradient, which nobody adds here


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(("make", "size"), CASES)
def test_ranks_learn_from_remote_rows_as_from_rows_on_the_driver(
    size: int, options: dict[str, Any], make: Callable[[], Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: log-probabilities and values that ranks keep, advantages, weights and metrics."""
    monkeypatch.setattr("rlinf.learners.torch.sum_gradients", lambda parameters, ranks: None)
    algorithm = AlgorithmConfig(**options)
    critic = algorithm.adv_type == "gae"
    whole = make().replace(advantages=None, returns=None)
    learned = []
    for rows in (whole, kept_by_makers(whole, dead=(1,))):
        ranks: Any = Ranks(size, minibatches=2, critic=critic)
        store: Any = InPlace()
        pool = LearnerPool(ranks, store, plan=TextPlan([ranks.stage], seed=3, packed=False))
        ready: Batch | RemoteRows
        if isinstance(rows, RemoteRows):
            names = ("old_logprobs", "old_values") if critic else ("old_logprobs",)
            ready, found = pool.evaluate_remote(rows, names)
            ready, _ = pool.evaluate_remote(ready, ("ref_logprobs",), reference=True)
            same(ready.fetch(), whole)
        else:
            output = pool.evaluate(rows)
            ready = rows.replace(old_logprobs=output.logprobs, old_values=output.values)
            ready = ready.replace(ref_logprobs=pool.evaluate(rows, reference=True).logprobs)
            found = ready
        prepared, metrics = prepare_rows(ready, algorithm, AlgorithmState.of(algorithm), pool)
        if size == 1 and isinstance(rows, Batch):
            assert isinstance(prepared, Batch)
            assert prepared.advantages is not None
        updated = pool.update(prepared, step=2)
        learned.append((metrics, updated, [worker._learner.policy.state_dict() for worker in ranks.workers], found))
    (metrics, updated, weights, ready), (remote_metrics, remote_updated, remote_weights, found) = learned
    assert metrics == remote_metrics
    assert updated == remote_updated
    for one, other in zip(weights, remote_weights, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)
    gap = torch.where(ready.mask, (ready.old_logprobs - ready.rollout_logprobs).abs(), 0.0)
    assert found[:, 0].allclose(gap.double().sum(dim=1))
    assert found[:, 1].equal(ready.mask.sum(dim=1).double())


def test_an_estimator_that_reads_all_rows_gets_them() -> None:
    """An own estimator may compare any rows: the driver fetches all and computes their advantages."""
    whole = of_one_turn().replace(advantages=None, returns=None)
    algorithm = AlgorithmConfig(adv_type=f"{__name__}:ranked")
    expected, metrics = prepare_batch(whole, algorithm, AlgorithmState.of(algorithm))
    ranks: Any = Ranks(2, minibatches=1, critic=False)
    store: Any = InPlace()
    pool = LearnerPool(ranks, store, plan=TextPlan([ranks.stage], seed=3, packed=False))
    found, remote_metrics = prepare_rows(kept_by_makers(whole), algorithm, AlgorithmState.of(algorithm), pool)
    assert isinstance(found, Batch)
    assert found.advantages is not None
    assert expected.advantages is not None
    assert bool((expected.advantages != 0).any())
    assert found.advantages.equal(expected.advantages)
    assert metrics == remote_metrics


def ranked(x: AdvantageInputs) -> Advantages:
    """The rank of each row's outcome among all rows."""
    advantages = x.per_row(x.outcomes.argsort().argsort().double())
    return Advantages(advantages, advantages)


def test_samples_of_rows_with_pending_advantages_have_them() -> None:
    whole = of_one_turn().replace(advantages=None, returns=None)
    algorithm = AlgorithmConfig(adv_type="grpo")
    expected, _ = prepare_batch(whole, algorithm, AlgorithmState.of(algorithm))
    ranks: Any = Ranks(2, minibatches=1, critic=False)
    store: Any = InPlace()
    pool = LearnerPool(ranks, store, plan=TextPlan([ranks.stage], seed=3, packed=False))
    prepared, _ = prepare_rows(kept_by_makers(whole), algorithm, AlgorithmState.of(algorithm), pool)
    assert expected.advantages is not None
    shown = complete(prepared.select([7, 0])).advantages
    assert shown is not None
    assert shown.equal(expected.advantages[[7, 0]])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with connect(ClusterConfig(backend="local")) as local:
        yield local


def graph_of(config: Config, cluster: Cluster, folder: Path) -> Graph:
    folder.mkdir()
    return build_graph(ResolvedRun.of(config), cluster, folder)


def config_of(folder: Path, **algorithm: Any) -> Config:
    env = {"num_workers": 2, "kwargs": tiny_runs.GRADED_BY_LENGTH}
    rollout = {"sampler": "hf", "batch_size": 4, "max_new_tokens": 6, "num_samplers": 2}
    return tiny_runs.config(folder, env=env, rollout=rollout, algorithm={"group_size": 4, **algorithm})


def leaves_rows(rollout: TextRollout) -> bool:
    session = rollout.rounds["train"]()
    assert isinstance(session, RoundSession)
    return session.remote


def leave_rows(rollout: TextRollout) -> None:
    assert isinstance(rollout.sampler, SamplerPool)
    rollout.rounds = {"train": functools.partial(rollout.sampler.round, remote=True)}


def test_a_run_leaves_rows_with_its_samplers(tmp_path: Path, cluster: Cluster) -> None:
    """The batch is the one that the driver would have, texts and metrics too."""
    graph = graph_of(config_of(tmp_path / "run"), cluster, tmp_path / "graph")
    graph.send_weights(0)
    rollout = graph.rollout
    assert isinstance(rollout, TextRollout)
    assert not leaves_rows(rollout)  # in one process a batch has all of its columns
    whole, expected = rollout.collect(0)
    assert isinstance(whole, Batch)
    leave_rows(rollout)
    remote, metrics = rollout.collect(0)
    assert isinstance(remote, RemoteRows)
    assert {type(text).__name__ for text in remote.metadata["response"]} == {"LazyText"}
    fetched = remote.fetch()
    same(fetched, whole)
    assert fetched.metadata == whole.metadata
    timed = {name for name in expected if name.startswith("time/")}
    assert {name: metrics[name] for name in metrics.keys() - timed} == {
        name: expected[name] for name in expected.keys() - timed
    }


def test_what_is_not_finite_comes_to_the_driver(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(config_of(tmp_path / "run"), cluster, tmp_path / "graph")
    graph.send_weights(0)
    assert isinstance(graph.rollout, TextRollout)
    leave_rows(graph.rollout)
    batch, _ = graph.rollout.collect(0)
    assert isinstance(batch, RemoteRows)
    require_finite(batch, tmp_path, 0)

    def broken(self: Any, requests: Any) -> Any:
        for completion in type(self).sound(self, requests):
            logprobs = [math.nan] * len(completion.token_ids) if completion.sample_index == 1 else completion.logprobs
            yield replace(completion, logprobs=logprobs)

    from rlinf.samplers.hf import HFSampler

    monkeypatch.setattr(HFSampler, "sound", HFSampler.stream, raising=False)
    monkeypatch.setattr(HFSampler, "stream", broken)
    batch, _ = graph.rollout.collect(0)
    with pytest.raises(BadBatch, match="rollout_logprobs is NaN or infinite in rows"):
        require_finite(batch, tmp_path, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"rollout": {"stop": ["x"]}},
        {"env": {"max_turns": 2}},
        {"reward_model": {"supervision": "outcome", "fit_batches": 1}},
        {},
    ],
)
def test_rows_that_are_read_on_their_way_do_not_stay(
    options: dict[str, Any], tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(cluster), "concurrent", True)  # as on a cluster
    graph = graph_of(tiny_runs.config(tmp_path / "run", **options), cluster, tmp_path / "graph")
    assert isinstance(graph.rollout, TextRollout)
    assert leaves_rows(graph.rollout) == (not options)
