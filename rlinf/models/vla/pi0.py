"""PI0 (arXiv:2410.24164) over transformers' own classes, as a policy that imitates and learns by Flow-SDE.

PaliGemma reads pictures and the instruction once for a decision; the action expert attends to what it left and gives
the velocity of a horizon of H actions, of which the first K are carried out (receding horizon). All numbers of a chain
are drawn; the log-probability is that of the K actions with their A numbers, as in pi_RL (arXiv:2510.25889).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from rlinf.data.spaces import SpaceError
from rlinf.models.loading import PolicyError
from rlinf.models.progress_bars import without_progress_bars
from rlinf.models.vla.deciding import VisionLanguageAction
from rlinf.models.vla.flow import Bounds, FlowChain, FlowHead
from rlinf.models.vla.instructions import Instructions
from rlinf.models.vla.observation import StateNumbers, require_colour, sort_leaves, tower_pixels
from rlinf.models.vla.options import VlaOptions


@dataclass(frozen=True)
class TowerContext:
    """The context of N decisions: the towers' keys and values, and the state."""

    cache: Any
    """A transformers cache of all layers."""
    length: int
    attention: Tensor
    """[N, length] 1 where there is a token."""
    cameras: Tensor
    """[N, cameras] bool."""
    state: Tensor
    """[N, max_state_dim]."""

    def __len__(self) -> int:
        return len(self.state)


