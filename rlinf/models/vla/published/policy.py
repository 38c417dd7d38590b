"""A published checkpoint as a policy that imitates, and learns by Flow-SDE as :class:`rlinf.models.vla.pi0.Pi0Policy`.

Greedy acting is the original's sampler: the flow begins with noise, which follows from the observation, so that the
same observation has the same action.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from rlinf.data.granularity import Granularity, Levels
from rlinf.data.spaces import SpaceError
from rlinf.models.actor_critic.layers import orthogonal
from rlinf.models.vla.deciding import VisionLanguageAction
from rlinf.models.vla.observation import StateNumbers, require_colour, sort_leaves
from rlinf.models.vla.options import VlaOptions
from rlinf.models.vla.pi0 import Pi0Head
from rlinf.models.vla.published.checkpoint import FlowCheckpoint
from rlinf.models.vla.published.layers import ReadContext
from rlinf.models.vla.published.networks import NETWORKS, FlowNetwork, own_names
from rlinf.models.vla.published.processing import ActionUnits, Place, Prompts, Scaling, aloha_state, resized

NO_CAMERA = "none"
"""In `policy.flow.checkpoint.cameras`: this picture is not there."""


@dataclass(frozen=True)
class _Horizon:
    chunk_size: int
    max_action_dim: int


class PublishedHead(Pi0Head):
    """As :class:`Pi0Head`; greedy flows begin with noise."""

    def mode(self, context: ReadContext) -> Tensor:  # type: ignore[override]
        """Noiseless chains from noise that follows from each row's observation."""
        drawn = [
            torch.randn(self.chain.numbers, generator=torch.Generator().manual_seed(seed)) for seed in context.seeds
        ]
        return self.followed(context, torch.stack(drawn).to(context.valid.device))


