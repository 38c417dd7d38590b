"""A GR00T N1.7 checkpoint as a policy, for one of its embodiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from rlinf.data.spaces import SpaceError
from rlinf.models.loading import PolicyError
from rlinf.models.vla.instructions import instruction_texts, padded, require_instruction
from rlinf.models.vla.observation import observation_seeds, sort_leaves
from rlinf.models.vla.published.flow_policy import PublishedFlow, PublishedHead
from rlinf.models.vla.published.groot_checkpoint import GrootCheckpoint
from rlinf.models.vla.published.groot_network import GrootNetwork, SeenContext, own_groot_names
from rlinf.models.vla.published.groot_pictures import GrootPictures
from rlinf.models.vla.published.groot_relative import RelativeHead
from rlinf.models.vla.published.processing import ActionScaling, ActionUnits

_NO_WORDS = "Perform the task."
_GRIPPER = "gripper"


class EndsScaling:
    """Numbers in [-1, 1] between two ends; one whose ends are equal is 0."""

    def __init__(
        self,
        ends: tuple[NDArray[np.float32], NDArray[np.float32]],
        *,
        cut: bool,
        gripper: int | None = None,
    ) -> None:
        """Scale between ``ends`` [n], or [K, n] for each of the K actions of a chunk.

        ``cut``: whether numbers beyond them are cut. ``gripper``: a number that is 0 or 1 in the data, and 1 or -1 in
        the environment.
        """
        self._low, self._high = ends
        self._cut, self._gripper = cut, gripper

    def scaled(self, numbers: Tensor) -> Tensor:
        """Scale [..., n] as the network takes them."""
        low, high = (torch.from_numpy(end).to(numbers.device) for end in (self._low, self._high))
        if self._gripper is not None:
            numbers = numbers.clone()
            numbers[..., self._gripper] = (1.0 - numbers[..., self._gripper]) / 2.0
        width = high - low
        unit = torch.where(width != 0, 2 * (numbers - low) / torch.where(width != 0, width, 1.0) - 1, 0.0)
        return unit.clamp(-1.0, 1.0) if self._cut else unit

    def whole(self, numbers: NDArray[Any]) -> NDArray[np.float64]:
        """Undo it, for numbers [..., n] of the network, which are cut at the ends."""
        unit = np.clip(numbers.astype(np.float64), -1.0, 1.0)
        result: NDArray[np.float64] = (unit + 1.0) * 0.5 * (self._high.astype(np.float64) - self._low) + self._low
        if self._gripper is not None:
            result[..., self._gripper] = -np.sign(2.0 * result[..., self._gripper] - 1.0)
        return result


class GrootPrompts:
    """Instructions and pictures to token ids: the backbone's chat template, with a token for each part of a picture."""

    def __init__(self, tokenizer: Any, names: Sequence[str], task: str | None, *, picture: int, plain: bool) -> None:
        """``picture``: id of the token that stands for pictures. ``plain``: instructions are in lower case, without
        punctuation. Raises PolicyError for a tokenizer without a chat template."""
        require_instruction(names, task)
        if not getattr(tokenizer, "chat_template", None):
            raise PolicyError("policy.flow.checkpoint.backbone: its tokenizer has no chat template")
        self.tokenizer = tokenizer
        self.plain = plain
        self._names, self._task = tuple(names), task
        self._token = tokenizer.convert_ids_to_tokens(picture)
        self._known: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def __call__(self, leaves: Mapping[str, Tensor], rows: int, counts: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Ids int64 [N, P] and which of them are there, bool [N, P]; ``counts``: tokens of each picture."""
        texts = instruction_texts(leaves, self._names, self._task, rows)
        return padded([self._ids(text, counts) for text in texts], torch.device("cpu"))

    def _ids(self, text: str, counts: tuple[int, ...]) -> Tensor:
        if (text, counts) not in self._known:
            words = text or _NO_WORDS
            if self.plain:
                words = "".join(sign for sign in words.lower() if sign.isalnum() or sign.isspace() or sign == "_")
            content = [*({"type": "image"} for _ in counts), {"type": "text", "text": words}]
            message = [{"role": "user", "content": content}]
            before, *after = self.tokenizer.apply_chat_template(
                message, tokenize=False, add_generation_prompt=False
            ).split(self._token)
            whole = before + "".join(self._token * count + rest for count, rest in zip(counts, after, strict=True))
            self._known[text, counts] = torch.tensor(self.tokenizer(whole)["input_ids"], dtype=torch.int64)
        return self._known[text, counts]


class GrootPolicy(PublishedFlow):
    """An `interfaces.ActorCriticPolicy`; the weights are random."""

    description = GrootCheckpoint
    checkpoint: GrootCheckpoint
    network: GrootNetwork
    instructions: GrootPrompts

    def furnish(self, tokenizer: Any, texts: Sequence[str]) -> ActionScaling:
        checkpoint, processor = self.checkpoint, self.checkpoint.processor
        chunk = self.options.num_action_chunks
        if chunk > checkpoint.decoded:
            raise SpaceError(
                f"env.num_action_chunks is {chunk}: {checkpoint.embodiment} of the checkpoint has chunks of "
                f"{checkpoint.decoded} actions"
            )
        cut = bool(processor.get("clip_outliers", True))
        self._state_scaling = EndsScaling(checkpoint.ends("state"), cut=cut)
        self.pictures = GrootPictures(processor, checkpoint.preprocessor)
        images = sort_leaves(self._spaces[0]).images
        self._sizes = {
            name: images[name].shape[:2] if images[name].shape[-1] == 3 else images[name].shape[1:]
            for name in self.cameras.values()
        }
        self.network = GrootNetwork(checkpoint)
        self.instructions = GrootPrompts(
            tokenizer,
            texts,
            self.options.task,
            picture=self.network.picture_token,
            plain=bool(processor.get("formalize_language", True)),
        )
        low, high = checkpoint.ends("action")
        ends = (low, high) if low.ndim == 1 else (low[:chunk], high[:chunk])
        return EndsScaling(ends, cut=cut, gripper=self._libero_gripper())

    def made_head(self, space: spaces.Space, units: ActionUnits, scaling: ActionScaling) -> PublishedHead:
        if not self.checkpoint.references:
            return super().made_head(space, units, scaling)
        return RelativeHead(
            self._speed,
            (self.checkpoint.horizon, self.checkpoint.width),
            space,
            self.options,
            units=units,
            scaling=scaling,
        )

    def own_names(self) -> dict[str, str]:
        return own_groot_names(self.checkpoint)

    def towers(self) -> list[nn.Module]:
        whole: Mapping[str, Any] = self.options.published or {}
        mover: list[nn.Module] = [self.network.mover]
        return mover if whole["train"] == "expert" else [self.network.backbone.language_model, *mover]

    @property
    def tokens_per_decision(self) -> int:
        pictures = sum(self.pictures.tokens(*size) for size in self._sizes.values()) * self.checkpoint.frames
        return pictures + 64 + self.options.flow_steps * (self.head.horizon + 1)

    def read(self, leaves: Mapping[str, Tensor]) -> tuple[SeenContext, Tensor | None]:
        """Read pictures, words and state, once for a decision."""
        device = self.network.state_encoder.layer1.W.device
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.options.dtype == "bfloat16"):
            patches, grid, counts = self._patches(leaves, device)
            rows = len(patches)
            state = torch.zeros(rows, 0, device=device) if self.state is None else self.state.numbers(leaves, device)
            reference = self._reference(state)
            state = self._state_scaling.scaled(state.float())
            state = functional.pad(state, (0, int(self.checkpoint.config["max_state_dim"]) - state.shape[1]))
            ids, present = (part.to(device) for part in self.instructions(leaves, rows, counts))
            prefix = self.network.prefix(patches.flatten(0, 1), grid, ids, present, state, reference)
        prefix.seeds.extend(observation_seeds(leaves) if not torch.is_grad_enabled() else [])
        return prefix, None if self.value_head is None else self.value_head(prefix.summary)

    def _reference(self, state: Tensor) -> Tensor:
        """Numbers [N, A] of the state [N, n] that those of actions are relative to; 0 for none."""
        indices = torch.tensor(self.checkpoint.reference_numbers(), dtype=torch.int64, device=state.device)
        if not self.checkpoint.references:
            return state.new_zeros(len(state), len(indices))
        return torch.where(indices >= 0, state[:, indices.clamp(min=0)], 0.0)

    def _patches(self, leaves: Mapping[str, Tensor], device: torch.device) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        """Patches [N, P, numbers] of all pictures, the grid [N pictures, 3] of each, and tokens of each of a row."""
        made = [self.pictures(leaves[ours].to(device)) for ours in self.cameras.values()] * self.checkpoint.frames
        grids = [(1, *grid) for _, grid in made]
        whole = torch.cat([patches for patches, _ in made], dim=1)
        grid = torch.tensor(grids * len(whole), dtype=torch.int64, device=device)
        return whole, grid, tuple(rows * columns // self.pictures.merge**2 for _, rows, columns in grids)

    def _libero_gripper(self) -> int | None:
        """Return the index of LIBERO's gripper in an action. Raises SpaceError if it is not one number."""
        if not self.checkpoint.turns_gripper:
            return None
        if len(self.checkpoint.groups("action")) == 1:
            return self.checkpoint.action_numbers - 1
        index = 0
        for name, size in self.checkpoint.groups("action"):
            if name == _GRIPPER and size == 1:
                return index
            index += size
        raise SpaceError(
            f"policy.flow.checkpoint: actions of {self.checkpoint.embodiment} have no {_GRIPPER} of one number"
        )
