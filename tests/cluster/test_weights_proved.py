"""After every sending each receiver shows what its model holds; whichever way the weights took, faults are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MethodType
from typing import Any

import pytest
import torch
from held_weights import Threads
from test_weights_of_adapters import WAYS, learner, sampler, train
from tiny_models import EOS, PAD, tiny_qwen2
from torch import Tensor

from rlinf.base.errors import RunFailed
from rlinf.cluster.pool import PolicyPool
from rlinf.cluster.weights.broadcast import Broadcast
from rlinf.cluster.weights.proof import WeightProof, WeightsNotHeld
from rlinf.cluster.weights.segment import SegmentReader, available
from rlinf.cluster.weights.sender import WeightSender
from rlinf.data.messages import Metrics, WeightForm, WeightUpdate
from rlinf.samplers.hf import HFSampler
from rlinf.train.workers.sampler_worker import SamplerWorker

PARTS = 3
NOTHING: Metrics = {"weight_update_s": 0.0, "weight_update_bytes": 0.0}
Load = Callable[[WeightUpdate], Metrics]


class Source(WeightSender):
    """A learner whose weights are another model for every version, in several parts."""

    def __init__(self) -> None:
        super().__init__(0)

    def weight_sources(self, *, form: WeightForm = "merged") -> list[int]:
        return [0] * PARTS

    def weights(self, *, version: int, part: int = 0, form: WeightForm = "merged") -> WeightUpdate:
        named = list(tiny_qwen2(seed=version).named_parameters())
        return WeightUpdate(version, {name: one.detach() for name, one in named[part::PARTS]}, part, PARTS)


def worker() -> SamplerWorker:
    options = {"eos_token_ids": [EOS], "pad_token_id": PAD, "seed": 7, "generation_batch_size": 8, "max_model_len": 64}
    return SamplerWorker(HFSampler(tiny_qwen2(), **options))  # type: ignore[arg-type]


def pool_of(way: str, workers: list[Any], source: Any = None) -> PolicyPool:
    """Receivers that are connected to a learner by a transport, and prove what they hold."""
    source, group = Threads([source or Source()]), Threads(workers)
    pool = PolicyPool(group)  # type: ignore[arg-type]
    pool.connect(WAYS[way](source, group), WeightProof(source, "sampler"))  # type: ignore[no-untyped-call]
    return pool


def with_load(make: Callable[[Any, Load], Load]) -> SamplerWorker:
    """A worker whose sampler loads as ``make(model, its load)`` does."""
    it = worker()
    inner: Any = it._sampler
    inner.load = make(inner._model, inner.load)
    return it


def idle(model: Any, load: Load) -> Load:
    """The first weights alone are taken."""
    return lambda update: load(update) if update.version == 1 else NOTHING


def version_alone(model: Any, load: Load) -> Load:
    """Takes the update, and puts the numbers of before back."""

    def taken(update: WeightUpdate) -> Metrics:
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        figures = load(update)
        if update.version > 1:
            model.load_state_dict(before)
        return figures

    return taken


def without_a_layer(model: Any, load: Load) -> Load:
    """One matrix stays as it was."""

    def taken(update: WeightUpdate) -> Metrics:
        kept = model.model.layers[1].mlp.up_proj.weight
        before = kept.clone()
        figures = load(update)
        if update.version > 1:
            with torch.no_grad():
                kept.copy_(before)
        return figures

    return taken


ways = pytest.mark.parametrize("way", [way for way in WAYS if way != "shared_memory" or available()])


@ways
def test_healthy_receivers_prove_all_weights(way: str) -> None:
    pool = pool_of(way, [worker(), worker()])
    for version in (1, 2, 3):
        assert pool.send_weights(version)["proved"] == 1.0
    assert pool.unproved is None
    pool.group.workers[1] = worker()  # type: ignore[attr-defined]
    pool.recover(1)  # a restarted one has the same weights, and shows it


@pytest.mark.parametrize(
    ("fault", "count"),
    [(idle, 15), (version_alone, 15), (without_a_layer, 1)],  # norms and biases of these models are all the same
    ids=["no load", "version alone", "one layer missing"],
)
def test_a_sampler_that_holds_other_weights_is_named(fault: Any, count: int) -> None:
    pool = pool_of("object_store", [worker(), with_load(fault)])
    pool.send_weights(1)
    words = f"weights 2 were sent.*\n  sampler 1: {count} of 26 weights differ: "
    with pytest.raises(WeightsNotHeld, match=words) as caught:
        pool.send_weights(2)
    assert "sampler 0" not in str(caught.value)
    assert isinstance(caught.value, RunFailed)
    assert caught.value.exit_code == 1


@ways
def test_a_transport_that_truncates_is_found(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(update: WeightUpdate) -> WeightUpdate:
        """The last tensor of a part ends in zeros."""
        name, last = list(update.tensors.items())[-1]
        shorter: Tensor = last.clone()
        shorter.reshape(-1)[-3:] = 0
        return replace(update, tensors={**update.tensors, name: shorter})

    pool = pool_of(way, [worker()])
    pool.send_weights(1)
    for owner, method in ((SegmentReader, "read"), (Broadcast, "receive")):
        whole: Any = getattr(owner, method)
        monkeypatch.setattr(owner, method, lambda self, *given, whole=whole: cut(whole(self, *given)))
    if way == "object_store":
        it = pool.group.workers[0]  # type: ignore[attr-defined]
        load = it.load
        it.load = MethodType(lambda _self, update: load(cut(update)), it)
    with pytest.raises(WeightsNotHeld, match=r"sampler 0: 3 of .* weights differ: .* 0 instead of"):
        pool.send_weights(2)


@ways
def test_an_adapter_that_is_never_delivered_is_found(way: str) -> None:
    """After the first sending only adapters travel: a model that stays as it was is one of other adapters."""
    source, stale = learner(), sampler()
    pool = pool_of(way, [sampler(), stale], source)
    train(source)
    assert pool.send_weights(1)["proved"] == 1.0
    train(source)
    assert pool.send_weights(2)["proved"] == 1.0
    inner: Any = stale._sampler
    inner.load = lambda update: NOTHING
    train(source)
    with pytest.raises(WeightsNotHeld, match=r"sampler 1: 6 of .* weights differ: .*self_attn"):
        pool.send_weights(3)


def test_a_sampler_that_cannot_read_its_weights_back_is_named_and_goes_on() -> None:
    class Own:
        """A user's own sampler."""

        def load(self, update: WeightUpdate) -> Metrics:
            return NOTHING

    pool = pool_of("object_store", [worker(), SamplerWorker(Own())])  # type: ignore[arg-type]
    assert pool.send_weights(1)["proved"] == 0.5
    assert pool.unproved == "Own has no method held_digests"


def test_a_restarted_sampler_that_lost_its_weights_is_found() -> None:
    pool = pool_of("object_store", [worker()])
    pool.send_weights(1)
    pool.group.workers[0] = with_load(lambda _model, _load: lambda _update: NOTHING)  # type: ignore[attr-defined]
    with pytest.raises(WeightsNotHeld, match="weights 1 were sent"):
        pool.recover(0)
