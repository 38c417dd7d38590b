"""Whole parameters from the parts of all ranks, a bounded number of bytes at a time, on one rank or on several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf.learners.megatron.convert import CheckpointEntry, WeightMap, named_parameters, part_of
from rlinf.learners.megatron.layout import MeshPosition

# isort: split
import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlinf.data import weight_sources


@dataclass
class _Held:
    """One parameter: the shape of its parts, and the first rank that holds each."""

    entry: CheckpointEntry
    shape: tuple[int, ...]
    dtype: torch.dtype
    parts: int
    owners: dict[int, int] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        return self.parts * self.dtype.itemsize * torch.Size(self.shape).numel()


class Gatherer:
    """Holds where every part of every parameter is. All ranks must make one, and call its methods together."""

    def __init__(self, chunks: Iterable[nn.Module], weight_map: WeightMap, mesh: MeshPosition) -> None:
        self.weight_map, self.mesh = weight_map, mesh
        # A tied embedding has two names and stands on the first and the last stage: it goes by the first one's.
        self.mine: dict[str, Tensor] = {}
        facts = []
        for name, parameter in named_parameters(chunks):
            if weight_map.is_exported(name):
                entry = weight_map.entry(name)
                self.mine[entry.name] = parameter
                facts.append((name, tuple(parameter.shape), parameter.dtype, *part_of(entry, mesh)))
        world: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(world, facts)
        self._parts: dict[int | None, list[tuple[int, list[str]]]] = {}
        self.held: dict[str, _Held] = {}
        for rank, facts in enumerate(world):
            for name, shape, dtype, part, parts in facts:
                entry = weight_map.entry(name)
                held = self.held.setdefault(entry.name, _Held(entry, shape, dtype, parts))
                held.owners.setdefault(part, rank)

    def parts(self, limit: int | None) -> list[tuple[int, list[str]]]:
        """List (the rank that gives it, its parameters) of each part in which weights travel.

        A parameter is given by the first rank that holds the first part of it, which is of the same stage as the
        others (`weight_sources`). ``limit``: most bytes of whole parameters that all these ranks give in turn.
        """
        if limit not in self._parts:
            source_of = weight_sources.sources(held.owners[0] for held in self.held.values())
            sized: dict[int, list[tuple[str, int]]] = {}
            for name, held in self.held.items():
                sized.setdefault(source_of[held.owners[0]], []).append((name, held.bytes))
            self._parts[limit] = weight_sources.parts(sized, limit)
        return self._parts[limit]

    @torch.no_grad()
    def whole(self, names: Iterable[str] | None = None, *, at: int = 0) -> Iterator[tuple[str, Tensor]]:
        """(Hugging Face name, whole tensor on the CPU), one at a time, on global rank ``at``. All if no names.

        Every rank must run through it; the others yield nothing. No rank holds more than its share and one parameter.
        """
        for name in self.held if names is None else names:
            held = self.held[name]
            parts = self._collect(self.mine.get(name), held, at)
            if self.mesh.rank == at:
                yield from zip(held.entry.sources, self.weight_map.give(held.entry, parts), strict=True)

    def _collect(self, mine: Tensor | None, held: _Held, at: int) -> Sequence[Tensor]:
        """On rank ``at`` all parts, on the CPU; their owners send, the others have nothing to do."""
        owners = [held.owners[part] for part in range(held.parts)]
        if self.mesh.rank != at:
            if self.mesh.rank in owners and mine is not None:
                dist.send(mine.detach().contiguous(), dst=at)
            return []
        device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
        parts = []
        for owner in owners:
            if owner == at:
                assert mine is not None
                parts.append(mine.detach().cpu())
                continue
            part = torch.empty(held.shape, dtype=held.dtype, device=device)
            dist.recv(part, src=owner)
            parts.append(part.cpu())
        return parts