class Pi0Head(FlowHead):
    """Chains of H actions with M numbers each, from which K actions with A numbers are taken."""

    def __init__(
        self, speed: Any, sizes: tuple[int, int], space: spaces.Space, options: VlaOptions, *, units: Any = None
    ) -> None:
        """``speed(prefix, points [N, H M], times [N])``; ``units``: of actions, as `flow.Bounds`, which is the default.

        Raises SpaceError for actions that do not fit ``sizes``: H and M.
        """
        super().__init__()
        self._speed, self.chunk = speed, options.num_action_chunks
        self._bounds = Bounds(space, self.chunk) if units is None else units
        (self.horizon, self.width), self.per_action = sizes, self._bounds.per_action
        if self.chunk > self.horizon or self.per_action > self.width:
            raise SpaceError(
                f"policy.flow.pi0 decides on {self.horizon} actions of at most {self.width} numbers, and here "
                f"env.num_action_chunks is {self.chunk} and an action has {self.per_action} numbers"
            )
        self.chain = FlowChain(
            self.horizon * self.width,
            steps=options.flow_steps,
            noise_level=options.flow_noise_level,
            draws=options.flow_draws,
        )
        self.noise_size, self.imitation_noise = self.chain.noise_size, self.chain.imitation_noise
        self.action_shape: tuple[int, ...] = (self.noise_size,)

    def speed(self, context: Any, points: Tensor, times: Tensor) -> Tensor:
        velocity: Tensor = self._speed(context, points, times)
        return velocity

    def carried_out(self, numbers: Tensor) -> Tensor:
        """[N, H M] to the [N, K A] that are carried out."""
        parts = numbers.unflatten(1, (self.horizon, self.width))
        return parts[:, : self.chunk, : self.per_action].flatten(1)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Return the ends of chains as actions [N, *shape], with chunks [N, K, *shape]."""
        ends = actions[:, -self.chain.numbers :].reshape(len(actions), self.horizon, self.width)
        return self._bounds.to_env(ends[:, : self.chunk, : self.per_action])

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        """[N, H M]: K actions, continued by the last of them, their numbers filled up with zeros."""
        known = self._bounds.from_env(actions)
        whole = np.zeros((len(known), self.horizon, self.width), dtype=np.float32)
        whole[:, : self.chunk, : self.per_action] = known
        whole[:, self.chunk :, : self.per_action] = known[:, -1:]
        return whole.reshape(len(known), -1)


class Pi0Policy(VisionLanguageAction):
    """An `interfaces.ActorCriticPolicy` of `PI0ForConditionalGeneration`; ``model``: None has random weights."""

    head: Pi0Head
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        options: VlaOptions,
        tokenizer: Any,
        *,
        model: Any = None,
    ) -> None:
        super().__init__(observation_space, action_space, options, tokenizer)
        assert options.pi0 is not None
        from transformers import PI0Config

        config: Any = PI0Config(**{name: value for name, value in options.pi0.items() if name != "model_type"})
        text = config.vlm_config.text_config
        if len(tokenizer) > min(text.vocab_size, config.vlm_config.image_token_id):
            raise PolicyError(f"the tokenizer has {len(tokenizer)} tokens and PI0 {text.vocab_size}, one for pictures")
        leaves = sort_leaves(observation_space, options.cameras)
        self.cameras = tuple(leaves.images)
        if not self.cameras:
            raise SpaceError("policy.flow.pi0 sees, and there is no image in the observation")
        for name, space in leaves.images.items():
            require_colour(name, space)
        self.instructions: Instructions = Instructions(
            tokenizer, leaves.texts, options.task, options.max_instruction_tokens, options.prompt
        )
        self.state = StateNumbers(leaves.states, options.normalize_observations) if leaves.states else None
        if self.state is not None and self.state.out_features > config.max_state_dim:
            raise SpaceError(
                f"policy.flow.pi0 takes a state of at most {config.max_state_dim} numbers, and here it has "
                f"{self.state.out_features}"
            )
        self.model = model if model is not None else random_pi0(config)
        self.head = Pi0Head(self._speed, (config.chunk_size, config.max_action_dim), action_space, options)
        self.make_critic(text.hidden_size)
        self.register_buffer("mean", torch.tensor(options.image_mean).reshape(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(options.image_std).reshape(3, 1, 1), persistent=False)
        vision = config.vlm_config.vision_config
        self._size = (vision.image_size, vision.image_size)
        self._patches = (vision.image_size // vision.patch_size) ** 2

    def towers(self) -> list[nn.Module]:
        return [self.model.model.vlm, self.model.model.dit]

    @property
    def tokens_per_decision(self) -> int:
        expert = self.options.flow_steps * (self.head.horizon + 1)
        return self._patches * len(self.cameras) + self.options.max_instruction_tokens + expert

    def read(self, leaves: Mapping[str, Tensor]) -> tuple[TowerContext, Tensor | None]:
        """PaliGemma's pass over pictures and words."""
        config, device = self.model.config, self.mean.device
        rows = len(next(iter(leaves.values())))
        half = self.options.dtype == "bfloat16"
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
            words, present = self.instructions(dict(leaves), rows, device)
            pictures = torch.full((rows, self._patches * len(self.cameras)), config.vlm_config.image_token_id)
            ids = torch.cat([pictures.to(device), words], dim=1)
            attention = torch.cat([torch.ones_like(pictures, device=device), present.long()], dim=1)
            share = self.options.center_crop
            pixels = [
                tower_pixels(leaves[name].to(device), self._size, self.mean, self.std, share) for name in self.cameras
            ]
            seen = torch.ones(rows, len(self.cameras), dtype=torch.bool, device=device)
            embedded = self.model.model.embed_prefix(ids, torch.stack(pixels, dim=1), seen)
            read = self.model.model.vlm(
                inputs_embeds=embedded,
                attention_mask=attention,
                position_ids=(attention.cumsum(1) - 1).clamp(min=0),
                token_type_ids=torch.zeros_like(ids),
                use_cache=True,
            )
        state = embedded.new_zeros(rows, config.max_state_dim)
        if self.state is not None:
            numbers = self.state.numbers(leaves, device)
            state = functional.pad(numbers.to(state.dtype), (0, config.max_state_dim - numbers.shape[1]))
        values = None
        if self.value_head is not None:
            there = attention[..., None].to(torch.float32)
            values = self.value_head((read.last_hidden_state.float() * there).sum(1) / there.sum(1))
        return TowerContext(read.past_key_values, embedded.shape[1], attention, seen, state), values

    def _speed(self, prefix: TowerContext, points: Tensor, times: Tensor) -> Tensor:
        """Compute the velocity [N, H M] at points [N, H M] and times [N]; the prefix stays as it was."""
        half = self.options.dtype == "bfloat16"
        with torch.autocast(self.mean.device.type, dtype=torch.bfloat16, enabled=half):
            output = self.model(
                state=prefix.state,
                noise=points.unflatten(1, (self.head.horizon, self.head.width)),
                timestep=times,
                pixel_attention_mask=prefix.cameras,
                attention_mask=prefix.attention,
                past_key_values=prefix.cache,
            ).logits
        prefix.cache.crop(prefix.length - prefix.cache.get_seq_length())
        velocity: Tensor = output.float().flatten(1)
        return velocity


def random_pi0(config: Any) -> Any:
    """Random float32 weights, from torch's own generator."""
    from transformers import PI0ForConditionalGeneration

    return PI0ForConditionalGeneration(config)


def load_pi0(path: str) -> Any:
    """Load the weights of a folder or hub name, float32.

    They have transformers' names, or those of openpi's and LeRobot's PyTorch checkpoints. Raises PolicyError if
    any is missing or left over."""
    from transformers import PI0ForConditionalGeneration

    try:
        with without_progress_bars():
            loaded: Any = PI0ForConditionalGeneration.from_pretrained(
                path, dtype=torch.float32, output_loading_info=True
            )
    except Exception as error:
        raise PolicyError(f"no PI0 could be loaded from {path!r}: {error}") from error
    model, info = loaded
    wrong = sorted([*info["missing_keys"], *info["unexpected_keys"]])
    if wrong:
        raise PolicyError(
            f"{path!r} holds no whole PI0: {len(wrong)} weights are missing or left over ({wrong[0]}, ...)"
        )
    return model
