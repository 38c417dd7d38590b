"""Digests find every way in which a model can hold other weights than those that were sent, and no other."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rlinf.data.messages import WeightUpdate
from rlinf.models import weight_digest
from rlinf.models.weight_digest import DigestRequest, SentWeights, differences, digest_requests, held_digests
from rlinf.models.weight_update import WeightTaker

Named = dict[str, Tensor]


def named(seed: int = 0) -> Named:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"embed": (50, 12), "norm": (12,), "head": (7, 12), "scale": ()}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def found(sent: SentWeights, held: Named) -> list[str]:
    digests = sent.digests()
    return differences(digests, held_digests(held.items(), digest_requests(digests)))


def one_bit(tensor: Tensor) -> Tensor:
    """The smallest change of one number that is not among the sampled ones."""
    changed = tensor.clone()
    changed[3, 5] = torch.nextafter(changed[3, 5], torch.tensor(9.0))
    return changed


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (lambda it: {name: tensor for name, tensor in it.items() if name != "norm"}, "norm: the model has no such"),
        (lambda it: {**it, "head": it["head"][:5]}, r"head: \(5, 12\) instead of \(7, 12\)"),
        (lambda it: {**it, "head": it["head"].roll(1, 0)}, "head: .* instead of"),
        (lambda it: {**it, "norm": it["norm"] * torch.tensor(float("nan"))}, "norm: nan instead of"),
        (lambda it: {**it, "embed": one_bit(it["embed"])}, "embed: its bits do not add up"),
        (lambda it: {**it, "embed": torch.cat([it["embed"][:40], torch.zeros(10, 12)])}, "embed: 0 instead of"),
    ],
    ids=["missing", "shorter", "rows in another order", "nan", "one bit", "truncated"],
)
def test_one_wrong_tensor_is_named(fault: Callable[[Named], Named], words: str) -> None:
    sent = SentWeights()
    sent.add(WeightUpdate(4, named()))
    assert found(sent, named()) == []
    (problem,) = found(sent, fault(named()))
    assert re.search(words, problem)


def test_an_update_that_did_nothing_is_found_in_every_tensor() -> None:
    sent = SentWeights()
    sent.add(WeightUpdate(5, named(1)))
    assert len(found(sent, named(0))) == 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_of_fewer_bits_holds_rounded_numbers(dtype: torch.dtype) -> None:
    sent = SentWeights()
    sent.add(WeightUpdate(1, named()))
    rounded = {name: tensor.to(dtype) for name, tensor in named().items()}
    assert found(sent, rounded) == []
    assert len(found(sent, {name: tensor * 1.02 for name, tensor in rounded.items()})) == 4


def test_parts_and_memory_that_is_not_aligned() -> None:
    sent, whole = SentWeights(), named()
    for part, (name, tensor) in enumerate(whole.items()):
        sent.add(WeightUpdate(2, {name: tensor}, part, len(whole)))
    shifted = torch.empty(601)[1:].view(50, 12).copy_(whole["embed"])
    gaps = torch.empty(12, 7).copy_(whole["head"].T).T
    assert not gaps.is_contiguous()
    assert found(sent, {**whole, "embed": shifted, "head": gaps}) == []


@pytest.mark.parametrize("size", [0, 1, 3, 40, 4097])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_small_tensor_has_the_digest_that_torch_reads(
    size: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = torch.randint(-(2**63), 2**63 - 1, (size,), generator=torch.Generator().manual_seed(size))
    tensor = words if dtype == torch.int64 else words.to(dtype)
    requests = {"it": DigestRequest(5, whole=True)}
    by_numpy = held_digests([("it", tensor)], requests)["it"]
    monkeypatch.setattr(weight_digest, "_SMALL", -1)
    by_torch = held_digests([("it", tensor)], requests)["it"]
    assert by_numpy.bits == by_torch.bits
    assert by_numpy.numbers.tolist() == by_torch.numbers.tolist()


def test_sampled_positions_move_with_the_version() -> None:
    """Where the sums cannot be compared, one wrong number is found in time."""
    whole = {"w": torch.randn(40, 40, generator=torch.Generator().manual_seed(1))}
    wrong = {"w": whole["w"].bfloat16()}
    wrong["w"][17, 23] += 1
    versions = []
    for version in range(60):
        sent = SentWeights()
        sent.add(WeightUpdate(version, whole))
        versions.append(bool(found(sent, wrong)))
    assert 0 < sum(versions) < 60


def adapters(seed: int) -> Named:
    generator = torch.Generator().manual_seed(seed)
    factors = {"w@down": (2, 12), "w@up": (16, 2)}
    drawn = {name: 0.1 * torch.randn(shape, generator=generator) for name, shape in factors.items()}
    return {**drawn, "w@scale": torch.tensor(2.0)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adapters_are_compared_as_they_act(dtype: torch.dtype) -> None:
    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(16, 12, dtype=dtype))

    base = torch.randn(16, 12, generator=torch.Generator().manual_seed(9)).to(dtype)
    given = [{name: tensor.to(dtype) for name, tensor in adapters(seed).items()} for seed in (1, 2)]
    model, taker, sent = Holder(), WeightTaker(), SentWeights()
    first = WeightUpdate(1, {"w@base": base, **given[0]})
    sent.add(first)
    taker.take(model, first)
    assert found(sent, dict(model.named_parameters())) == []
    later = WeightUpdate(2, given[1], partial=True)
    sent.add(later)
    assert len(found(sent, dict(model.named_parameters()))) == 1, "the adapter was never delivered"
    taker.take(model, later)
    assert found(sent, dict(model.named_parameters())) == []


def test_what_stays_where_it_is_costs_no_second_sum() -> None:
    sent = SentWeights()
    sent.add(WeightUpdate(1, named()))
    sent.add(WeightUpdate(2, {"norm": torch.ones(12)}, partial=True))
    wanted = digest_requests(sent.digests())
    assert wanted["norm"] == DigestRequest(2, True, (12,))
    assert wanted["embed"] == DigestRequest(1, False, (50, 12))
    assert found(sent, {**named(), "norm": torch.ones(12)}) == []
    assert len(found(sent, {**named(3), "norm": torch.ones(12)})) == 3
