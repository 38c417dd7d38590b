"""Fake tensors that hold their integers: shapes follow from real lengths, and nothing else has a value.

PyTorch's FakeTensorMode computes shapes, dtypes and devices instead of values. A learner's shapes depend on a
few values: lengths, masks, permutations. So integers and booleans keep theirs in the fake tensor; a number
read from a float tensor (a loss, a norm) is 1. Tensors that are real and stay on the host are computed as
ever.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FakeWork
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import Parameter
from torch.utils._pytree import tree_leaves, tree_map

from rlinf.train.rehearsal.memory import Ledger

aten = torch.ops.aten
_HERE = Path(__file__).parent
_LIBRARIES = ("site-packages", "dist-packages", "lib/python")
_INDEXING = frozenset(
    {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
)
_GATHERING = ("allgather", "reduce_scatter", "gather", "scatter", "alltoall")
# Kernels that mix two precisions are refused by PyTorch in words like these.
_DTYPE_WORDS = ("same dtype", "expected scalar type", "dtypes match")
# Those whose shape functions do not check dtypes, which their kernels do.
_PRODUCTS = frozenset({aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default})


class UnknownValue(RuntimeError):
    """A shape depends on values that a rehearsal does not have; the message names the line."""


@dataclass(frozen=True)
class Mistake:
    """A tensor on the wrong device, or two precisions in one operation."""

    kind: str
    line: str
    """File and line of the code that is not a library's."""
    words: str
    backward: bool

    def __str__(self) -> str:
        where = " (its backward pass)" if self.backward else ""
        return f"{self.kind} at {self.line}{where}: {self.words}"


