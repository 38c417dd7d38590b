"""Hugging Face checkpoints in and out of megatron's model: one table per architecture, one tensor at a time.

A parameter of megatron is made of one or several tensors of Hugging Face, and every tensor-parallel rank holds a part
of it. :class:`Entry` says which, by a :class:`Split`; nothing else knows names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlinf.learners.megatron.architecture import padded_vocabulary
from rlinf.learners.megatron.layout import Place

# isort: split
import torch
import torch.distributed as dist
from megatron.core.models.gpt import GPTModel
from megatron.core.utils import unwrap_model
from torch import Tensor, nn

Read = Callable[[str], Tensor]
"""A whole tensor of a checkpoint by its Hugging Face name."""
Split = Literal["whole", "rows", "columns", "vocabulary", "heads", "gated"]
"""How a parameter lies over tensor-parallel ranks.

whole: every rank has all of it. rows, columns: cut along dimension 0 or 1. vocabulary: rows, padded at the end.
heads: query, key and value; of each key-value group its queries, its key, its value. gated: gate and up, each by rows,
one below the other.
"""


@dataclass(frozen=True)
class Entry:
    """One parameter: megatron's name, the names of Hugging Face, and how it is split."""

    name: str
    sources: tuple[str, ...]
    split: Split = "whole"


def _attention(part: str) -> tuple[str, ...]:
    return tuple(f"self_attn.{letter}_proj.{part}" for letter in "qkv")


_MODEL = (
    Entry("embedding.word_embeddings.weight", ("model.embed_tokens.weight",), "vocabulary"),
    Entry("decoder.final_layernorm.weight", ("model.norm.weight",)),
    Entry("output_layer.weight", ("lm_head.weight",), "vocabulary"),
)
_LAYER = (
    Entry("input_layernorm.weight", ("input_layernorm.weight",)),
    Entry("self_attention.linear_qkv.weight", _attention("weight"), "heads"),
    Entry("self_attention.linear_proj.weight", ("self_attn.o_proj.weight",), "columns"),
    Entry("pre_mlp_layernorm.weight", ("post_attention_layernorm.weight",)),
    Entry("mlp.linear_fc1.weight", ("mlp.gate_proj.weight", "mlp.up_proj.weight"), "gated"),
    Entry("mlp.linear_fc2.weight", ("mlp.down_proj.weight",), "columns"),
)
LAYERS: Mapping[str, tuple[Entry, ...]] = {
    "llama": _LAYER,
    "qwen2": (*_LAYER, Entry("self_attention.linear_qkv.bias", _attention("bias"), "heads")),
    "qwen3": (
        *_LAYER,
        Entry("self_attention.q_layernorm.weight", ("self_attn.q_norm.weight",)),
        Entry("self_attention.k_layernorm.weight", ("self_attn.k_norm.weight",)),
    ),
}
"""What one decoder layer is made of, by ``model_type``; the names of Hugging Face follow ``model.layers.<number>.``"""


class Book:
    """The names and shapes of one model: from a transformers configuration."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self._model = {entry.name: entry for entry in _MODEL}
        self._layer = {entry.name: entry for entry in LAYERS[source.model_type]}

    def entry(self, name: str) -> Entry:
        """The entry of a parameter whose layer number counts over all stages. Raises KeyError for an unknown one."""
        found = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", name)
        if found is None:
            tied = name == "output_layer.weight" and self.source.tie_word_embeddings
            return self._model["embedding.word_embeddings.weight" if tied else name]
        number, rest = found.groups()
        entry = self._layer[rest]
        return Entry(name, tuple(f"model.layers.{number}.{part}" for part in entry.sources), entry.split)

    def take(self, entry: Entry, tensors: Sequence[Tensor], *, rank: int, size: int) -> Tensor:
        """The part of tensor-parallel rank ``rank`` from the whole tensors of Hugging Face."""
        if entry.split == "whole":
            return tensors[0]
        if entry.split == "columns":
            return tensors[0].chunk(size, 1)[rank]
        if entry.split == "vocabulary":
            missing = padded_vocabulary(self.source.vocab_size, size) - tensors[0].shape[0]
            return nn.functional.pad(tensors[0], (0, 0, 0, missing)).chunk(size)[rank]
        parts = [tensor.chunk(size)[rank] for tensor in tensors]
        if entry.split == "heads":
            groups = self.source.num_key_value_heads // size
            return torch.cat([part.unflatten(0, (groups, -1)) for part in parts], dim=1).flatten(0, 1)
        return torch.cat(parts)

    def give(self, entry: Entry, parts: Sequence[Tensor]) -> list[Tensor]:
        """The tensors of Hugging Face, in the entry's order, from the parts of all tensor-parallel ranks."""
        if entry.split == "whole":
            return [parts[0]]
        if entry.split == "columns":
            return [torch.cat(list(parts), dim=1)]
        if entry.split == "vocabulary":
            return [torch.cat(list(parts))[: self.source.vocab_size]]
        if entry.split == "heads":
            groups = self.source.num_key_value_heads // len(parts)
            queries = self.source.num_attention_heads // self.source.num_key_value_heads
            grouped = [part.unflatten(0, (groups, queries + 2, -1)) for part in parts]
            ranges = (slice(0, queries), slice(queries, queries + 1), slice(queries + 1, queries + 2))
            return [torch.cat([part[:, heads].flatten(0, 2) for part in grouped]) for heads in ranges]
        halves = [part.chunk(2) for part in parts]
        return [torch.cat([half[number] for half in halves]) for number in range(2)]


