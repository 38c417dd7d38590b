"""From observation leaves to one feature vector: numbers, categories, images and token ids, each in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.spaces import ACTION_MASK, SpaceError, coded_categories, observation_leaves
from rlinf.data.vec_normalize import Moments, StatisticsError
from rlinf.models.actor_critic.layers import orthogonal
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.own import is_own, make_own
from rlinf.models.own_contract import require_encoder


class VectorEncoder(nn.Module):
    """Box of numbers [N, ...] to its flat values [N, F], normalised if configured so."""

    def __init__(self, space: spaces.Box, normalize: bool) -> None:
        super().__init__()
        self.out_features = int(np.prod(space.shape))
        self.normalizer = RunningNormalizer((self.out_features,)) if normalize else None

    def forward(self, leaf: Tensor) -> Tensor:
        flat = leaf.reshape(leaf.shape[0], self.out_features)
        return flat.to(torch.float32) if self.normalizer is None else self.normalizer(flat)

    def observe(self, leaf: Tensor) -> None:
        """Add the rows [n, ...] to the running statistics."""
        if self.normalizer is not None:
            self.normalizer.observe(leaf.reshape(leaf.shape[0], self.out_features))


class OneHotEncoder(nn.Module):
    """Discrete, MultiDiscrete or MultiBinary leaf [N, ...] to concatenated one-hot codes [N, F]."""

    offsets: Tensor
    starts: Tensor

    def __init__(self, space: spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary) -> None:
        super().__init__()
        sizes, starts = coded_categories(space)
        self.components, self.out_features = len(sizes), int(sizes.sum())
        self.register_buffer("offsets", torch.as_tensor(np.cumsum(sizes) - sizes), persistent=False)
        self.register_buffer("starts", torch.as_tensor(starts), persistent=False)

    def forward(self, leaf: Tensor) -> Tensor:
        index = leaf.reshape(leaf.shape[0], self.components).long() - self.starts + self.offsets
        code = torch.zeros(leaf.shape[0], self.out_features, device=leaf.device)
        return code.scatter_(1, index, 1.0)


class TokenEncoder(nn.Module):
    """Token ids [N, (S,) L] (0 is padding) to the embedding of their order and content [N, E]: a GRU's last state."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.out_features = width
        self.embedding = nn.Embedding(vocabulary, width // 2, padding_idx=0)
        self.reader = nn.GRU(width // 2, width, batch_first=True)

    def forward(self, leaf: Tensor) -> Tensor:
        # Of stacked observations the newest is read: an instruction does not change within an episode.
        ids = leaf.long() if leaf.ndim == 2 else leaf[:, -1].long()
        states, _ = self.reader(self.embedding(ids))
        last = (ids != 0).sum(dim=1).clamp_min(1) - 1
        return states[torch.arange(len(ids), device=ids.device), last]


class ImageEncoder(nn.Module):
    """Images [N, (S,) H, W, C] or [N, (S,) C, H, W] to [N, E]: three convolutions whose strides follow the size."""

    def __init__(self, space: spaces.Box, width: int) -> None:
        super().__init__()
        self.out_features = width
        self.channels_last = len(space.shape) > 2 and _channels_last(space.shape)
        self.scale = float(space.high.max()) if space.dtype == np.uint8 else 1.0
        probe = self._as_channels_first(torch.zeros(1, *space.shape))
        channels, side = probe.shape[1], min(probe.shape[2:])
        # Atari-sized frames take the strides that are customary there; small grids (7 x 7) lose nothing to striding.
        kernels = [(8, 4), (4, 2), (3, 1)] if side >= 36 else [(3, 2), (3, 1), (3, 1)] if side >= 16 else [(2, 1)] * 3
        layers: list[nn.Module] = []
        for outputs, (kernel, stride) in zip((32, 64, 64), kernels, strict=True):
            layers += [orthogonal(nn.Conv2d(channels, outputs, kernel, stride)), nn.ReLU()]
            channels = outputs
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            flat = self.convolutions(probe).shape[1]
        self.project = nn.Sequential(orthogonal(nn.Linear(flat, width)), nn.ReLU())

    def _as_channels_first(self, images: Tensor) -> Tensor:
        if images.ndim == 3:
            return images[:, None]
        if images.ndim == 5:  # stacked frames: [N, S, ...] joins the channels
            frames = images.movedim(-1, 2) if self.channels_last else images
            return frames.flatten(1, 2)
        return images.movedim(-1, 1) if self.channels_last else images

    def forward(self, leaf: Tensor) -> Tensor:
        pixels = self._as_channels_first(leaf).to(torch.float32) / self.scale
        return self.project(self.convolutions(pixels))


class ObservationEncoder(nn.Module):
    """All leaves, encoded each for itself and laid end to end: mapping of [N, ...] to [N, F]."""

    def __init__(self, space: spaces.Space, options: ActorCriticOptions) -> None:
        super().__init__()
        self.leaves = observation_leaves(space)
        masked = (ACTION_MASK,) if options.action_mask is not None else ()
        self._encoded = {name: part for name, part in self.leaves.items() if name not in masked}
        self.own: nn.Module | None = None
        if is_own(options.encoder):
            own: Any = make_own("policy.encoder", options.encoder, options.encoder_options, space)
            require_encoder(options.encoder, own, space)
            self.own, self.parts = own, nn.ModuleDict()
            self.out_features = int(own.out_features)
            return
        # Module names may not hold dots.
        parts: dict[str, Any] = {_key(n): leaf_encoder(n, part, options) for n, part in self._encoded.items()}
        if len(parts) < len(self._encoded):
            raise SpaceError(
                f"parts of the observation differ by . and __ alone: rename one of {', '.join(self.leaves)}"
            )
        self.parts = nn.ModuleDict(parts)
        if options.encoder == "cnn" and not any(isinstance(part, ImageEncoder) for part in parts.values()):
            raise SpaceError(f"policy.encoder: cnn reads images, and there is none in {space}: set it to auto")
        self.out_features = sum(part.out_features for part in parts.values())

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        if self.own is not None:
            encoded_by_own: Tensor = self.own(inputs)
            return encoded_by_own
        encoded = [self.parts[_key(name)](inputs[name]) for name in self._encoded]
        return encoded[0] if len(encoded) == 1 else torch.cat(encoded, dim=1)

    @property
    def observed(self) -> tuple[str, ...]:
        """The leaves that may be normalised."""
        known = self._encoded if self.own is None else ()
        return tuple(name for name in known if isinstance(self.parts[_key(name)], VectorEncoder))

    def observe(self, inputs: Mapping[str, Tensor]) -> None:
        """Update the running statistics of the leaves that are normalised; rows [n, ...]."""
        for name in self.observed:
            part: Any = self.parts[_key(name)]
            part.observe(inputs[name])

    def begin_with(self, statistics: Mapping[str, Moments]) -> None:
        """Take over statistics by leaf. Raises StatisticsError unless they are those of the normalised leaves."""
        if missing := [name for name in self.observed if name not in statistics]:
            raise StatisticsError(
                f"env.normalize_from: it has no statistics of {', '.join(missing)}, but of "
                f"{', '.join(statistics) or 'no observations'}"
            )
        for name in self.observed:
            part: Any = self.parts[_key(name)]
            part.normalizer.begin_with(name, statistics[name])


def leaf_encoder(name: str, space: spaces.Space, options: ActorCriticOptions) -> nn.Module:
    """Build the encoder of a leaf by its space; for integers of a Box by its name (``...tokens`` holds token ids)."""
    if isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        return OneHotEncoder(space)
    if isinstance(space, spaces.Text):
        raise SpaceError(
            f"{name}: policy.name actor_critic does not read text. Turn it into token ids "
            "(env.wrappers: ['rlinf.rollouts.wrappers:TokenizeText']), or choose policy.name: vla"
        )
    if not isinstance(space, spaces.Box):
        raise SpaceError(f"{name}: no encoder for {type(space).__name__}")
    if name.endswith("tokens"):
        return TokenEncoder(int(space.high.max()) + 1, options.embedding_size)
    if (options.encoder == "cnn" and len(space.shape) > 1) or (options.encoder == "auto" and is_image(space)):
        return ImageEncoder(space, options.embedding_size)
    return VectorEncoder(space, options.normalize_observations)


def is_image(space: spaces.Box) -> bool:
    """Bytes laid out in two dimensions at least."""
    shape = space.shape
    return space.dtype == np.uint8 and len(shape) >= 2 and min(shape[-2:]) > 0 and int(np.prod(shape)) >= 49


def image_axes(space: spaces.Box) -> tuple[int, int]:
    """Return the axes of an image's height and width, counted from the end."""
    return (-3, -2) if len(space.shape) > 2 and _channels_last(space.shape) else (-2, -1)


def _channels_last(shape: tuple[int, ...]) -> bool:
    """Whether the last of three dimensions is that of channels: images are square, or have more lines than channels."""
    first, middle, last = shape[-3:]
    if (first == middle) != (middle == last):
        return first == middle
    return last <= first


def _key(name: str) -> str:
    return name.replace(".", "__")


_LEAST_VARIANCE = 1e-8
"""Is added to variances, for entries that never change."""
_FAR, _LOSSY = 1e6, 1e9
"""Squared mean over variance, above which float32 (6e-8) and E[x^2] in float64 (1e-16) lose digits that matter."""
_WIDE = (torch.float64, torch.int64, torch.int32)
"""Types with numbers that float32 does not have."""


class RunningNormalizer(nn.Module):
    """Maps x to clip((x - mean) / std, +-10), with statistics over everything :meth:`observe` was given.

    Statistics change only in :meth:`observe`, never while acting or evaluating: log-probabilities of one batch are
    all computed under the same normalisation. Before the first call it is the identity. Entries far from 0 with a small
    spread, such as map coordinates or seconds since 1970, keep their digits if they are observed in float64.
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(shape, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(shape, dtype=torch.float64))
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def begin_with(self, name: str, statistics: Moments) -> None:
        """Take over the statistics of leaf ``name``. Raises StatisticsError for another number of entries."""
        if statistics.mean.size != self.mean.numel():
            raise StatisticsError(
                f"env.normalize_from: its statistics of {name} have {statistics.mean.size} entries, the environment's "
                f"{self.mean.numel()}"
            )
        self.mean.copy_(torch.from_numpy(statistics.mean.reshape(self.mean.shape)))
        self.variance.copy_(torch.from_numpy(statistics.variance.reshape(self.mean.shape)))
        self.count.fill_(statistics.count)

    def forward(self, values: Tensor) -> Tensor:
        """[..., *shape] to float32 of the same shape."""
        scale = torch.rsqrt(self.variance + _LEAST_VARIANCE).to(torch.float32)
        centred = values.to(torch.float32) - self.mean.to(torch.float32)
        if values.dtype in _WIDE:
            # Entries near 0 keep the bits that runs have had: both differences agree there within float32.
            far = self.mean.square() > _FAR * (self.variance + _LEAST_VARIANCE)
            centred = torch.where(far, (values.to(torch.float64) - self.mean).to(torch.float32), centred)
        return (centred * scale).clamp(-10.0, 10.0)

    @torch.no_grad()
    def observe(self, values: Tensor) -> None:
        """Merge rows [n, *shape] by Chan's formula; over all ranks if a process group is up, so they stay equal."""
        rows = values.to(torch.float64)
        moments = _over_ranks(torch.stack([rows.sum(0), rows.square().sum(0)]))
        count = _over_ranks(torch.tensor(float(rows.shape[0]), dtype=torch.float64, device=rows.device))
        if float(count) == 0.0:
            return
        batch_mean = moments[0] / count
        batch_variance = (moments[1] / count - batch_mean.square()).clamp_min(0.0)
        # E[x^2] - mean^2 loses its digits far from 0; near 0 it keeps the bits that runs have had.
        lossy = batch_mean.square() > _LOSSY * (batch_variance + _LEAST_VARIANCE)
        if bool(lossy.any()):  # the same on all ranks, which count and mean are
            centred = _over_ranks((rows - batch_mean).square().sum(0)) / count
            batch_variance = torch.where(lossy, centred, batch_variance)
        total = self.count + count
        delta = batch_mean - self.mean
        merged = self.variance * self.count + batch_variance * count + delta.square() * self.count * count / total
        self.mean += delta * count / total
        self.variance.copy_(merged / total)
        self.count.copy_(total)


def _over_ranks(sums: Tensor) -> Tensor:
    """Sum over all ranks of a process group; return ``sums`` itself without one."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(sums)
    return sums