@dataclass
class Observed:
    """Observations of a rehearsal other than memory."""

    mistakes: dict[Mistake, int] = field(default_factory=dict)
    """How often each happened."""
    sent: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Bytes handed to collectives, by (kind, ranks that take part)."""
    calls: Counter[tuple[str, int]] = field(default_factory=Counter)
    read_by_host: Counter[str] = field(default_factory=Counter)
    """How often the host waited for a value of the device, by line."""


class Fakes(FakeTensorMode):
    """The mode under which a learner is rehearsed. ``device``: where the learner computes, fake as its tensors are."""

    def __init__(self, device: torch.device, ledger: Ledger, observed: Observed) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.device, self.ledger, self.observed = device, ledger, observed
        self._within = False
        self.label: Callable[[Tensor], str | None] = lambda _tensor: None

    @property
    def avoid_device_init(self) -> bool:
        """There is no device to compute constants on, whatever ``torch.cuda`` is made to report."""
        return True

    def dispatch(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """One operation of PyTorch."""
        if func is torch.ops.prim.device.default:
            # PyTorch's C++ reads it: a build without CUDA cannot handle such a device.
            fake: Any = args[0]
            return torch.device("meta") if fake.fake_device.type == "cuda" else fake.fake_device
        # `meta` is how the fake device is called among C++ and us.
        kwargs = {
            name: (self.device if isinstance(value, torch.device) and value.type in ("meta", "cuda") else value)
            for name, value in (kwargs or {}).items()
        }
        if self._within:
            # PyTorch decomposes this operation to compute its shape; a kernel would not.
            return super().dispatch(func, types, args, kwargs)
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if any(type(tensor) not in (Tensor, Parameter, FakeTensor) for tensor in tensors):
            return NotImplemented
        if self._stays_real(func, tensors, kwargs):
            return func(*args, **kwargs)
        if func.namespace == "c10d":
            return self._collective(func, args)
        if func in _INDEXING:
            args = (args[0], self._whole_indices(args[1]), *args[2:])
        if func.namespace == "_c10d_functional" and "wait" not in func._schema.name:
            kind = func._schema.name.removeprefix("_c10d_functional::").replace("_into_tensor", "").replace("_", "")
            self.observed.sent[kind, dist.get_world_size()] += tensors[0].nbytes
            self.observed.calls[kind, dist.get_world_size()] += 1
        known = self._values(args, kwargs, tensors)
        if func is aten._local_scalar_dense.default:
            return self._number(tensors[0], known)
        if func is aten.equal.default:
            return True if known is None else func(*known[0])
        if func is aten._to_copy.default and known is not None and kwargs.get("device") == torch.device("cpu"):
            self._count_read(tensors[0])
            return func(*known[0], **known[1])
        by_values = torch.Tag.dynamic_output_shape in func.tags and func not in _INDEXING
        out = None
        if by_values:
            if known is None:
                raise UnknownValue(f"{func} at {_line()}: the shape of its result depends on values of the device")
            out = tree_map(lambda leaf: self._fake_of(leaf) if isinstance(leaf, Tensor) else leaf, func(*known[0]))
        if out is None:
            if func is aten._to_copy.default and not isinstance(args[0], FakeTensor):
                # PyTorch 2.9 would copy the numbers themselves to the device.
                args = (self.from_tensor(cast(Tensor, args[0])), *args[1:])
            out = self._faked(func, types, args, kwargs)
            self._remember(func, out, known, tensors)
        self._count(func, out, tensors)
        return out

    def _stays_real(self, func: Any, tensors: Sequence[Tensor], kwargs: Mapping[str, object]) -> bool:
        """Arithmetic of the host on real tensors; of those made there, integers (model weights would not fit)."""
        device = kwargs.get("device")
        if device is not None and device == self.device and self.device.type != "cpu":
            return False
        if any(isinstance(tensor, FakeTensor) for tensor in tensors) or func.namespace == "c10d":
            return False
        if tensors:
            return True
        dtype = kwargs.get("dtype")
        if dtype is None:
            return func.overloadpacket in (aten.arange, aten.randperm)
        return isinstance(dtype, torch.dtype) and not dtype.is_floating_point

    def value_of(self, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor, if they are known."""
        return getattr(tensor, "known_values", None) if isinstance(tensor, FakeTensor) else tensor

    def _values(
        self, args: Any, kwargs: Any, tensors: Sequence[Tensor]
    ) -> tuple[Sequence[Any], Mapping[str, Any]] | None:
        """Return the arguments with values instead of fake tensors; None if one has none or is of floats."""
        for tensor in tensors:
            if tensor.dtype.is_floating_point or self.value_of(tensor) is None:
                return None

        def host(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                return self.value_of(leaf)
            return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

        return tree_map(host, args), tree_map(host, kwargs)

    def _fake_of(self, value: Tensor) -> FakeTensor:
        """Make a fake tensor on the device with these values."""
        blank = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        fake = FakeTensor(self, blank, self.device)
        fake.known_values = value  # type: ignore[attr-defined]
        return fake

    def _whole_indices(self, indices: Any) -> list[Tensor | None]:
        """Return Boolean indices as the positions of their true elements."""
        results: list[Tensor | None] = []
        for index in indices:
            if index is None or index.dtype not in (torch.bool, torch.uint8):
                results.append(index)
                continue
            values = self.value_of(index)
            if values is None:
                raise UnknownValue(f"indexing at {_line()}: the shape of the result depends on values of the device")
            nonzero = values.nonzero(as_tuple=True)
            results += [
                self._fake_of(index_tensor) if isinstance(index, FakeTensor) else index_tensor
                for index_tensor in nonzero
            ]
        return results

    def _number(self, tensor: Tensor, known: Any) -> Any:
        self._count_read(tensor)
        if known is not None:
            return known[0][0].item()
        if tensor.dtype.is_floating_point:
            return 1.0
        raise UnknownValue(f"a number read at {_line()}: the device's values are not known")

    def _faked(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Compute the fake result; a mistake is noted and mended, so that the next one is found too."""
        try:
            return self._shape_of(func, types, args, kwargs)
        except RuntimeError as error:
            words = str(error)
            if "same device" in words or "different devices" in words:
                kind, mend = "device mismatch", self._on_one_device
            elif any(part in words for part in _DTYPE_WORDS):
                kind, mend = "dtype mismatch", self._in_one_dtype
            else:
                raise
            self._complain(kind, f"{func}: {words.strip().splitlines()[0]}")
            args, kwargs = mend((args, kwargs))
            return self._shape_of(func, types, args, kwargs)

    def _shape_of(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func in _PRODUCTS:
            dtypes = list(dict.fromkeys(str(leaf.dtype) for leaf in args if isinstance(leaf, Tensor)))
            if len(dtypes) > 1:
                raise RuntimeError(f"all factors must have the same dtype, not {' and '.join(dtypes)}")
        self._within = True
        try:
            return super().dispatch(func, types, args, kwargs)
        finally:
            self._within = False

    def _complain(self, kind: str, words: str) -> None:
        mistake = Mistake(kind, _line(), words, torch._C._current_graph_task_id() != -1)
        self.observed.mistakes[mistake] = self.observed.mistakes.get(mistake, 0) + 1

    def _on_one_device(self, arguments: Any) -> Any:
        def moved(leaf: Any) -> Any:
            if not isinstance(leaf, Tensor) or getattr(leaf, "fake_device", None) == self.device:
                return leaf
            blank = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
            return FakeTensor(self, blank, self.device)

        return tree_map(moved, arguments)

    def _in_one_dtype(self, arguments: Any) -> Any:
        floats = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        widest = max((leaf.dtype for leaf in floats), key=lambda dtype: dtype.itemsize)

        def cast(leaf: Any) -> Any:
            return leaf.to(widest) if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

        with self:
            return tree_map(cast, arguments)

    def _remember(self, func: Any, out: Any, known: Any, tensors: Sequence[Tensor]) -> None:
        """Values of an integer result."""
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, FakeTensor)]
        moves_in = func is aten._to_copy.default and isinstance(out, FakeTensor) and not out.dtype.is_floating_point
        if known is None or not (moves_in or any(not leaf.dtype.is_floating_point for leaf in results)):
            if func._schema.is_mutable:
                for tensor in results:
                    tensor.__dict__.pop("known_values", None)
            return
        values = tree_leaves(func(*known[0], **known[1]))
        values = [leaf for leaf in values if isinstance(leaf, Tensor)]
        for fake, value in zip(results, values, strict=True):
            if not fake.dtype.is_floating_point:
                fake.known_values = value  # type: ignore[attr-defined]

    def _count(self, func: Any, out: Any, tensors: Sequence[Tensor]) -> None:
        for leaf in tree_leaves(out):
            if isinstance(leaf, FakeTensor) and leaf.fake_device == self.device:
                self.ledger.add(leaf.untyped_storage(), self.label(leaf) or self.ledger.part)
        if func is aten._to_copy.default and isinstance(out, FakeTensor) and out.fake_device.type == "cpu":
            self._count_read(tensors[0])

    def _count_read(self, tensor: Tensor) -> None:
        """Count a read by the host, which waits for the device whenever it reads from it."""
        if isinstance(tensor, FakeTensor) and tensor.fake_device.type != "cpu":
            self.observed.read_by_host[_line()] += 1

    def _collective(self, func: Any, args: Any) -> Any:
        """Nothing travels: the other ranks have what this one has."""
        kind = func._schema.name.removeprefix("c10d::").strip("_").removesuffix("_base")
        group = next((arg for arg in args if isinstance(arg, torch.ScriptObject)), None)
        size = 1 if group is None else dist.ProcessGroup.unbox(group).size()
        results, given = args[0], args[1] if kind in _GATHERING else args[0]
        tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, Tensor)]
        if kind != "barrier":
            self.observed.sent[kind, size] += sum(tensor.nbytes for tensor in tensors)
            self.observed.calls[kind, size] += 1
        if kind == "allgather" and isinstance(results, list):
            for outputs, mine in zip(results, tensors, strict=True):
                for output in outputs:
                    self._take_over(output, mine)
        elif kind == "allgather":
            self.ledger.relabel([results], "weights gathered")
        elif kind == "reduce_scatter":
            self.ledger.relabel(tensors, "gradients gathered")
            self.ledger.relabel([leaf for leaf in tree_leaves(results) if isinstance(leaf, Tensor)], "gradients")
        work = FakeWork().boxed()
        return work if len(func._schema.returns) == 1 else (results, work)

    def _take_over(self, output: Tensor, mine: Tensor) -> None:
        if not isinstance(output, FakeTensor):
            output.copy_(mine)
        elif (values := self.value_of(mine)) is not None and not mine.dtype.is_floating_point:
            output.known_values = values  # type: ignore[attr-defined]


def _line() -> str:
    """File and line of the innermost caller that belongs to no library and not to the rehearsal."""
    frame: FrameType | None = sys._getframe(1)
    outer = ""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(str(_HERE)) and not path.startswith("<"):
            outer = outer or f"{path}:{frame.f_lineno}"
            if not any(part in path for part in _LIBRARIES):
                return f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return outer