class PublishedPolicy(VisionLanguageAction):
    """An `interfaces.ActorCriticPolicy`; without ``network`` the weights are random."""

    head: PublishedHead

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        options: VlaOptions,
        tokenizer: Any,
    ) -> None:
        """Raise SpaceError if state, actions or cameras are not those of the checkpoint."""
        super().__init__()
        assert options.published is not None
        self.options, self._spaces = options, (observation_space, action_space)
        given = options.published
        self.checkpoint = checkpoint = FlowCheckpoint(**given["checkpoint"])
        config = checkpoint.config
        self.cameras = paired_cameras(checkpoint, observation_space, given["cameras"])
        leaves = sort_leaves(observation_space)
        for name in self.cameras.values():
            require_colour(name, leaves.images[name])
        self.state = StateNumbers(leaves.states, False) if leaves.states else None
        _require_numbers("a state", checkpoint.state_numbers, 0 if self.state is None else self.state.out_features)
        shape: tuple[int, ...] = getattr(action_space, "shape", None) or ()
        _require_numbers("an action", checkpoint.action_numbers, shape[0] if len(shape) == 1 else 0)
        self._aloha = bool(config.get("adapt_to_pi_aloha"))
        modes, eps = config["normalization_mapping"], float(checkpoint.step("normalizer_processor").get("eps", 1e-8))
        before, after = (checkpoint.statistics_of(name) for name in ("normalizer_processor", "unnormalizer_processor"))
        self._state_scaling = Scaling("observation.state", modes["STATE"], before, eps)
        self._picture_scaling = {name: Scaling(name, modes["VISUAL"], before, eps) for name in self.cameras}
        units = ActionUnits(
            action_space,
            Scaling("action", modes["ACTION"], after, eps),
            chunk=options.num_action_chunks,
            aloha=self._aloha,
            flip=given["flip"],
        )
        self.instructions: Prompts = Prompts(
            tokenizer,
            leaves.texts,
            options.task,
            limit=int(checkpoint.step("tokenizer_processor").get("max_length", config["tokenizer_max_length"])),
            with_state=checkpoint.family == "pi05",
        )
        self._place: Place = "corner" if checkpoint.family == "smolvla" else "centre"
        self.network: FlowNetwork = NETWORKS[checkpoint.family](checkpoint, tokenizer)
        horizon = _Horizon(int(config["chunk_size"]), int(config["max_action_dim"]))
        self.head = PublishedHead(self._speed, horizon, action_space, options, units=units)
        if given["train"] == "expert":
            self.network.requires_grad_(False)
            for part in self.network.expert_parts():
                part.requires_grad_(True)
        levels = Levels(options.reward_type, options.logprob_type, options.entropy_type)
        self.granularity = Granularity.of(levels, actions=self.head.chunk, dimensions=self.head.per_action)
        values = self.granularity.decision_rewards
        width = self.network.words.embedding_dim
        self.value_head = orthogonal(nn.Linear(width, values), 1.0) if options.value_head else None

    @classmethod
    def made(cls, both: tuple[spaces.Space, spaces.Space], options: VlaOptions, tokenizer: Any) -> Self:
        return cls(*both, options, tokenizer)

    def towers(self) -> list[nn.Module]:
        whole: Mapping[str, Any] = self.options.published or {}
        expert: list[nn.Module] = [self.network.expert]
        return expert if whole["train"] == "expert" else [self.network.reader, *expert]

    @property
    def tokens_per_decision(self) -> int:
        words = self.network.tokens_per_picture * len(self.checkpoint.cameras) + 64
        return words + self.options.flow_steps * (self.head.horizon + 1)

    def read(self, leaves: Mapping[str, Tensor]) -> tuple[ReadContext, Tensor | None]:
        """Read pictures, words and state, once for a decision."""
        device = self.network.words.weight.device
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.options.dtype == "bfloat16"):
            pictures, seen = self._pictures(leaves, device)
            state = pictures.new_zeros(len(pictures), 0) if self.state is None else self.state.numbers(leaves, device)
            state = self._state_scaling.scaled(state.float())
            ids, present = self.instructions(leaves, state)
            if self._aloha:
                state = aloha_state(state)
            width = int(self.checkpoint.config["max_state_dim"])
            state = functional.pad(state, (0, width - state.shape[1]))
            prefix = self.network.prefix(pictures, seen, ids, present, state)
        prefix.seeds.extend(self._seeds(leaves) if not torch.is_grad_enabled() else [])
        return prefix, None if self.value_head is None else self.value_head(prefix.summary)

    def write_published(self, folder: Path) -> None:
        """Write the checkpoint again in LeRobot's layout, with the weights as they are now."""
        named = {name.removeprefix("network."): tensor for name, tensor in self.weights()}
        self.checkpoint.write(folder, {theirs: named[own] for theirs, own in own_names(self.checkpoint).items()})

    def _pictures(self, leaves: Mapping[str, Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
        """Pictures [N, C, 3, h, w] in [-1, 1] and which are there [N, C]; those that are not come last, black."""
        made = []
        for theirs, ours in self.cameras.items():
            images = leaves[ours].to(device)
            pixels = (images.movedim(-1, 1) if images.shape[-1] == 3 else images).float() / 255.0
            pixels = self._picture_scaling[theirs].scaled(pixels)
            made.append(resized(pixels, self.network.size, self._place) * 2.0 - 1.0)
        there = len(made)
        absent = len(self.checkpoint.pictures) - there
        if self.checkpoint.family == "smolvla":
            absent = min(absent, int(self.checkpoint.config["empty_cameras"]))
        made += [torch.full_like(made[0], -1.0)] * absent
        seen = torch.tensor([True] * there + [False] * absent, device=device)
        return torch.stack(made, dim=1), seen.expand(len(made[0]), -1)

    def _seeds(self, leaves: Mapping[str, Tensor]) -> list[int]:
        result = [0] * len(next(iter(leaves.values())))
        for name in sorted(leaves):
            parts = leaves[name].cpu().contiguous()
            result = [zlib.crc32(row.numpy().tobytes(), seed) for row, seed in zip(parts, result, strict=True)]
        return result

    def _speed(self, prefix: ReadContext, points: Tensor, times: Tensor) -> Tensor:
        """Compute the velocity [N, H M] at points [N, H M] and times [N]."""
        half = self.options.dtype == "bfloat16"
        with torch.autocast(points.device.type, dtype=torch.bfloat16, enabled=half):
            chunk = points.unflatten(1, (self.head.horizon, self.head.width))
            return self.network.speed(prefix, chunk, times).float().flatten(1)


def paired_cameras(checkpoint: FlowCheckpoint, space: spaces.Space, chosen: Mapping[str, str]) -> dict[str, str]:
    """Map the checkpoint's pictures, in their order, to images of an observation space.

    ``chosen`` (`policy.flow.checkpoint.cameras`) says which, `none` that there is none; otherwise the last parts of
    both names agree, or there is one of each. Raises SpaceError, which names both sides.
    """
    images = list(sort_leaves(space).images)
    known = {name.removeprefix("observation."): name for name in images}
    unknown = [name for name in chosen if name not in checkpoint.cameras]
    renamed = {
        theirs: ours for ours, theirs in checkpoint.step("rename_observations_processor").get("rename_map", {}).items()
    }
    result, missing = {}, list(unknown)
    for theirs in checkpoint.cameras:
        requested = chosen.get(theirs)
        if requested == NO_CAMERA:
            continue
        names = [requested] if requested else [renamed.get(theirs, theirs), theirs]
        short = [part.removeprefix("observation.").removeprefix("images.") for part in names]
        match = next((known[name] for name in (*short, *(f"images.{name}" for name in short)) if name in known), None)
        if match is None and requested is None and len(images) == len(checkpoint.cameras) == 1:
            match = images[0]
        if match is None:
            missing.append(theirs if requested is None else f"{theirs} ({requested})")
        else:
            result[theirs] = match
    if missing or not result:
        raise SpaceError(
            f"policy.flow.checkpoint.cameras: no image for {', '.join(missing) or 'any camera'}. The checkpoint sees "
            f"{', '.join(checkpoint.cameras)}; the observation has {', '.join(known) or 'no image'}. Say which is "
            f"which ({{{checkpoint.cameras[0]}: {next(iter(known), 'image')}}}), or {NO_CAMERA}"
        )
    return result


def _require_numbers(what: str, theirs: int, ours: int) -> None:
    if theirs != ours:
        raise SpaceError(f"policy.flow.checkpoint: {what} of the checkpoint has {theirs} numbers, and here {ours}")
