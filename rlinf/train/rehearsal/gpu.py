"""A process that acts as if it had a GPU: a learner's requests to CUDA are answered, and nothing is computed.

PyTorch without CUDA can't differentiate tensors that its C++ part holds to be on such a device. So C++
receives "meta", as FakeTensorMode does within a kernel; Python code, autocast and the search for device
mismatches see ``cuda:0``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from rlinf.train.rehearsal.memory import Ledger

GPU = torch.device("cuda", 0)
_META = torch.device("meta")


@contextmanager
def movable_fakes(ledger: Ledger) -> Iterator[None]:
    """Keep modules of fake tensors movable, and storages resizable, inside the context; the ledger counts both."""
    with ExitStack() as stack:
        stack.enter_context(_exchanged(nn.Module, "_apply", _apply))
        stack.enter_context(_exchanged(torch.UntypedStorage, "resize_", _counted(torch.UntypedStorage.resize_, ledger)))
        stack.enter_context(_exchanged(dist, "new_group", _fake_groups(dist.new_group)))
        stack.enter_context(_exchanged(dist, "all_gather_object", _as_mine))
        stack.enter_context(_exchanged(dist, "broadcast_object_list", _nothing))
        stack.enter_context(_Numbers())
        # The ledger checks whether a backward pass is under way, which only the pass's own thread can.
        stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        yield


def _as_mine(objects: list[Any], mine: object, group: object = None) -> None:
    """Fill ``objects`` with this rank's: the other ranks have the same."""
    objects[:] = [mine] * len(objects)


