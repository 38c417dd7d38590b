"""Pictures as GR00T's backbone (Qwen3-VL) takes them: resized, cropped in the middle, and cut into patches.

Two ways of resizing are published: `use_albumentations` keeps the aspect and takes OpenCV's area filter; the other one
takes a bicubic filter and makes squares. N pictures, P patches each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from rlinf.models.vla.published.area_resizing import area_resized

_TARGET, _CROP = (256, 256), (230, 230)
"""Of a checkpoint whose `processor_config.json` has no sizes."""
_MEAN, _DEVIATION = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
_LEAST, _MOST = 56 * 56, 28 * 28 * 1280


class GrootPictures:
    """Images [N, h, w, 3] or [N, 3, h, w], uint8, to patches."""

    def __init__(self, processor: Mapping[str, Any], preprocessor: Mapping[str, Any]) -> None:
        """``processor``: `processor_kwargs` of the checkpoint; ``preprocessor``: the backbone's."""
        settings = processor if processor.get("image_target_size") else {**processor, **_DEFAULTS}
        self._target = tuple(int(side) for side in settings["image_target_size"])
        self._edge = int(settings.get("shortest_image_edge") or self._target[0])
        share, crop = settings.get("crop_fraction"), settings.get("image_crop_size")
        self._share = crop[0] / float(self._target[0]) if share is None and crop else share
        self._areas = bool(settings.get("use_albumentations"))
        self._square = bool(settings.get("letter_box_transform"))
        self._patch, self._merge = int(preprocessor["patch_size"]), int(preprocessor["merge_size"])
        self._frames = int(preprocessor["temporal_patch_size"])
        size = preprocessor.get("size") or {}
        self._least = int(preprocessor.get("min_pixels") or size.get("shortest_edge", _LEAST))
        self._most = int(preprocessor.get("max_pixels") or size.get("longest_edge", _MOST))
        # The original folds the division by 255 into both.
        self._mean, self._deviation = (
            (torch.tensor(preprocessor.get(name, usual)) * 255.0).reshape(3, 1, 1)
            for name, usual in (("image_mean", _MEAN), ("image_std", _DEVIATION))
        )

    def __call__(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Patches float32 [N, P, numbers], and how many rows and columns of them there are."""
        pixels = images.movedim(-1, 1) if images.shape[-1] == 3 else images
        pixels = self._cropped_areas(pixels) if self._areas else self._cropped(pixels)
        pixels = bicubic_resized(pixels, self._multiples(*pixels.shape[-2:]))
        scaled = (pixels.float() - self._mean.to(pixels.device)) / self._deviation.to(pixels.device)
        return self._patches(scaled), (pixels.shape[-2] // self._patch, pixels.shape[-1] // self._patch)

    def tokens(self, height: int, width: int) -> int:
        """Return how many tokens of the language model a picture of that size is."""
        _, (rows, columns) = self(torch.zeros(1, 3, height, width, dtype=torch.uint8))
        return rows * columns // self._merge**2

    @property
    def merge(self) -> int:
        """Patches on a side of a token."""
        return self._merge

    def _cropped(self, pixels: Tensor) -> Tensor:
        pixels = squared(pixels) if self._square else pixels
        pixels = bicubic_resized(pixels, (self._edge, self._edge))
        if self._share is not None and 0.0 < self._share < 1.0:
            height, width = (max(1, round(side * self._share)) for side in pixels.shape[-2:])
            top, left = (pixels.shape[-2] - height) // 2, (pixels.shape[-1] - width) // 2
            pixels = pixels[..., top : top + height, left : left + width]
        return bicubic_resized(pixels, (self._target[0], self._target[1]))

    def _cropped_areas(self, pixels: Tensor) -> Tensor:
        pixels = squared(pixels) if self._square else pixels
        made = []
        for picture in pixels.cpu().movedim(1, -1).numpy():
            picture = area_resized(picture, self._with_edge(*picture.shape[:2]))
            if self._share is not None and 0.0 < self._share < 1.0:
                height, width = (max(1, int(side * self._share)) for side in picture.shape[:2])
                top, left = (picture.shape[0] - height) // 2, (picture.shape[1] - width) // 2
                picture = picture[top : top + height, left : left + width]
            made.append(area_resized(picture, self._with_edge(*picture.shape[:2])))
        return torch.from_numpy(np.stack(made)).movedim(-1, 1).to(pixels.device)

    def _with_edge(self, height: int, width: int) -> tuple[int, int]:
        """Return the size whose shorter side is as configured."""
        shortest = min(height, width)
        if shortest == self._edge:
            return height, width
        scale = self._edge / float(shortest)
        return max(1, round(height * scale)), max(1, round(width * scale))

    def _multiples(self, height: int, width: int) -> tuple[int, int]:
        """Return the size in whole tokens, with as many pixels as the backbone allows."""
        unit = self._patch * self._merge
        rows, columns = round(height / unit) * unit, round(width / unit) * unit
        if rows * columns > self._most:
            shrink = math.sqrt(height * width / self._most)
            return max(unit, math.floor(height / shrink / unit) * unit), max(
                unit, math.floor(width / shrink / unit) * unit
            )
        if rows * columns < self._least:
            grow = math.sqrt(self._least / (height * width))
            return math.ceil(height * grow / unit) * unit, math.ceil(width * grow / unit) * unit
        return rows, columns

    def _patches(self, pixels: Tensor) -> Tensor:
        """Cut [N, 3, h, w] into patches, those of a token next to each other; each stands for all frames."""
        merge, patch = self._merge, self._patch
        cut = pixels.unflatten(3, (-1, merge, patch)).unflatten(2, (-1, merge, patch))
        ordered = cut.permute(0, 2, 5, 3, 6, 1, 4, 7).flatten(1, 4)
        return ordered[:, :, :, None].expand(-1, -1, -1, self._frames, -1, -1).flatten(2)


_DEFAULTS = {
    "image_target_size": _TARGET,
    "image_crop_size": _CROP,
    "shortest_image_edge": None,
    "crop_fraction": None,
}


def bicubic_resized(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize uint8 pictures [N, 3, h, w] as torchvision does it, with antialiasing."""
    if tuple(pixels.shape[-2:]) == size:
        return pixels
    if pixels.device.type == "cpu":
        return functional.interpolate(pixels, size, mode="bicubic", antialias=True)
    made = functional.interpolate(pixels.float(), size, mode="bicubic", antialias=True)
    return made.clamp(0, 255).round().to(torch.uint8)


def squared(pixels: Tensor) -> Tensor:
    """Put black borders around pictures [N, 3, h, w] until they are squares."""
    height, width = pixels.shape[-2:]
    side = max(height, width)
    top, left = (side - height) // 2, (side - width) // 2
    return functional.pad(pixels, (left, side - width - left, top, side - height - top))
