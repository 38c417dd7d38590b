"""Decoder layers of published policies: a reader of pictures and words, and an expert of actions that attends to it.

N rows, P positions of the prefix (pictures, words), L positions of the suffix (actions), H query heads and G heads of
keys and values with D numbers each. Angles, norms and masks are those of Gemma (`gemma`) or Llama.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

_WAVELENGTH = 10_000.0


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes of a stack of layers."""

    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    inverse_waves: bool = False
    """Whether angles are positions times inverse wavelengths, as transformers rounds them, not divided by wavelengths:
    float32 distinguishes the two after some hundred positions."""

    @classmethod
    def of(cls, shapes: Mapping[str, Sequence[int]], prefix: str, head_dim: int) -> DecoderSizes:
        """Read sizes off the shapes of a checkpoint's tensors ``prefix``layers.0..."""
        layers = len(
            {name.removeprefix(prefix).split(".")[1] for name in shapes if name.startswith(f"{prefix}layers.")}
        )
        queries, width = shapes[f"{prefix}layers.0.self_attn.q_proj.weight"]
        return cls(
            layers=layers,
            width=width,
            inner=shapes[f"{prefix}layers.0.mlp.up_proj.weight"][0],
            heads=queries // head_dim,
            kv_heads=shapes[f"{prefix}layers.0.self_attn.k_proj.weight"][0] // head_dim,
            head_dim=head_dim,
        )


@dataclass(frozen=True)
class ReadContext:
    """Keys, values and marks that the reader leaves of N decisions."""

    keys: list[Tensor]
    """Of each layer [N, P, G, D], turned by their positions."""
    values: list[Tensor]
    valid: Tensor
    """[N, P] bool."""
    state: Tensor
    """[N, max_state_dim], in the checkpoint's units."""
    summary: Tensor
    """[N, width]: the mean of the reader's valid positions."""
    seeds: list[int]
    """Of each row, from its observation: greedy flows begin with noise of them."""

    def __len__(self) -> int:
        return len(self.valid)


