"""The common part of policies of published flow checkpoints: they imitate, and learn by Flow-SDE.

Greedy acting is the original's sampler: the flow begins with noise, which follows from the observation, so that the
same observation has the same action.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor

from rlinf.data.spaces import SpaceError
from rlinf.models.vla.deciding import InstructionTokens, VisionLanguageAction
from rlinf.models.vla.observation import StateNumbers, noise_of, require_colour, sort_leaves
from rlinf.models.vla.options import VlaOptions
from rlinf.models.vla.pi0 import Pi0Head
from rlinf.models.vla.published.checkpoint import FlowCheckpoint
from rlinf.models.vla.published.groot_checkpoint import GrootCheckpoint
from rlinf.models.vla.published.groot_network import GrootNetwork
from rlinf.models.vla.published.networks import FlowNetwork
from rlinf.models.vla.published.processing import ActionScaling, ActionUnits

NO_CAMERA = "none"
"""In `policy.flow.checkpoint.cameras`: this picture is not there."""


class PublishedHead(Pi0Head):
    """As :class:`Pi0Head`; greedy flows begin with noise."""

    def mode(self, context: Any) -> Tensor:
        """Noiseless chains from noise that follows from each row's observation."""
        return self.followed(context, noise_of(context.seeds, self.chain.numbers).to(context.valid.device))


class PublishedFlow(VisionLanguageAction):
    """An `interfaces.ActorCriticPolicy`; the weights are random. A subclass makes what is of its families."""

    head: PublishedHead
    description: ClassVar[type[FlowCheckpoint | GrootCheckpoint]]
    """Of a checkpoint, which an export stores."""
    checkpoint: FlowCheckpoint | GrootCheckpoint
    network: FlowNetwork | GrootNetwork
    instructions: InstructionTokens
    aloha = False

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        options: VlaOptions,
        tokenizer: Any,
    ) -> None:
        """Raise SpaceError if state, actions or cameras are not those of the checkpoint."""
        super().__init__(observation_space, action_space, options, tokenizer)
        assert options.published is not None
        written = options.published
        self.checkpoint = checkpoint = self.description(**written["checkpoint"])
        self.cameras = paired_cameras(checkpoint, observation_space, written["cameras"])
        leaves = sort_leaves(observation_space)
        for name in self.cameras.values():
            require_colour(name, leaves.images[name])
        self.state = StateNumbers(leaves.states, False) if leaves.states else None
        _require_numbers("a state", checkpoint.state_numbers, 0 if self.state is None else self.state.out_features)
        shape: tuple[int, ...] = getattr(action_space, "shape", None) or ()
        _require_numbers("an action", checkpoint.action_numbers, shape[0] if len(shape) == 1 else 0)
        scaling = self.furnish(tokenizer, leaves.texts)
        chunk = options.num_action_chunks
        units = ActionUnits(action_space, scaling, chunk=chunk, aloha=self.aloha, flip=written["flip"])
        self.head = self.made_head(action_space, units, scaling)
        if written["train"] == "expert":
            self.network.requires_grad_(False)
            for part in self.network.expert_parts():
                part.requires_grad_(True)
        self.make_critic(self.network.width)

    def furnish(self, tokenizer: Any, texts: Sequence[str]) -> ActionScaling:
        """Make network, prompts (of the leaves ``texts``) and scaling; returns that of actions."""
        raise NotImplementedError

    def made_head(self, space: spaces.Space, units: ActionUnits, scaling: ActionScaling) -> PublishedHead:
        """Make the head of actions with ``units``, whose numbers ``scaling`` scales."""
        return PublishedHead(
            self._speed, (self.checkpoint.horizon, self.checkpoint.width), space, self.options, units=units
        )

    def own_names(self) -> dict[str, str]:
        """Map the checkpoint's names of tensors to those of parts of the network."""
        raise NotImplementedError

    def write_published(self, folder: Path) -> None:
        """Write the checkpoint again in its own layout, with the weights as they are now."""
        named = {name.removeprefix("network."): tensor for name, tensor in self.weights()}
        self.checkpoint.write(folder, {theirs: named[own] for theirs, own in self.own_names().items()})

    def _speed(self, prefix: Any, points: Tensor, times: Tensor) -> Tensor:
        """Compute the velocity [N, H M] at points [N, H M] and times [N]."""
        half = self.options.dtype == "bfloat16"
        with torch.autocast(points.device.type, dtype=torch.bfloat16, enabled=half):
            chunk = points.unflatten(1, (self.head.horizon, self.head.width))
            return self.network.speed(prefix, chunk, times).float().flatten(1)


def paired_cameras(
    checkpoint: FlowCheckpoint | GrootCheckpoint, space: spaces.Space, chosen: Mapping[str, str]
) -> dict[str, str]:
    """Map the checkpoint's pictures, in their order, to images of an observation space.

    ``chosen`` (`policy.flow.checkpoint.cameras`) maps them, `none` to no image; otherwise the last parts of both names
    agree, or there is one of each. Raises SpaceError, which names both sides.
    """
    images = list(sort_leaves(space).images)
    known = {name.removeprefix("observation."): name for name in images}
    unknown = [name for name in chosen if name not in checkpoint.cameras]
    renamed = checkpoint.renamed
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
            f"{', '.join(checkpoint.cameras)}; the observation has {', '.join(known) or 'no image'}. Write which "
            f"is which ({{{checkpoint.cameras[0]}: {next(iter(known), 'image')}}}), or {NO_CAMERA}"
        )
    return result


def _require_numbers(what: str, theirs: int, ours: int) -> None:
    if theirs != ours:
        raise SpaceError(f"policy.flow.checkpoint: {what} of the checkpoint has {theirs} numbers, and here {ours}")
