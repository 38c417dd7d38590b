"""The three ways from learner to samplers through Ray: equal weights, versions, and a sampler that dies on the way."""

from __future__ import annotations

import functools
import importlib.util
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import forward_logprobs, make_requests, tiny_qwen2
from transport_learner import Weights, build_learner, weights_of
from transport_workers import build_hf, build_vllm, digest

from rlinf.base.errors import UserError
from rlinf.cluster import Cluster, WorkerGroup, connect
from rlinf.cluster.weights.choice import choose
from rlinf.cluster.weights.transport import Collective, SharedMemory
from rlinf.config import Config
from rlinf.data.messages import SamplingParams
from rlinf.samplers import environment
from rlinf.schema.cluster import ClusterConfig
from rlinf.train.workers.sampler_pool import SamplerPool

pytestmark = pytest.mark.faults

WAYS = ("shared_memory", "collective", "object_store")
PARAMS = SamplingParams(max_new_tokens=16, ignore_eos=True)


@pytest.fixture(scope="module")
def cluster(ray_session: Cluster) -> Iterator[Cluster]:
    config = ClusterConfig(
        start_timeout_s=120.0, call_timeout_s=60.0, max_restarts=10, env=environment("vllm", device="cpu")
    )
    with connect(config) as found:
        yield found


@dataclass(frozen=True)
class Workers:
    """A learner of two ranks, and two samplers, which find their poison in ``folder``."""

    cluster: Cluster
    learners: WorkerGroup
    samplers: WorkerGroup
    folder: Path

    def pool(self, way: str, learner: WorkerGroup | None = None) -> SamplerPool:
        return connected(self.samplers, self.cluster, learner or self.learners, way)


@functools.cache
def base() -> Weights:
    return {name: parameter.detach() for name, parameter in tiny_qwen2(head_dim=32).named_parameters()}


@pytest.fixture(scope="module")
def lone_learner(cluster: Cluster) -> Iterator[WorkerGroup]:
    """One rank, for the tests that want it: not in the fast ones."""
    with cluster.spawn("learner", functools.partial(build_learner, base())) as learner:
        yield learner


@pytest.fixture(scope="module")
def workers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """The same for all ways: processes take longer to start than all they do here."""
    folder = tmp_path_factory.mktemp("poison")
    with (
        cluster.spawn("learners", functools.partial(build_learner, base()), n=2) as learners,
        cluster.spawn("sampler", functools.partial(build_hf, folder), n=2) as samplers,
    ):
        yield Workers(cluster, learners, samplers, folder)


def settings(way: str) -> Config:
    config = Config()
    return replace(config, rollout=replace(config.rollout, weight_transport=way, staleness=1))


def connected(group: WorkerGroup, cluster: Cluster, learner: WorkerGroup, way: str) -> SamplerPool:
    samplers = SamplerPool(group, cluster)
    samplers.connect(
        choose(settings(way).facts.weight_transport, learner, group, cuda=False, keep=settings(way).facts.overlaps)
    )
    return samplers


@pytest.mark.parametrize("sources", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("way", ["shared_memory", "collective", pytest.param("object_store", marks=pytest.mark.slow)])
def test_weights_arrive_and_a_death_on_the_way_is_made_good(
    workers: Workers, way: str, sources: int, request: pytest.FixtureRequest
) -> None:
    samplers = workers.pool(way, request.getfixturevalue("lone_learner") if sources == 1 else None)
    assert samplers.transport.name == way
    size = sum(tensor.numel() * tensor.element_size() for tensor in weights_of(base(), 1).values())
    for version in (1, 2):
        numbers = samplers.send_weights(version)
        assert numbers["weight_update_bytes"] == size
        assert samplers.group.call("digest") == [(digest(weights_of(base(), version)), version)] * 2
    (workers.folder / "poison_1").touch()
    began = time.monotonic()
    samplers.send_weights(3)
    assert time.monotonic() - began < 60
    assert samplers.restarts == 1
    assert samplers.group.call("digest") == [(digest(weights_of(base(), 3)), 3)] * 2
    samplers.send_weights(4)
    assert samplers.group.call("digest") == [(digest(weights_of(base(), 4)), 4)] * 2


def test_auto_takes_shared_memory_on_one_node(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(workers.pool("auto").transport, SharedMemory)
    monkeypatch.setattr(workers.samplers, "nodes", lambda: ["10.0.0.9"])
    assert isinstance(workers.pool("auto").transport, Collective)
    with pytest.raises(UserError, match="2 nodes"):
        workers.pool("shared_memory")


@pytest.mark.slow
def test_a_sampler_killed_over_its_responses_costs_only_what_was_missing(
    workers: Workers, lone_learner: WorkerGroup
) -> None:
    samplers = workers.pool("collective", lone_learner)
    samplers.send_weights(1)
    requests = make_requests(SamplingParams(max_new_tokens=100, ignore_eos=True), prompts=8, n=8)
    expected = samplers.sample(requests)
    (workers.folder / "poison_0_response").touch()
    redone = samplers.sample(requests)
    # Equal but for rounding: what is redone stands in a smaller batch.
    assert [done.token_ids for done in redone] == [done.token_ids for done in expected]
    for done, before in zip(redone, expected, strict=True):
        assert done.logprobs == pytest.approx(before.logprobs, abs=1e-4)
    assert samplers.restarts == 1
    assert 0 < samplers.redone <= 32
    samplers.send_weights(2)
    assert samplers.group.call("digest") == [(digest(weights_of(base(), 2)), 2)] * 2


@pytest.mark.vllm
@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize("way", WAYS)
def test_a_vllm_engine_follows_the_weights_and_is_redone_when_it_is_killed(
    cluster: Cluster, way: str, tmp_path: Path
) -> None:
    tiny_qwen2(head_dim=32).save_pretrained(tmp_path / "model")
    learner = cluster.spawn(f"learner_{way}", functools.partial(build_learner, base()))
    group = cluster.spawn(f"sampler_{way}", functools.partial(build_vllm, tmp_path))
    samplers = connected(group, cluster, learner, way)
    requests = make_requests(PARAMS, prompts=6, n=4)
    for version in (1, 2):
        samplers.send_weights(version)
        expected = samplers.sample(requests)
        assert gap(version, requests, expected) < 5e-5
        assert {v for done in expected for v in done.policy_version} == {version}
    (tmp_path / "poison_0_response").touch()
    redone = samplers.sample(requests)
    assert samplers.restarts == 1
    assert [done.token_ids for done in redone] == [done.token_ids for done in expected]
    assert gap(2, requests, redone) < 5e-5
    assert {v for done in redone for v in done.policy_version} == {2}
    samplers.send_weights(3)
    assert gap(3, requests, samplers.sample(requests)) < 5e-5
    group.close()
    learner.close()


def gap(version: int, requests: Any, completions: Any) -> float:
    """Largest difference between the reported log-probabilities and those of the version's weights."""
    model = tiny_qwen2(head_dim=32)
    model.load_state_dict(weights_of(base(), version), strict=False)
    model.tie_weights()
    prompts = {request.request_id: request.prompt_ids for request in requests}
    output = [torch.tensor(done.logprobs) for done in completions]
    expected = [forward_logprobs(model, prompts[done.request_id], done.token_ids) for done in completions]
    return max(float((one - other).abs().max()) for one, other in zip(output, expected, strict=True))