def _fake_groups(new_group: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``new_group``: megatron requests gloo by name."""

    def made(*args: Any, **options: Any) -> Any:
        return new_group(*args, **{**options, "backend": "fake", "pg_options": None})

    return made


@contextmanager
def pretended_gpu() -> Iterator[None]:
    """Make ``torch.cuda`` report a GPU inside the context, for code under :class:`~.fakes.Fakes`."""
    cuda = {
        "is_available": lambda: True,
        "is_current_stream_capturing": lambda: False,
        "device_count": lambda: 8,
        "current_device": lambda: 0,
        "is_bf16_supported": lambda *_args, **_options: True,
        "get_device_capability": lambda *_device: (9, 0),
        "get_rng_state": lambda *_device: torch.empty(16, dtype=torch.uint8),
        "Stream": torch.cpu.Stream,
        "Event": _Event,
        "current_stream": lambda *_device: _STREAM,
        "default_stream": lambda *_device: _STREAM,
        "stream": lambda _stream: nullcontext(),
        "device": lambda _device: nullcontext(),
        **dict.fromkeys(("set_device", "synchronize", "empty_cache", "set_rng_state"), _nothing),
    }
    with ExitStack() as stack:
        for name, answer in cuda.items():
            stack.enter_context(_exchanged(torch.cuda, name, answer))
        # PyTorch up to 2.9 makes a first real tensor if there is a GPU.
        stack.enter_context(_exchanged(fake_tensor, "init_gpu_context", _nothing))
        # C++ makes distributed tensors, and reads the devices of their parts.
        stack.enter_context(_exchanged(DTensor, "device", property(lambda tensor: tensor._local_tensor.device)))
        spelling = _Spelling()
        stack.enter_context(_exchanged(torch, "clear_autocast_cache", spelling.copies.clear))
        run = _under(spelling, torch.autograd._engine_run_backward)
        stack.enter_context(_exchanged(torch.autograd, "_engine_run_backward", run))
        stack.enter_context(spelling)
        yield


class _Event(torch.cpu.Event):
    """An event of the GPU, which is over as soon as it is recorded."""

    def __init__(self, *_args: object, **_options: object) -> None:
        super().__init__()


_STREAM = torch.cpu.Stream()


def _nothing(*_args: object, **_options: object) -> None:
    """Do nothing."""


@contextmanager
def _exchanged(owner: Any, name: str, value: object) -> Iterator[None]:
    usual = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, usual)


def _counted(resize: Callable[[Any, int], Any], ledger: Ledger) -> Callable[[Any, int], Any]:
    """Count resizes: FSDP frees and fills storages, which no operation reports."""

    def resized(storage: torch.UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        ledger.resized(storage)
        return result

    return resized


def _apply(module: nn.Module, change: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
    """Replace `Module._apply`, which can't exchange the data of fake parameters.

    Each becomes a new one, tied ones stay tied."""
    made: dict[int, Any] = {}

    def changed(tensor: Tensor) -> Any:
        if id(tensor) not in made:
            with torch.no_grad():
                new: Any = change(tensor)
            if new is not tensor and isinstance(tensor, nn.Parameter):
                new = nn.Parameter(new, tensor.requires_grad)
            made[id(tensor)] = new
        return made[id(tensor)]

    for part in module.modules() if recurse else [module]:
        for held in (part._parameters, part._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    held[name] = changed(tensor)
    return module


def _under(mode: TorchFunctionMode, run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` with ``mode`` in force: a mode is off while it answers, and layers may be computed again in there."""

    def running(*args: Any, **options: Any) -> Any:
        with mode:
            return run(*args, **options)

    return running


class _Numbers(TorchFunctionMode):
    """``torch.tensor`` of a list with fake tensors in it, whose memory C++ would read."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.tensor and args and isinstance(args[0], list):
            args = (tree_map(lambda leaf: leaf.item() if isinstance(leaf, FakeTensor) else leaf, args[0]), *args[1:])
        return func(*args, **(kwargs or {}))


_functional = torch.nn.functional
_PRODUCTS = frozenset(
    {
        *(_functional.linear, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm),
        *(Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, Tensor.mm, Tensor.bmm),
    }
)
"""What autocast computes in 16 bits (of PyTorch's list, those that language models use)."""


class _Spelling(TorchFunctionMode):
    """Gives "meta" to C++ for Python's "cuda", and does what PyTorch then can't: autocast, and choosing kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[int, Tensor] = {}
        """Weights in 16 bits, which autocast keeps until its context ends."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if func is Tensor.cuda:
            return args[0].to(_META)
        if func in _PRODUCTS and torch.is_autocast_enabled("cuda"):
            return func(
                *map(self._in_16_bits, args), **{name: self._in_16_bits(value) for name, value in options.items()}
            )
        if func is _functional.scaled_dot_product_attention and _on_gpu(args[0]):
            return attention(*args, **options)
        if func in (torch.tensor, torch.as_tensor) and "device" in options:
            device = _spelled(options.pop("device"))
            return func(*args, **options).to(device)
        if func is Tensor.to or "device" in options:
            args = tuple(_spelled(value) for value in args)
            options = {name: _spelled(value) for name, value in options.items()}
        return func(*args, **options)

    def _in_16_bits(self, value: Any) -> Any:
        dtype = torch.get_autocast_dtype("cuda")
        if not _on_gpu(value) or value.dtype in (dtype, torch.float64) or not value.is_floating_point():
            return value
        if not (value.requires_grad and value.is_leaf):
            return value.to(dtype)
        if id(value) not in self.copies:
            self.copies[id(value)] = value.to(dtype)
        return self.copies[id(value)]


def _on_gpu(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"


def _spelled(value: Any) -> Any:
    """Replace a GPU's name by the fake device's name in C++; return anything else as it is."""
    name = value.type if isinstance(value, torch.device) else value
    return _META if isinstance(name, str) and name.split(":")[0] == "cuda" else value


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``scaled_dot_product_attention`` by the kernel that a GPU would take (the rules of PyTorch's `sdp_utils.cpp`).

    Flash attention has no masks and no float32; the memory-efficient kernel has no grouped heads. What neither has
    goes through plain matrix products, which keep the scores: the rehearsal counts them.
    """
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
    grouped = enable_gqa and query.shape[1] != key.shape[1]
    if attn_mask is None and query.dtype != torch.float32 and query.shape[-1] <= 256:
        return torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
    if not grouped:
        bias = None
        if attn_mask is not None:
            heads = (query.shape[0], query.shape[1], query.shape[2], key.shape[2])
            bias = torch.zeros(attn_mask.shape, dtype=query.dtype, device=query.device)
            bias = bias.masked_fill(attn_mask.logical_not(), -torch.inf).expand(heads)
        return torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, True, dropout_p, is_causal, scale=scale
        )[0]
    return torch.ops.aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]