class RmsNorm(nn.Module):
    """Root mean square norm; with ``condition`` numbers, scale, shift and a gate are linear functions of them."""

    def __init__(self, width: int, *, eps: float, gemma: bool, condition: int | None = None) -> None:
        super().__init__()
        self._eps, self._gemma = eps, gemma
        self.dense = None if condition is None else nn.Linear(condition, 3 * width)
        self.weight = (
            None if condition is not None else nn.Parameter(torch.zeros(width) if gemma else torch.ones(width))
        )

    def forward(self, hidden: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Normalised [N, L, width], and the gate [N, 1, width] of what follows (None: 1)."""
        whole = hidden.float()
        normed = whole * torch.rsqrt(whole.square().mean(-1, keepdim=True) + self._eps)
        if self.dense is None:
            assert self.weight is not None
            return normed * (1.0 + self.weight.float() if self._gemma else self.weight.float()), None
        assert condition is not None
        scale, shift, gate = self.dense(condition)[:, None].float().chunk(3, dim=-1)
        return normed * (1.0 + scale) + shift, gate


class Attention(nn.Module):
    """The four projections; what attends to what is decided outside."""

    def __init__(self, sizes: DecoderSizes, *, key_width: int | None = None) -> None:
        """``key_width``: numbers that keys and values are projected from, where they are not of this stack."""
        super().__init__()
        queries, keys = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.q_proj = nn.Linear(sizes.width, queries, bias=False)
        self.k_proj = nn.Linear(key_width or sizes.width, keys, bias=False)
        self.v_proj = nn.Linear(key_width or sizes.width, keys, bias=False)
        self.o_proj = nn.Linear(queries, sizes.width, bias=False)


class GatedMlp(nn.Module):
    """Two projections, of which an activation gates one, and one back."""

    def __init__(self, sizes: DecoderSizes, *, gemma: bool) -> None:
        super().__init__()
        self._gemma = gemma
        self.gate_proj = nn.Linear(sizes.width, sizes.inner, bias=False)
        self.up_proj = nn.Linear(sizes.width, sizes.inner, bias=False)
        self.down_proj = nn.Linear(sizes.inner, sizes.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        gate = self.gate_proj(hidden)
        gate = functional.gelu(gate, approximate="tanh") if self._gemma else functional.silu(gate)
        mixed: Tensor = self.down_proj(gate * self.up_proj(hidden))
        return mixed


class Layer(nn.Module):
    """One decoder layer, in two halves: attention lies between them."""

    def __init__(
        self,
        sizes: DecoderSizes,
        *,
        eps: float,
        gemma: bool,
        condition: int | None = None,
        key_width: int | None = None,
    ) -> None:
        super().__init__()
        self._sizes = sizes
        self.input_layernorm = RmsNorm(sizes.width, eps=eps, gemma=gemma, condition=condition)
        self.self_attn = Attention(sizes, key_width=key_width)
        self.post_attention_layernorm = RmsNorm(sizes.width, eps=eps, gemma=gemma, condition=condition)
        self.mlp = GatedMlp(sizes, gemma=gemma)

    def queries(self, normed: Tensor, positions: Tensor) -> Tensor:
        """[N, L, H, D] at positions [N, L]."""
        heads = self.self_attn.q_proj(normed).unflatten(-1, (-1, self._sizes.head_dim))
        return turned(heads, positions, inverse_waves=self._sizes.inverse_waves)

    def keys(self, normed: Tensor, positions: Tensor) -> Tensor:
        """Likewise [N, L, G, D]."""
        heads = self.self_attn.k_proj(normed).unflatten(-1, (-1, self._sizes.head_dim))
        return turned(heads, positions, inverse_waves=self._sizes.inverse_waves)

    def values(self, normed: Tensor) -> Tensor:
        """[N, L, G, D]."""
        split: Tensor = self.self_attn.v_proj(normed).unflatten(-1, (-1, self._sizes.head_dim))
        return split

    def forward(
        self, hidden: Tensor, positions: Tensor, mask: Tensor, before: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Pass [N, L, width] at positions [N, L] that attend where ``mask`` [N, L, S] is true; S includes ``before``.

        ``before``: keys and values [N, S - L, G, D] of earlier positions. Returns the layer's output, and keys and
        values of all S positions.
        """
        normed, gate = self.input_layernorm(hidden)
        keys, values = self.keys(normed, positions), self.values(normed)
        if before is not None:
            keys = torch.cat([before[0], keys], dim=1)
            values = torch.cat([before[1], values.to(before[1].dtype)], dim=1)
        attended = attend(self.queries(normed, positions), keys, values, mask)
        return self.closed(hidden, attended, gate, None), keys, values

    def closed(self, hidden: Tensor, attended: Tensor, gate: Tensor | None, condition: Tensor | None) -> Tensor:
        """Add what was attended to, then the MLP's part: [N, L, width]."""
        hidden = _added(hidden, self.self_attn.o_proj(attended), gate)
        normed, gate = self.post_attention_layernorm(hidden, condition)
        return _added(hidden, self.mlp(normed), gate)


class Stack(nn.Module):
    """Layers and the norm after them."""

    def __init__(self, layers: Sequence[Layer], norm: RmsNorm) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.recompute = False
        """Whether :meth:`through` computes each layer again in the backward pass, and keeps less until then."""

    def read(self, hidden: Tensor, valid: Tensor, blocks: Tensor, state: Tensor) -> ReadContext:
        """Read a prefix [N, P, width]; a position sees the valid ones of its block [P] and of those before it."""
        positions = valid.long().cumsum(1) - 1
        mask = valid[:, None, :] & (blocks[None, None, :] <= blocks[None, :, None])
        # A row of padding sees everything: nothing reads it, and a softmax over nothing would be no number.
        mask = mask | ~valid[:, :, None]
        hidden, memory = self.through(hidden, positions, mask)
        there = valid[..., None].float()
        summary = (hidden.float() * there).sum(1) / there.sum(1)
        return ReadContext([keys for keys, _ in memory], [values for _, values in memory], valid, state, summary, [])

    def through(
        self, hidden: Tensor, positions: Tensor, mask: Tensor, before: Sequence[tuple[Tensor, Tensor]] | None = None
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Pass [N, L, width] through all layers and the norm; also returns each layer's keys and values.

        Arguments as of :meth:`Layer.forward`, with ``before`` of each layer.
        """
        memory = []
        for number, layer in enumerate(self.layers):
            arguments = hidden, positions, mask, None if before is None else before[number]
            again = self.recompute and torch.is_grad_enabled()
            hidden, keys, values = checkpoint(layer, *arguments, use_reentrant=False) if again else layer(*arguments)
            memory.append((keys, values))
        return self.norm(hidden)[0], memory


def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention of [N, L, H, D] to [N, S, G, D] where ``mask`` [N, L, S], in float32: [N, L, H D]."""
    groups = queries.shape[2] // keys.shape[2]
    query, key, value = (
        part.repeat_interleave(times, dim=2).transpose(1, 2).float()
        for part, times in ((queries, 1), (keys, groups), (values, groups))
    )
    mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask[:, None])
    return mixed.transpose(1, 2).flatten(2)


def turned(heads: Tensor, positions: Tensor, *, inverse_waves: bool = False) -> Tensor:
    """Turn [N, L, H, D] by the angles of positions [N, L] (rotary embedding, halves)."""
    half = heads.shape[-1] // 2
    exponents = torch.arange(half, dtype=torch.float32, device=heads.device) * (2.0 / heads.shape[-1])
    steps, waves = positions[..., None].float(), _WAVELENGTH**exponents
    angles = (steps * (1.0 / waves) if inverse_waves else steps / waves)[:, :, None]
    first, second = heads.float().split(half, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def time_code(times: Tensor, width: int, shortest: float, longest: float) -> Tensor:
    """Sines and cosines [N, width] of times [N], with periods from ``shortest`` to ``longest``."""
    share = torch.linspace(0.0, 1.0, width // 2, dtype=torch.float64, device=times.device)
    angles = times[:, None] * (2.0 * math.pi / (shortest * (longest / shortest) ** share))[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()


def _added(hidden: Tensor, part: Tensor, gate: Tensor | None) -> Tensor:
    return hidden + (part if gate is None else part * gate)
