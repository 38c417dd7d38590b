"""The numbers of a language model's architecture, read without loading it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rlinf.models.gguf import cached_folder, is_gguf
from rlinf.schema import PolicyConfig

_DECODERS = {
    "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2",
    "qwen3_vl": "qwen3",
    "idefics3": None,
    "smolvlm": None,
    "llava": None,
}
"""Vision-language model -> the family of its decoder; None: as its text_config names it."""


class _Kind(NamedTuple):
    """The differences of a family from llama; transformers leaves out of ``config.json`` what is its default."""

    attention_bias: bool = False
    head_norms: bool = False
    norms: int = 2
    """Of a layer, each as wide as the model."""
    tied: bool = False
    """The embeddings, if the file does not have the key."""
    head_size: int | None = None
    """If the file does not have it; None: the width divided by the heads."""


_KINDS: Mapping[str, _Kind] = {
    "llama": _Kind(),
    "mistral": _Kind(),
    "granite": _Kind(),
    "phi3": _Kind(),
    "smollm3": _Kind(tied=True),
    "cohere": _Kind(norms=1, tied=True),
    "cohere2": _Kind(norms=1, tied=True),
    "exaone4": _Kind(head_norms=True),
    "qwen2": _Kind(attention_bias=True),
    "qwen3": _Kind(head_norms=True, head_size=128),
    "qwen3_moe": _Kind(head_norms=True),
    "gemma": _Kind(tied=True, head_size=256),
    "gemma2": _Kind(norms=4, tied=True, head_size=256),
    "gemma3_text": _Kind(head_norms=True, norms=4, tied=True, head_size=256),
}
_POSITIONS = ("max_position_embeddings", "n_positions")
_SCALED = ("linear", "dynamic", "yarn")
FAMILIES = tuple(_KINDS)
"""Decoders whose parameters this module can count."""


def read_architecture(policy: PolicyConfig) -> Mapping[str, object]:
    """Read the transformers configuration of a policy: as written, or its folder's ``config.json``; empty if
    unknown."""
    return policy.architecture if policy.path is None else written_config(policy.path)


def written_config(path: str) -> Mapping[str, object]:
    """Read the ``config.json`` of a model's folder; empty if there is none."""
    folder = cached_folder(path) if is_gguf(path) else Path(path).expanduser()
    file = folder / "config.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def most_positions(policy: PolicyConfig) -> int | None:
    """Return the number of tokens that the model sees at most, by its configuration; None if unknown.

    YaRN (arXiv:2309.00071) and its forerunners, if they are set, multiply the positions of the pretraining; for
    `llama3` and `longrope` the number is the enlarged one already.
    """
    written = read_architecture(policy)
    positions = next((number for name in _POSITIONS if isinstance(number := written.get(name), int)), None)
    rope = written.get("rope_scaling") or written.get("rope_parameters")
    if positions is None or not isinstance(rope, Mapping) or rope.get("rope_type", rope.get("type")) not in _SCALED:
        return positions
    factor, trained = rope.get("factor"), rope.get("original_max_position_embeddings")
    scaled = (trained if isinstance(trained, int) else positions) * (factor if isinstance(factor, int | float) else 1)
    return max(positions, int(scaled))


