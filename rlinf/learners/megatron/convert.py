"""Hugging Face checkpoints in and out of megatron's model: one table per architecture, one tensor at a time.

A parameter of megatron is made of one or several tensors of Hugging Face, and every tensor-parallel rank
holds a part of it. :class:`CheckpointEntry` names them, and the part by a :class:`Split`; no other code depends on
names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlinf.learners.megatron.architecture import padded_vocabulary
from rlinf.learners.megatron.layout import MeshPosition

# isort: split
import torch
from megatron.core.models.gpt import GPTModel
from megatron.core.utils import unwrap_model
from torch import Tensor, nn

Read = Callable[[str], Tensor]
"""A whole tensor of a checkpoint by its Hugging Face name."""
Split = Literal["whole", "columns", "vocabulary", "heads", "gated"]
"""How a parameter lies over tensor-parallel ranks.

whole: every rank has all of it. columns: cut along dimension 1. vocabulary: rows, padded at the end.
heads: query, key and value; of each key-value group its queries, its key, its value. gated: gate and up, each by rows,
one below the other.
"""


@dataclass(frozen=True)
class CheckpointEntry:
    """One parameter: megatron's name, the names of Hugging Face, and how it is split."""

    name: str
    sources: tuple[str, ...]
    split: Split = "whole"
    of_expert: bool = False
    """Whether it belongs to one expert, and so lies on the ranks of that expert."""


def _attention(part: str) -> tuple[str, ...]:
    return tuple(f"self_attn.{letter}_proj.{part}" for letter in "qkv")


VALUE_HEAD = "value_head."
_MODEL = (
    CheckpointEntry("embedding.word_embeddings.weight", ("model.embed_tokens.weight",), "vocabulary"),
    CheckpointEntry("decoder.final_layernorm.weight", ("model.norm.weight",)),
    CheckpointEntry("output_layer.weight", ("lm_head.weight",), "vocabulary"),
)
_AROUND = (
    CheckpointEntry("input_layernorm.weight", ("input_layernorm.weight",)),
    CheckpointEntry("self_attention.linear_qkv.weight", _attention("weight"), "heads"),
    CheckpointEntry("self_attention.linear_proj.weight", ("self_attn.o_proj.weight",), "columns"),
    CheckpointEntry("pre_mlp_layernorm.weight", ("post_attention_layernorm.weight",)),
)
_LAYER = (
    *_AROUND,
    CheckpointEntry("mlp.linear_fc1.weight", ("mlp.gate_proj.weight", "mlp.up_proj.weight"), "gated"),
    CheckpointEntry("mlp.linear_fc2.weight", ("mlp.down_proj.weight",), "columns"),
)
_HEAD_NORMS = (
    CheckpointEntry("self_attention.q_layernorm.weight", ("self_attn.q_norm.weight",)),
    CheckpointEntry("self_attention.k_layernorm.weight", ("self_attn.k_norm.weight",)),
)
# `*` stands for the number of an expert, counted over all ranks.
_EXPERTS = (
    CheckpointEntry("mlp.router.weight", ("mlp.gate.weight",)),
    CheckpointEntry(
        "mlp.experts.local_experts.*.linear_fc1.weight",
        ("mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"),
        "gated",
        of_expert=True,
    ),
    CheckpointEntry(
        "mlp.experts.local_experts.*.linear_fc2.weight",
        ("mlp.experts.*.down_proj.weight",),
        "columns",
        of_expert=True,
    ),
)
LAYERS: Mapping[str, tuple[CheckpointEntry, ...]] = {
    "llama": _LAYER,
    "qwen2": (*_LAYER, CheckpointEntry("self_attention.linear_qkv.bias", _attention("bias"), "heads")),
    "qwen3": (*_LAYER, *_HEAD_NORMS),
    "qwen3_moe": (*_AROUND, *_HEAD_NORMS, *_EXPERTS),
}
"""What one decoder layer is made of, by ``model_type``; the names of Hugging Face follow ``model.layers.<number>.``"""


