"""Vision towers with timm's names of weights (DINOv2 with registers, SigLIP), as far as OpenVLA reads them.

The last block, the norm after it and a pooling head are left out: the output is that of the second last block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

TOWERS = ("vit_large_patch14_reg4_dinov2.lvd142m", "vit_so400m_patch14_siglip_224", "vit_so400m_patch14_siglip_384")
"""timm's names of the towers that are computed here; all have 16 heads, GELU and norms with an epsilon of 1e-6."""
_HEADS, _EPS = 16, 1e-6


class _Scale(nn.Module):
    """A factor of each number (timm's LayerScale, under the name that OpenVLA gives it)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale_factor = nn.Parameter(torch.ones(width))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden * self.scale_factor


class _Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        queries, keys, values = self.qkv(hidden).unflatten(-1, (3, _HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(queries, keys, values)
        whole: Tensor = self.proj(mixed.transpose(1, 2).flatten(2))
        return whole


class _Mlp(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, inner)
        self.fc2 = nn.Linear(inner, width)

    def forward(self, hidden: Tensor) -> Tensor:
        mixed: Tensor = self.fc2(functional.gelu(self.fc1(hidden)))
        return mixed


class _Block(nn.Module):
    """Attention and MLP, each behind a norm, with a scale of its own where the tower has them.

    With ``words`` numbers FiLM lies between the two: a factor and a summand of each number, linear in the words' mean.
    """

    def __init__(self, width: int, inner: int, *, scaled: bool, words: int | None) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=_EPS)
        self.attn = _Attention(width)
        self.ls1 = _Scale(width) if scaled else nn.Identity()
        self.norm2 = nn.LayerNorm(width, eps=_EPS)
        self.mlp = _Mlp(width, inner)
        self.ls2 = _Scale(width) if scaled else nn.Identity()
        self.scale, self.shift = (None if words is None else nn.Linear(words, width) for _ in range(2))

    def forward(self, hidden: Tensor, words: Tensor | None) -> Tensor:
        hidden = hidden + self.ls1(self.attn(self.norm1(hidden)))
        if self.scale is not None and self.shift is not None:
            assert words is not None
            hidden = hidden * (1.0 + self.scale(words)[:, None]) + self.shift(words)[:, None]
        return hidden + self.ls2(self.mlp(self.norm2(hidden)))


class _Patches(nn.Module):
    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.proj = nn.Conv2d(shape[1], shape[0], kernel_size=shape[2], stride=shape[2])

    def forward(self, pixels: Tensor) -> Tensor:
        patches: Tensor = self.proj(pixels).flatten(2).transpose(1, 2)
        return patches


class TimmTower(nn.Module):
    """Pictures [N, 3, h, w], with FiLM also the mean of an instruction's words [N, H], to patches [N, P, width]."""

    def __init__(self, shapes: Mapping[str, Sequence[int]]) -> None:
        """Take all sizes from ``shapes``, those of the tower's tensors by timm's names."""
        super().__init__()
        self.patch_embed = _Patches(shapes["patch_embed.proj.weight"])
        self.width, self.count = shapes["patch_embed.proj.weight"][0], shapes["pos_embed"][1]
        self.pos_embed = nn.Parameter(torch.zeros(*shapes["pos_embed"]))
        extra = {
            name: nn.Parameter(torch.zeros(*shapes[name])) for name in ("cls_token", "reg_token") if name in shapes
        }
        self.cls_token, self.reg_token = extra.get("cls_token"), extra.get("reg_token")
        inner, scaled = shapes["blocks.0.mlp.fc1.weight"][0], "blocks.0.ls1.scale_factor" in shapes
        film = shapes.get("blocks.0.scale.weight")
        words = None if film is None else film[1]
        self.blocks = nn.ModuleList(
            _Block(self.width, inner, scaled=scaled, words=words) for _ in range(depth(shapes) - 1)
        )

    def forward(self, pixels: Tensor, words: Tensor | None = None) -> Tensor:
        """Positions are added to patches alone: tokens without a position come before them."""
        hidden = self.patch_embed(pixels) + self.pos_embed
        before = [token.expand(len(hidden), -1, -1) for token in (self.cls_token, self.reg_token) if token is not None]
        hidden = torch.cat([*before, hidden], dim=1)
        for block in self.blocks:
            hidden = block(hidden, words)
        return hidden[:, -self.count :]


def depth(shapes: Mapping[str, Sequence[int]]) -> int:
    """Return the number of blocks of a tower with these tensors."""
    return 1 + max(int(name.split(".")[1]) for name in shapes if name.startswith("blocks."))
