"""Augmentation of the pictures in imitated decisions: they are moved, and their colours change.

Each picture of a decision has its own offset and factors, drawn from the generator that chose the decisions. Colours
change as in OpenVLA's data loader (arXiv:2406.09246): brightness by adding, contrast about the mean of each channel,
saturation about the grey of each pixel.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlinf.data.spaces import Arrays, SpaceError

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


@dataclass(frozen=True)
class ImageAugmentation:
    """``shift``: in pixels; ``jitter``: the largest change of each of the three, as a share."""

    shift: int = 0
    jitter: float = 0.0

    def __call__(self, observations: Arrays, generator: np.random.Generator) -> Arrays:
        """Observations [N, ...] with other pictures [N, H, W, 3] or [N, 3, H, W], uint8. SpaceError without any."""
        changed = dict(observations)
        if not self.shift and not self.jitter:
            return changed
        names = [
            name
            for name, leaf in observations.items()
            if leaf.dtype == np.uint8 and leaf.ndim == 4 and 3 in (leaf.shape[1], leaf.shape[-1])
        ]
        if not names:
            raise SpaceError("sft.image_shift and sft.color_jitter change pictures, and the observations hold none")
        for name in names:
            last = changed[name].shape[-1] == 3
            pictures = changed[name] if last else np.moveaxis(changed[name], 1, -1)
            if self.shift:
                pictures = shifted(pictures, generator.integers(-self.shift, self.shift + 1, (len(pictures), 2)))
            if self.jitter:
                pictures = jittered(pictures, self.jitter * generator.uniform(-1.0, 1.0, (len(pictures), 3)))
            changed[name] = pictures if last else np.ascontiguousarray(np.moveaxis(pictures, -1, 1))
        return changed


def shifted(pictures: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Pictures [N, H, W, 3] whose pixel (y, x) is that of (y + dy, x + dx), or the nearest there is; offsets [N, 2]."""
    height, width = pictures.shape[1:3]
    rows = np.clip(np.arange(height) + offsets[:, :1], 0, height - 1)
    columns = np.clip(np.arange(width) + offsets[:, 1:], 0, width - 1)
    return pictures[np.arange(len(pictures))[:, None, None], rows[:, :, None], columns[:, None, :]]


def jittered(pictures: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """Pictures [N, H, W, 3], uint8, with brightness, contrast and saturation changed by ``changes`` [N, 3]."""
    brighter, contrast, saturation = (change[:, None, None, None] for change in changes.astype(np.float32).T)
    pixels = pictures.astype(np.float32) / 255.0 + brighter
    mean = pixels.mean(axis=(1, 2), keepdims=True)
    pixels = (pixels - mean) * (1.0 + contrast) + mean
    grey = (pixels @ _LUMA)[..., None]
    pixels = (pixels - grey) * (1.0 + saturation) + grey
    return np.rint(np.clip(pixels, 0.0, 1.0) * 255.0).astype(np.uint8)