def named_parameters(chunks: Iterable[nn.Module]) -> Iterator[tuple[str, nn.Parameter]]:
    """This rank's parameters; the numbers of layers count over all stages."""
    for chunk in chunks:
        model: GPTModel = unwrap_model(chunk)
        for name, parameter in model.named_parameters():
            found = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", name)
            if found is not None:
                number = model.decoder.layers[int(found[1])].layer_number - 1
                name = f"decoder.layers.{number}.{found[2]}"
            yield name, parameter


def mark_split(chunks: Iterable[nn.Module], book: Book) -> None:
    """Marks the parameters of which every tensor-parallel rank holds another part.

    megatron does so only where it draws the weights itself; without the mark the gradient norm would leave them out.
    """
    for name, parameter in named_parameters(chunks):
        parameter.tensor_model_parallel = book.entry(name).split != "whole"  # type: ignore[attr-defined]


@torch.no_grad()
def load_weights(chunks: Iterable[nn.Module], read: Read, book: Book, place: Place) -> None:
    """Fills this rank's parameters; of the checkpoint only what they need is read, one parameter at a time."""
    for name, parameter in named_parameters(chunks):
        entry = book.entry(name)
        tensors = [read(source) for source in entry.sources]
        part = book.take(entry, tensors, rank=place.tensor, size=place.tensor_size)
        if part.shape != parameter.shape:
            raise ValueError(f"{name} is {tuple(parameter.shape)} here, but {tuple(part.shape)} in the checkpoint")
        parameter.copy_(part)


@torch.no_grad()
def whole_weights(chunks: Iterable[nn.Module], book: Book, place: Place) -> Iterator[tuple[str, Tensor]]:
    """(Hugging Face name, whole tensor on the CPU) of all stages, one parameter at a time, on global rank 0.

    Every rank must run through it; the others yield nothing. No rank holds more than its share and one parameter.
    """
    mine = dict(named_parameters(chunks)) if place.data == 0 else {}
    shapes = [(name, tuple(parameter.shape), parameter.dtype) for name, parameter in mine.items()]
    world: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(world, (place.stage, place.tensor, shapes))
    owners = {(stage, tensor): rank for rank, (stage, tensor, held) in enumerate(world) if held}
    seen = set[str]()
    for stage in range(place.stages):
        for name, shape, dtype in world[owners[stage, 0]][2]:
            entry = book.entry(name)
            if entry.name in seen:  # the last stage's copy of a tied embedding
                continue
            seen.add(entry.name)
            senders = [owners[stage, 0]]
            if entry.split != "whole":
                senders = [owners[stage, tensor] for tensor in range(place.tensor_size)]
            parts = _collect(mine.get(name), senders, shape, dtype, place)
            if place.rank == 0:
                yield from zip(entry.sources, book.give(entry, parts), strict=True)


def _collect(
    mine: Tensor | None, senders: Sequence[int], shape: tuple[int, ...], dtype: torch.dtype, place: Place
) -> list[Tensor]:
    """On rank 0 the parts of ``senders``, on the CPU; the senders send, the others have nothing to do."""
    if place.rank != 0:
        if place.rank in senders and mine is not None:
            dist.send(mine.detach().contiguous(), dst=0)
        return []
    device = torch.device("cuda") if dist.get_backend() == "nccl" else torch.device("cpu")
    parts = []
    for sender in senders:
        if sender == 0:
            assert mine is not None
            parts.append(mine.detach().cpu())
            continue
        part = torch.empty(shape, dtype=dtype, device=device)
        dist.recv(part, src=sender)
        parts.append(part.cpu())
    return parts
