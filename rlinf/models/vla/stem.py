"""Convolutions before the patches of a vision tower that starts from random weights.

A linear patch embedding must learn a shape once for each place within a patch where it can lie. Convolutions learn it
once (Xiao et al. 2021, https://arxiv.org/abs/2106.14881), which a few thousand demonstrations suffice for.
"""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from rlinf.models.loading import PolicyError

_FEWEST_CHANNELS = 24


class ConvolutionalStem(nn.Module):
    """Gives what a patch embedding gives [N, hidden, rows, columns], plus a stack of 3x3 convolutions of stride 2.

    The embedding alone reads colours from the first step on, if it started so; the stack adds shapes.
    """

    def __init__(self, patches: nn.Conv2d) -> None:
        """Raises PolicyError for patches whose side is no power of two."""
        super().__init__()
        side, hidden = patches.kernel_size[0], patches.out_channels
        halvings = side.bit_length() - 1
        if side != 2**halvings or patches.kernel_size != (side, side):
            raise PolicyError(f"policy.vla.vision.stem: convolutions needs a patch_size of 2, 4, 8, ..., not {side}")
        self.patches = patches
        channels = patches.in_channels
        layers: list[nn.Module] = []
        for left in reversed(range(halvings)):
            width = max(_FEWEST_CHANNELS, hidden // 2**left)
            convolution = nn.Conv2d(channels, width, 3, 2, 1)
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            nn.init.zeros_(cast(Tensor, convolution.bias))
            layers += [convolution, nn.GroupNorm(1, width), nn.GELU()]
            channels = width
        self.stack = nn.Sequential(*layers, nn.Conv2d(channels, hidden, 1))

    @property
    def weight(self) -> Tensor:
        """Towers ask the patch embedding for the type of its weights."""
        return self.patches.weight

    def forward(self, pixels: Tensor) -> Tensor:
        seen: Tensor = self.patches(pixels) + self.stack(pixels)
        return seen