class WeightMap:
    """The names and shapes of one model: from a transformers configuration."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self._model = {entry.name: entry for entry in _MODEL}
        self._layer = {entry.name: entry for entry in LAYERS[source.model_type]}

    @staticmethod
    def is_exported(name: str) -> bool:
        """Whether Hugging Face has a tensor for it: for all but the critic."""
        return not name.startswith(VALUE_HEAD)

    def entry(self, name: str) -> CheckpointEntry:
        """Return the entry of a parameter; its layer number counts over all stages. Raises KeyError for an unknown
        one."""
        result = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", name)
        if result is None:
            tied = name == "output_layer.weight" and self.source.tie_word_embeddings
            return self._model["embedding.word_embeddings.weight" if tied else name]
        number, rest = result.groups()
        expert = re.search(r"(?<=\.local_experts\.)\d+", rest)
        entry = self._layer[rest if expert is None else f"{rest[: expert.start()]}*{rest[expert.end() :]}"]
        filled = (part if expert is None else part.replace("*", expert[0]) for part in entry.sources)
        sources = tuple(f"model.layers.{number}.{part}" for part in filled)
        return CheckpointEntry(name, sources, entry.split, entry.of_expert)

    def take(self, entry: CheckpointEntry, tensors: Sequence[Tensor], *, rank: int, size: int) -> Tensor:
        """Take the part of tensor-parallel rank ``rank`` from the whole tensors of Hugging Face."""
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

    def give(self, entry: CheckpointEntry, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return the tensors of Hugging Face, in the entry's order, from the parts of all tensor-parallel ranks."""
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
    """Yield this rank's parameters; the numbers of layers and experts count over all ranks."""
    for chunk in chunks:
        model: GPTModel = unwrap_model(chunk)
        for name, parameter in model.named_parameters():
            result = re.fullmatch(r"decoder\.layers\.(\d+)\.(.+)", name)
            if result is not None:
                number = model.decoder.layers[int(result[1])].layer_number - 1
                name = f"decoder.layers.{number}.{_expert_counted(model, int(result[1]), result[2])}"
            yield name, parameter


def _expert_counted(model: GPTModel, layer: int, name: str) -> str:
    """Return a name within a layer, with its expert's number counted over all ranks."""
    result = re.fullmatch(r"(mlp\.experts\.local_experts\.)(\d+)(.+)", name)
    if result is None:
        return name
    return f"{result[1]}{model.decoder.layers[layer].mlp.local_expert_indices[int(result[2])]}{result[3]}"


def part_of(entry: CheckpointEntry, mesh: MeshPosition) -> tuple[int, int]:
    """(which part of a parameter this rank holds, how many there are)."""
    if entry.split == "whole":
        return 0, 1
    if entry.of_expert:
        return mesh.expert_tensor, mesh.expert_tensor_size
    return mesh.tensor, mesh.tensor_size


def mark_split(chunks: Iterable[nn.Module], weight_map: WeightMap) -> None:
    """Mark the parameters of which every tensor-parallel rank holds another part, and those of experts.

    megatron does the first only if it draws the weights itself; without the mark the gradient norm would leave
    them out. It does the second only if experts are spread; marked always, they have an optimizer of their own at
    every layout, and a checkpoint of one layout fits another.
    """
    for name, parameter in named_parameters(chunks):
        # Whole experts on ranks of one tensor group are different experts: none of them is a copy either.
        entry = weight_map.entry(name) if weight_map.is_exported(name) else None
        parameter.tensor_model_parallel = entry is not None and entry.split != "whole"  # type: ignore[attr-defined]
        parameter.allreduce = entry is None or not entry.of_expert  # type: ignore[attr-defined]


@torch.no_grad()
def load_weights(chunks: Iterable[nn.Module], read: Read, weight_map: WeightMap, mesh: MeshPosition) -> None:
    """Fill this rank's parameters; of the checkpoint only what they need is read, one parameter at a time."""
    for name, parameter in named_parameters(chunks):
        if not weight_map.is_exported(name):
            parameter.zero_()
            continue
        entry = weight_map.entry(name)
        tensors = [read(source) for source in entry.sources]
        rank, size = part_of(entry, mesh)
        part = weight_map.take(entry, tensors, rank=rank, size=size)
        if part.shape != parameter.shape:
            raise ValueError(f"{name} is {tuple(parameter.shape)} here, but {tuple(part.shape)} in the checkpoint")
        parameter.copy_(part)
