"""What goes into a pack comes out of it."""

from __future__ import annotations

import numpy
import pytest
import torch

from rlinf.cluster.packing import pack, unpack
from rlinf.data.messages import WeightUpdate

TENSORS = {
    "float": torch.arange(6.0).reshape(2, 3),
    "bfloat16": torch.ones(5, dtype=torch.bfloat16),
    "bool": torch.tensor([True, False]),
    "scalar": torch.tensor(3),
    "empty": torch.empty(0, 4),
    "slice of a column": torch.arange(12).reshape(3, 4)[:, 1],
    "complex": torch.tensor([1 + 2j]).conj(),
    "parameter": torch.nn.Parameter(torch.ones(2)),
}


@pytest.mark.parametrize("writable", [True, False])
def test_tensors_come_out_as_they_went_in(writable: bool) -> None:
    back = unpack(pack(WeightUpdate(4, TENSORS)), writable=writable)
    assert back.version == 4
    for name, tensor in TENSORS.items():
        assert back.tensors[name].dtype == tensor.dtype
        assert back.tensors[name].shape == tensor.shape
        assert torch.equal(back.tensors[name].resolve_conj(), tensor.resolve_conj())
        assert back.tensors[name].requires_grad == tensor.requires_grad


def test_a_slice_takes_its_own_bytes_only() -> None:
    packed = pack(torch.zeros(1_000_000)[:10])
    assert sum(memoryview(buffer).nbytes for buffer in packed.buffers) == 40
    assert len(packed.head) < 1000


def test_writable_values_are_copies_and_others_are_not() -> None:
    original = torch.zeros(4)
    packed = pack({"t": original, "n": numpy.zeros(3)})
    copy = unpack(packed, writable=True)
    copy["t"].add_(1)
    copy["n"] += 1
    assert original.tolist() == [0.0] * 4
    original.add_(2)
    assert unpack(packed, writable=False)["t"].tolist() == [2.0] * 4


@pytest.mark.parametrize("size", [0, 1, 63, 1000])
def test_copies_are_aligned_like_torchs_own_memory(size: int) -> None:
    copy = unpack(pack(numpy.arange(size, dtype=numpy.uint8)), writable=True)
    assert copy.tolist() == list(numpy.arange(size, dtype=numpy.uint8))
    assert size == 0 or copy.ctypes.data % 64 == 0


def test_one_tensor_given_twice_stays_one() -> None:
    shared = torch.zeros(3)
    left, right = unpack(pack((shared, shared)), writable=True)
    assert left is right


def test_functions_of_a_script_travel() -> None:
    offset = 3
    assert unpack(pack(lambda value: value + offset), writable=True)(4) == 7
