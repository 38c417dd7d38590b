"""Images and state as tokens of the language model's width."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from rlinf.data.spaces import SpaceError, observation_leaves
from rlinf.models.actor_critic.encoders import VectorEncoder, is_image, leaf_encoder
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.vla.conditioning import Film
from rlinf.models.vla.options import VlaOptions

_OBSERVATION = "observation."  # what the names of a Dict's leaves begin with


@dataclass(frozen=True)
class Leaves:
    """The leaves of an observation by what they are."""

    images: dict[str, spaces.Box]
    texts: list[str]
    states: dict[str, spaces.Space]


def sort_leaves(space: spaces.Space, cameras: Sequence[str] = ()) -> Leaves:
    """Sort leaves: uint8 of two dimensions or more is an image, Text an instruction, anything else part of the state.

    ``cameras``: the images that are read, in that order; all in the order of the space if it is empty. Raises
    SpaceError for one that is not there.
    """
    found = Leaves({}, [], {})
    for name, part in observation_leaves(space).items():
        if isinstance(part, spaces.Text):
            found.texts.append(name)
        elif isinstance(part, spaces.Box) and is_image(part):
            found.images[name] = part
        else:
            found.states[name] = part
    if not cameras:
        return found
    known = {name.removeprefix(_OBSERVATION): name for name in found.images}
    missing = [name for name in cameras if name.removeprefix(_OBSERVATION) not in known]
    if missing:
        have = ", ".join(known) or "none"
        raise SpaceError(f"policy.vla.cameras: there is no image {', '.join(missing)} in the observation, but {have}")
    chosen = [known[name.removeprefix(_OBSERVATION)] for name in cameras]
    return replace(found, images={name: found.images[name] for name in chosen})


def require_colour(name: str, space: spaces.Box) -> None:
    """SpaceError for images that a vision tower does not read."""
    if len(space.shape) != 3 or 3 not in (space.shape[0], space.shape[-1]):
        raise SpaceError(f"{name}: a vision tower reads colour images [H, W, 3] or [3, H, W], not {space.shape}")


def observation_seeds(leaves: Mapping[str, Tensor]) -> list[int]:
    """Return a seed for each row of leaves [N, ...], which depends on all of them."""
    result = [0] * len(next(iter(leaves.values())))
    for name in sorted(leaves):
        parts = leaves[name].cpu().contiguous()
        result = [zlib.crc32(row.numpy().tobytes(), seed) for row, seed in zip(parts, result, strict=True)]
    return result


def noise_of(seeds: Sequence[int], numbers: int) -> Tensor:
    """Draw standard normal noise [N, numbers], each row from its seed."""
    return torch.stack([torch.randn(numbers, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def tower_pixels(images: Tensor, size: tuple[int, int], mean: Tensor, std: Tensor, center_crop: float = 1.0) -> Tensor:
    """Colour images [N, H, W, 3] or [N, 3, H, W], uint8, as a tower takes them: float32 [N, 3, *size].

    ``center_crop``: share of the area, in the middle, that is seen.
    """
    pixels = (images.movedim(-1, 1) if images.shape[-1] == 3 else images).float() / 255.0
    if center_crop < 1.0:
        height, width = (max(1, round(side * math.sqrt(center_crop))) for side in pixels.shape[-2:])
        top, left = (pixels.shape[-2] - height) // 2, (pixels.shape[-1] - width) // 2
        pixels = pixels[..., top : top + height, left : left + width]
    if tuple(pixels.shape[-2:]) != size:
        pixels = functional.interpolate(pixels, size, mode="bilinear", antialias=True)
    return (pixels - mean) / std


class ImageTokens(nn.Module):
    """Cameras [N, H, W, 3] or [N, 3, H, W], uint8, to patch tokens [N, count, width]; all through one tower."""

    mean: Tensor
    std: Tensor

    def __init__(self, tower: Any, leaves: Mapping[str, spaces.Box], width: int, options: VlaOptions) -> None:
        super().__init__()
        self.tower = tower
        self.names = tuple(leaves)
        for name, space in leaves.items():
            require_colour(name, space)
        size = tower.config.image_size
        self._size = (size, size) if isinstance(size, int) else tuple(size)
        self._center_crop = options.center_crop
        self.register_buffer("mean", torch.tensor(options.image_mean).reshape(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(options.image_std).reshape(3, 1, 1), persistent=False)
        self.project = nn.Sequential(nn.LayerNorm(tower.config.hidden_size), nn.Linear(tower.config.hidden_size, width))
        with torch.no_grad():
            patches = tower(pixel_values=torch.zeros(1, 3, *self._size)).last_hidden_state.shape[1]
        self.count = patches * len(self.names)
        self.film = Film(tower, width) if options.conditioning == "film" else None

    def forward(self, inputs: Mapping[str, Tensor], words: Tensor) -> Tensor:
        """``words`` [N, width]: the code of the instruction, for a tower that is conditioned on it."""
        pixels = torch.stack([self._pixels(name, inputs[name]) for name in self.names], dim=1)
        conditioned: AbstractContextManager[None] = nullcontext()
        if self.film is not None:
            conditioned = self.film.applied_to(self.tower, words.repeat_interleave(len(self.names), dim=0))
        with conditioned:
            seen = self.tower(pixel_values=pixels.flatten(0, 1)).last_hidden_state
        return self.project(seen).reshape(len(pixels), self.count, -1)

    def _pixels(self, name: str, images: Tensor) -> Tensor:
        """Normalised, channels first, at the tower's size: float32 [N, 3, h, w]."""
        return tower_pixels(images.to(self.mean.device), self._size, self.mean, self.std, self._center_crop)


class StateNumbers(nn.Module):
    """Everything that is neither image nor text, laid end to end [N, out_features]."""

    def __init__(self, leaves: Mapping[str, spaces.Space], normalize: bool) -> None:
        super().__init__()
        options = ActorCriticOptions(encoder="mlp", normalize_observations=normalize)
        self.names = tuple(leaves)
        encoders: list[Any] = [leaf_encoder(name, space, options) for name, space in leaves.items()]
        self.encoders = nn.ModuleList(encoders)
        self.out_features = sum(int(encoder.out_features) for encoder in encoders)

    def numbers(self, inputs: Mapping[str, Tensor], device: torch.device) -> Tensor:
        """[N, out_features] on ``device``."""
        parts = [part(inputs[name].to(device)) for name, part in zip(self.names, self.encoders, strict=True)]
        return torch.cat(parts, dim=1)

    @property
    def observed(self) -> tuple[str, ...]:
        """The leaves whose running statistics are kept."""
        both = zip(self.names, self.encoders, strict=True)
        return tuple(name for name, part in both if isinstance(part, VectorEncoder) and part.normalizer is not None)

    def observe(self, inputs: Mapping[str, Tensor], mask: Tensor) -> None:
        """Update the running statistics of the valid positions [B, T, ...]."""
        for name, encoder in zip(self.names, self.encoders, strict=True):
            if isinstance(encoder, VectorEncoder) and encoder.normalizer is not None:
                encoder.observe(inputs[name][mask])


class StateToken(StateNumbers):
    """The same as one token [N, 1, width]."""

    def __init__(self, leaves: Mapping[str, spaces.Space], width: int, normalize: bool) -> None:
        super().__init__(leaves, normalize)
        self.project = nn.Linear(self.out_features, width)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        token: Tensor = self.project(self.numbers(inputs, self.project.weight.device))
        return token[:, None]
