"""Replacements that make megatron-core run on a CPU; none on a machine with CUDA and Transformer Engine.

megatron-core 0.16 names the CUDA device in its source and has no option for another one. :func:`prepare` puts an import
hook in front of ``megatron.core`` that exchanges those few spellings as the modules are compiled. Neither torch nor any
file is changed. Two slips of the path without Transformer Engine and Apex, on any device, are mended the same way.
A test asserts that every rule still finds its text, so that a new version of megatron-core cannot pass unnoticed.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from types import CodeType, ModuleType
from typing import Any

import torch
from torch import Tensor

from rlinf.base.packages import install_command

_PACKAGE = "megatron.core"
# A package of its own, which this learner does not use and which needs a device only when it is used.
_LEFT_ALONE = "megatron.core.distributed.fsdp"


class MegatronMissing(ImportError):
    """megatron-core is not installed; the message names the extra."""


@dataclass(frozen=True)
class Rule:
    """A spelling in megatron-core's source, and what is read instead."""

    name: str
    pattern: str
    replacement: str

    def __call__(self, source: str) -> str:
        return re.sub(self.pattern, self.replacement, source)


# The order matters: `.cuda(torch.cuda.current_device())` has become `.cuda(torch.device("cpu"))` when its rule comes.
WITHOUT_CUDA = (
    Rule("current device", r"torch\.cuda\.current_device\(\)", 'torch.device("cpu")'),
    Rule("device literal", r"""device=(["'])cuda\1""", 'device="cpu"'),
    Rule("tensor type", r"torch\.cuda\.((?:BFloat16|Half|Float)Tensor)", r"torch.\1"),
    Rule("move to CUDA", r"\.cuda\((?:torch\.device\(\"cpu\"\))?\)", ".cpu()"),
    Rule("synchronize", r"torch\.cuda\.synchronize\(\)", "None"),
)
WITHOUT_TRANSFORMER_ENGINE = (
    # A "step" is read of the state of torch's AdamW that the distributed optimizer does not store: KeyError.
    Rule("step not stored", r"for key in dst_tensors:", "for key in dst_tensors.keys() & tensors.keys():"),
    # The router calls a kernel of Transformer Engine by a name that is not there.
    Rule("router kernel", r"te_general_gemm is not None and", "HAVE_TE and"),
    # After a load all parameters share one "step" tensor, and each of them counts it up.
    Rule("shared step", r's\["step"\] = step\b(?!\.)', 's["step"] = step.clone()'),
)


def rules() -> tuple[Rule, ...]:
    """Those that this machine needs."""
    cuda = () if torch.cuda.is_available() else WITHOUT_CUDA
    engine = importlib.util.find_spec("transformer_engine")
    return (*cuda, *(() if engine else WITHOUT_TRANSFORMER_ENGINE))


def prepare() -> None:
    """Install the hook, once.

    Raises MegatronMissing without megatron-core, RuntimeError if it was imported before.
    """
    if importlib.util.find_spec("megatron") is None:
        raise MegatronMissing(f"learner.backend: megatron needs megatron-core: {install_command('megatron')}")
    requested = rules()
    if not requested or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    if any(name == _PACKAGE or name.startswith(f"{_PACKAGE}.") for name in sys.modules):
        raise RuntimeError("megatron.core was imported before rlinf.learners.megatron: import this package first")
    sys.meta_path.insert(0, _Finder(requested))
    if not torch.cuda.is_available():
        _keep_random_states_on_cpu()
        _keep_expert_counts_on_cpu()


class _Finder(MetaPathFinder):
    """Finds megatron.core's modules as Python would, and has them compiled by :class:`_Loader`."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not f"{fullname}.".startswith(f"{_PACKAGE}.") or fullname.startswith(_LEFT_ALONE):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self.rules)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the exchanged text; byte code is neither read nor written, since it would be that of the file."""

    def __init__(self, name: str, path: str, rules: Sequence[Rule]) -> None:
        super().__init__(name, path)
        self.rules = rules

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        source = self.get_data(path).decode("utf-8")
        for rule in self.rules:
            source = rule(source)
        code: CodeType = self.source_to_code(source.encode("utf-8"), path)
        return code


def _keep_random_states_on_cpu() -> None:
    """megatron's named random streams, on the CPU generator instead of the CUDA one."""
    import megatron.core.tensor_parallel.random as streams

    class CpuStates(streams.CudaRNGStatesTracker):
        """Named states; :meth:`fork` draws from one of them for a while."""

        def add(self, name: str, seed: int) -> None:
            if name in self.states_ or seed in self.seeds_:
                raise ValueError(f"random stream {name!r} with seed {seed} exists already")
            self._is_initialized = True
            self.seeds_.add(seed)
            self.states_[name] = torch.Generator().manual_seed(seed).get_state()

        @contextmanager
        def fork(self, name: str = streams._MODEL_PARALLEL_RNG_TRACKER_NAME) -> Iterator[None]:
            outside = torch.get_rng_state()
            torch.set_rng_state(self.states_[name])
            try:
                yield
            finally:
                self.states_[name] = torch.get_rng_state()
                torch.set_rng_state(outside)

    def read(*_device: Any, **_graph: Any) -> Tensor:
        return torch.get_rng_state()

    def write(state: Tensor, *_device: Any, **_graph: Any) -> None:
        torch.set_rng_state(state)

    streams.CudaRNGStatesTracker = CpuStates
    streams._get_cuda_rng_state = read
    streams._set_cuda_rng_state = write


def _keep_expert_counts_on_cpu() -> None:
    """Replace the copy of expert counts to the host on a CUDA stream; here they only become plain arrays."""
    from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher

    def to_host(dispatcher: Any, point: str, tokens_per_expert: Tensor | None = None) -> Tensor | None:
        if point == dispatcher.cuda_dtoh_point:
            for name in ("input_splits", "output_splits"):
                counts = getattr(dispatcher, name)
                if isinstance(counts, Tensor):
                    setattr(dispatcher, name, counts.tolist())
        return tokens_per_expert

    MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = "none on a CPU"
    MoEAlltoAllTokenDispatcher._maybe_dtoh_and_synchronize = to_host


prepare()