@dataclass(frozen=True)
class Decoder:
    """A decoder's shape. With ``experts`` each layer has that number of feed-forward blocks instead of one."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    intermediate: int
    vocabulary: int
    tied: bool
    attention_bias: bool
    head_norms: bool
    norms: int = 2
    """Of a layer."""
    experts: int = 0
    experts_per_token: int = 0
    expert_width: int = 0
    tower: int = 0
    """Parameters that only pictures meet."""
    tower_values: int = 0
    """Values that the tower keeps for its backward pass, of the patches of one feature token."""

    @property
    def parameters(self) -> int:
        """All weights, embeddings included, tied ones once."""
        return self.tower + self.shared_parameters + self.expert_parameters

    @property
    def active_parameters(self) -> int:
        """Those that one token meets."""
        return self.shared_parameters + self.expert_parameters * self.experts_per_token // max(1, self.experts)

    @property
    def expert_parameters(self) -> int:
        """Parameters of all experts of all layers."""
        return self.layers * self.experts * 3 * self.hidden * self.expert_width

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.tied else 2)

    @property
    def shared_parameters(self) -> int:
        """Parameters for every token: attention, norms, embeddings, routers, and a dense feed-forward blocks."""
        query, key_value = self.heads * self.head_size, self.kv_heads * self.head_size
        attention = 2 * self.hidden * query + 2 * self.hidden * key_value
        if self.attention_bias:
            attention += query + 2 * key_value
        if self.head_norms:
            attention += 2 * self.head_size
        forward = self.experts * self.hidden if self.experts else 3 * self.hidden * self.intermediate
        return self.layers * (attention + forward + self.norms * self.hidden) + self.hidden + self.embedding_parameters

    def kv_cache_bytes(self, tokens: int, bytes_per_value: int) -> int:
        """Bytes of the keys and values of ``tokens`` tokens."""
        return 2 * self.layers * self.kv_heads * self.head_size * tokens * bytes_per_value


def decoder_shape(policy: PolicyConfig) -> Decoder | None:
    """Return the shape of a policy, if its architecture is known and complete enough."""
    written = read_architecture(policy)
    family = written.get("model_type")
    needed = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    if family not in FAMILIES or not all(_whole(written, name, 0) > 0 for name in needed):
        return None
    kind = _KINDS[str(family)]
    hidden, heads = _whole(written, "hidden_size", 0), _whole(written, "num_attention_heads", 1)
    sparse = family == "qwen3_moe"
    # Without a written size, the vocabulary is that of the tokenizer trained for the run.
    return Decoder(
        layers=_whole(written, "num_hidden_layers", 0),
        hidden=hidden,
        heads=heads,
        kv_heads=_whole(written, "num_key_value_heads", heads),
        head_size=_whole(written, "head_dim", kind.head_size or hidden // heads),
        intermediate=_whole(written, "intermediate_size", 0),
        vocabulary=_whole(written, "vocab_size", policy.tokenizer.vocab_size),
        tied=bool(written.get("tie_word_embeddings", kind.tied)),
        attention_bias=kind.attention_bias,
        head_norms=kind.head_norms,
        norms=kind.norms,
        # transformers 5 writes num_local_experts, and earlier versions num_experts.
        experts=_whole(written, "num_local_experts", _whole(written, "num_experts", 128)) if sparse else 0,
        experts_per_token=_whole(written, "num_experts_per_tok", 8) if sparse else 0,
        expert_width=_whole(written, "moe_intermediate_size", 768) if sparse else 0,
    )


def picture_decoder_shape(policy: PolicyConfig) -> Decoder | None:
    """Return the shape of a policy, that of a vision-language model's text part with the weights of its tower
    included."""
    written = read_architecture(policy)
    text = written.get("text_config")
    if written.get("model_type") not in _DECODERS:
        return decoder_shape(policy)
    # Files of Qwen2-VL from before text_config have its values next to those of the tower.
    inner = text if isinstance(text, dict) else written
    family = _DECODERS[str(written["model_type"])] or inner.get("model_type", "llama")
    tied = inner.get("tie_word_embeddings", written.get("tie_word_embeddings", False))
    shape = {**inner, "model_type": family, "tie_word_embeddings": tied}
    result = decoder_shape(replace(policy, path=None, architecture=shape))
    vision = written.get("vision_config")
    if result is None:
        return None
    qwen = _DECODERS[str(written["model_type"])] is not None
    scale = 2 if qwen else _whole(written, "scale_factor", 1)
    tower, values = _tower(vision if isinstance(vision, dict) else {}, scale, frames=2 if qwen else 1)
    return replace(result, tower=tower, tower_values=values)


def _tower(written: Mapping[str, object], scale: int, frames: int) -> tuple[int, int]:
    """Estimate (weights, values kept of one feature token) of a vision transformer.

    ``scale``: merged patches a side; ``frames``: of a patch; both if the configuration has no others. Weights include
    the patch embedding and the mergers, one for each layer whose features go deeper. A patch keeps 8 values of its
    width and 2 of the feed-forward block's in each layer.
    """
    scale = _whole(written, "spatial_merge_size", scale)
    deeper = written.get("deepstack_visual_indexes")
    mergers = 1 + (len(deeper) if isinstance(deeper, list) else 0)
    layers = _whole(written, "depth", _whole(written, "num_hidden_layers", 0))
    width = _whole(written, "embed_dim", _whole(written, "hidden_size", 0))
    inner = _whole(written, "intermediate_size", width * _whole(written, "mlp_ratio", 4))
    patch = 3 * _whole(written, "patch_size", 14) ** 2 * _whole(written, "temporal_patch_size", frames)
    merged = width * scale**2
    out = _whole(written, "out_hidden_size", _whole(written, "hidden_size", width))
    weights = layers * (4 * width * width + 2 * width * inner) + patch * width + mergers * merged * (merged + out)
    return weights, layers * scale**2 * (8 * width + 2 * inner)


def _whole(written: Mapping[str, object], name: str, default: int) -> int:
    value = written.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
