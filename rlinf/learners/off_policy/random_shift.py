"""Random shifts of images (Yarats et al., DrQ arXiv:2004.13649 and DrQ-v2 arXiv:2107.09645).

Each image is moved by up to ``pixels`` in both directions, what is missing at the edges repeats the edge. Observations
now and after the step are moved apart from each other; the frames of a stack move together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Generator, Tensor

from rlinf.data.spaces import SpaceError
from rlinf.learners.off_policy.replay_buffer import Transitions


class RandomShift:
    """Augments sampled transitions."""

    def __init__(self, axes: Mapping[str, tuple[int, int]], pixels: int) -> None:
        """``axes``: of height and width, counted from the end, of each image leaf. Raises SpaceError without any."""
        if not axes:
            raise SpaceError("algorithm.random_shift moves images, and the observations hold none: set it to 0")
        self._axes, self._pixels = axes, pixels

    def __call__(
        self, sampled: Transitions, count: int, generator: Generator, *, rank: int = 0, size: int = 1
    ) -> Transitions:
        """``sampled``: of ``count`` transitions every ``size``-th from ``rank`` on; offsets are drawn for all."""
        inputs, following = dict(sampled.inputs), dict(sampled.next_inputs)
        for name, axes in self._axes.items():
            for leaves in (inputs, following):
                offsets = torch.randint(2 * self._pixels + 1, (count, 2), generator=generator)[rank::size]
                leaves[name] = shifted(leaves[name], offsets - self._pixels, axes)
        return replace(sampled, inputs=inputs, next_inputs=following)


def shifted(images: Tensor, offsets: Tensor, axes: tuple[int, int]) -> Tensor:
    """Images [M, ...] whose pixel (y, x) is that of (y + dy, x + dx), or the nearest there is; offsets [M, 2].

    >>> shifted(torch.arange(6).view(1, 2, 3), torch.tensor([[0, 1]]), (-2, -1))
    tensor([[[1, 2, 2],
             [4, 5, 5]]])
    """
    front = images.movedim(axes, (1, 2))
    height, width = front.shape[1:3]
    rows = (torch.arange(height) + offsets[:, :1]).clamp(0, height - 1)
    columns = (torch.arange(width) + offsets[:, 1:]).clamp(0, width - 1)
    images_of = torch.arange(len(images))[:, None, None]
    return front[images_of, rows[:, :, None], columns[:, None, :]].movedim((1, 2), axes)
