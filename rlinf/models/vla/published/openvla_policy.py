"""An OpenVLA or OpenVLA-OFT checkpoint as a policy that imitates, and learns from the log-probabilities of its tokens.

Four kinds decide: tokens one after another (OpenVLA), tokens of a whole chunk at once (OpenVLA-OFT without an action
head, as SimpleVLA-RL and RLinf train it), and numbers of a chunk at once (OpenVLA-OFT's L1 regression) or by diffusion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.spaces import SpaceError
from rlinf.models.loading import PolicyError
from rlinf.models.vla.action_bins import VocabularyBins
from rlinf.models.vla.action_tokens import TokenDraws
from rlinf.models.vla.deciding import VisionLanguageAction
from rlinf.models.vla.instructions import instruction_texts, require_instruction
from rlinf.models.vla.observation import StateNumbers, observation_seeds, require_colour, sort_leaves
from rlinf.models.vla.options import VlaOptions
from rlinf.models.vla.published.openvla_actions import ActionsOfSpace, TrainedUnits
from rlinf.models.vla.published.openvla_checkpoint import OpenVlaCheckpoint
from rlinf.models.vla.published.openvla_diffusion import ChunkDenoising, Denoising
from rlinf.models.vla.published.openvla_network import Embedded, OpenVlaNetwork, ReadPrompt
from rlinf.models.vla.published.trained_pictures import TrainedPictures
from rlinf.schema.derived import INSTRUCTION, prompted

PROMPT = f"In: What action should the robot take to {INSTRUCTION}?\nOut:"
_LAPLACE_SCALE = 0.05
_EMPTY_WORD = 29_871
"""Llama's token of a single space, which ends each prompt in the training of OpenVLA."""


class ChunkTokens(TokenDraws):
    """Tokens of all numbers of a chunk, from logits [N, K A, 256]."""

    def __init__(self, space: spaces.Space, actions: ActionsOfSpace, numbers: int, options: VlaOptions) -> None:
        unit = spaces.Box(-1.0, 1.0, (numbers,), np.float64)
        super().__init__(
            space, VocabularyBins(unit, None), chunk=options.num_action_chunks, temperature=options.temperature
        )
        self._actions = actions

    def tempered(self, logits: Tensor) -> Tensor:
        """Divide logits by the temperature."""
        return logits / self._temperature

    def to_env(self, tokens: np.ndarray) -> np.ndarray:
        return self._actions.to_env(self.bins.numbers(tokens.reshape(len(tokens), self._chunk, self.per_action)))

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        return self.bins.tokens(self._actions.from_env(actions)).reshape(len(actions), self.count)


@dataclass(frozen=True)
class Following:
    """The context of N decisions whose tokens follow one after another."""

    network: OpenVlaNetwork
    prompt: ReadPrompt

    def drawn(self, count: int, draw: Callable[[Tensor, int], Tensor]) -> Tensor:
        """Tokens [N, count]; ``draw`` chooses each, [N, 1], from its logits [N, 1, 256]."""
        prompt, tokens = self.prompt, [draw(self.network.logits(self.prompt.last), 0)]
        for number in range(1, count):
            hidden, prompt = self.network.follow(prompt, tokens[-1])
            tokens.append(draw(self.network.logits(hidden), number))
        return torch.cat(tokens, dim=1)

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits [N, n, 256] at each of the tokens [N, n], given those before it."""
        hidden = self.prompt.last
        if tokens.shape[1] > 1:
            hidden = torch.cat([hidden, self.network.follow(self.prompt, tokens[:, :-1])[0]], dim=1)
        return self.network.logits(hidden)


class SequentialTokens(ChunkTokens):
    """Tokens of one action, each drawn after the ones before it."""

    def sample(self, context: Following, noise: Tensor) -> Tensor:  # type: ignore[override]
        draw = super().sample
        return context.drawn(self.count, lambda logits, at: draw(self.tempered(logits), noise[:, at : at + 1]))

    def mode(self, context: Following) -> Tensor:  # type: ignore[override]
        return context.drawn(self.count, lambda logits, _: logits.argmax(-1))

    def log_prob(self, context: Following | Tensor, tokens: Tensor) -> Tensor:
        """Log-probability of each token [N, A]; ``context``: also the tokens' logits."""
        logits = self.tempered(context.logits(tokens)) if isinstance(context, Following) else context
        return super().log_prob(logits, tokens)


class ChunkNumbers(nn.Module):
    """Numbers of a chunk [N, K A], with Laplace noise of one scale around those of a regression head."""

    noise_kind = "uniform"
    action_dtype: type[np.generic] = np.float32
    imitation_noise = 0

    def __init__(self, actions: ActionsOfSpace, per_action: int, options: VlaOptions, scale: float) -> None:
        super().__init__()
        self._actions, self._chunk, self._scale = actions, options.num_action_chunks, scale
        self.per_action, self.count = per_action, per_action * options.num_action_chunks
        self.noise_size = self.count
        self.action_shape: tuple[int, ...] = (self.count,)

    def sample(self, means: Tensor, noise: Tensor) -> Tensor:
        """Numbers [N, K A] of uniform noise [N, K A]."""
        side = (noise - 0.5).clamp(-0.5 + 1e-7, 0.5 - 1e-7)
        return means - self._scale * side.sign() * torch.log1p(-2.0 * side.abs())

    def mode(self, means: Tensor) -> Tensor:
        return means

    def log_prob(self, means: Tensor, numbers: Tensor) -> Tensor:
        """Log-density of each number [N, K A]."""
        return -(numbers - means).abs() / self._scale - np.log(2.0 * self._scale)

    def entropy(self, means: Tensor) -> Tensor:
        """Entropy of each number [N, K A]: no weight moves it."""
        return torch.full_like(means, 1.0 + float(np.log(2.0 * self._scale)))

    def to_env(self, numbers: np.ndarray) -> np.ndarray:
        return self._actions.to_env(numbers.reshape(len(numbers), self._chunk, self.per_action))

    def from_env(self, actions: np.ndarray) -> np.ndarray:
        return self._actions.from_env(actions).reshape(len(actions), self.count).astype(np.float32)


class OpenVlaPrompts:
    """Instructions, in lower case, to token ids; shorter prompts are filled up after their first token."""

    def __init__(self, tokenizer: Any, names: Sequence[str], task: str | None, prompt: str | None) -> None:
        """Raise PolicyError for a tokenizer that does not put its first token before a text."""
        require_instruction(names, task)
        self.tokenizer = tokenizer
        self._names, self._task, self._prompt = tuple(names), task, PROMPT if prompt is None else prompt
        self._known: dict[str, list[int]] = {}
        if self._ids("")[0] != tokenizer.bos_token_id:
            raise PolicyError("the tokenizer of an OpenVLA checkpoint begins a text with <s>, and this one does not")

    def __call__(self, leaves: Mapping[str, Tensor], rows: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Ids int64 [N, L] and which of them are there, bool [N, L]."""
        prompts = [self._ids(text) for text in instruction_texts(leaves, self._names, self._task, rows)]
        length = max(map(len, prompts))
        ids, present = torch.zeros(rows, length, dtype=torch.int64), torch.zeros(rows, length, dtype=torch.bool)
        for row, own in enumerate(prompts):
            ids[row, 0], present[row, 0] = own[0], True
            ids[row, length - len(own) + 1 :] = torch.tensor(own[1:])
            present[row, length - len(own) + 1 :] = True
        return ids.to(device), present.to(device)

    def _ids(self, text: str) -> list[int]:
        if text not in self._known:
            ids = list(self.tokenizer(prompted(self._prompt, text.lower()))["input_ids"])
            self._known[text] = ids if ids[-1] == _EMPTY_WORD else [*ids, _EMPTY_WORD]
        return self._known[text]


class OpenVlaPolicy(VisionLanguageAction):
    """An `interfaces.ActorCriticPolicy` of a checkpoint; the weights are random."""

    head: ChunkTokens | ChunkNumbers | ChunkDenoising

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: VlaOptions, tokenizer: Any
    ) -> None:
        """Raise SpaceError if state, actions or cameras are not those of the checkpoint."""
        super().__init__(observation_space, action_space, options, tokenizer)
        assert options.openvla is not None
        chosen = options.openvla
        self.checkpoint = checkpoint = OpenVlaCheckpoint(**chosen["checkpoint"])
        self.parallel, self._causal = chosen["decoding"] != "sequential", chosen["decoding"] == "parallel_causal"
        chunk = options.num_action_chunks
        if not self.parallel and chunk > 1:
            raise SpaceError(
                f"env.num_action_chunks is {chunk}: with sequential decoding OpenVLA decides on one action"
            )
        if self.parallel and chunk > chosen["horizon"]:
            raise SpaceError(
                f"env.num_action_chunks is {chunk}: a chunk has {chosen['horizon']} (policy.vla.checkpoint.horizon)"
            )
        leaves = sort_leaves(observation_space, options.cameras)
        self.cameras = tuple(leaves.images)
        if not self.cameras or (len(self.cameras) > 1 and not options.cameras):
            raise SpaceError(
                f"policy.vla.cameras: name the checkpoint's images in its order, the main one first, of "
                f"{', '.join(name.removeprefix('observation.') for name in leaves.images) or 'no image'}"
            )
        for name, space in leaves.images.items():
            require_colour(name, space)
        self.pictures = TrainedPictures(
            checkpoint.preprocessor, kind=chosen["pictures"], center_crop=options.center_crop
        )
        _, statistics = checkpoint.statistics_of(chosen["statistics_key"])
        units = TrainedUnits(statistics.get("action", {}), chosen["statistics"], "action")
        self._horizon = chosen["horizon"] * len(units)
        actions = ActionsOfSpace(action_space, units, chunk=chunk, gripper=chosen["gripper"])
        self.network = OpenVlaNetwork(checkpoint)
        self._state_units: TrainedUnits | None = None
        self.state: StateNumbers | None = None
        if self.network.proprio_projector is not None:
            self._state_units = TrainedUnits(statistics.get("proprio", {}), chosen["statistics"], "proprio")
            self.state = StateNumbers(leaves.states, False) if leaves.states else None
            here = 0 if self.state is None else self.state.out_features
            if here != len(self._state_units):
                raise SpaceError(
                    f"policy.vla.checkpoint: a state has {len(self._state_units)} numbers there, and here {here}"
                )
        self.instructions: OpenVlaPrompts = OpenVlaPrompts(tokenizer, leaves.texts, options.task, options.prompt)
        level = chosen["noise_level"]
        if checkpoint.regression:
            self.head = ChunkNumbers(actions, len(units), options, _LAPLACE_SCALE if level is None else level)
        elif checkpoint.diffusion:
            self.head = ChunkDenoising(
                actions,
                len(units),
                options,
                horizon=chosen["horizon"],
                steps=chosen["diffusion_steps"],
                trained_steps=chosen["trained_diffusion_steps"],
                noise_level=1.0 if level is None else level,
            )
        else:
            kind = ChunkTokens if self.parallel else SequentialTokens
            self.head = kind(action_space, actions, len(units), options)
        self.network.vision_backbone.requires_grad_(not options.freeze_vision)
        self.network.language_model.requires_grad_(not options.freeze_language)
        self.make_critic(self.network.width)

    def towers(self) -> list[nn.Module]:
        return [self.network.language_model, self.network.vision_backbone]

    def layers(self) -> list[nn.Module]:
        towers = [part.blocks for part in self.network.vision_backbone.children()]
        return [*self.network.language_model.model.layers, *(block for blocks in towers for block in blocks)]  # type: ignore[union-attr]

    @property
    def tokens_per_decision(self) -> int:
        prompt = len(self.cameras) * self.network.vision_backbone.count + self.options.max_instruction_tokens
        if isinstance(self.head, ChunkDenoising):
            return (prompt + self._horizon + 2) * len(self.head.timesteps)
        return prompt + (self._horizon + 1 if self.parallel else self.head.count)

    def read(self, leaves: Mapping[str, Tensor]) -> tuple[Tensor | Following | Denoising, Tensor | None]:
        """Logits or numbers of a chunk, or what tokens follow or noise is removed by; values [N, rewards of a
        decision]."""
        device = self.network.language_model.model.embed_tokens.weight.device
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.options.dtype == "bfloat16"):
            each = [self.pictures(leaves[name].to(device)) for name in self.cameras]
            pixels = [torch.stack(parts, dim=1) for parts in zip(*each, strict=True)]
            ids, present = self.instructions(leaves, len(pixels[0]), device)
            state = None
            if self.state is not None and self._state_units is not None:
                numbers = self.state.numbers(leaves, device)
                state = torch.from_numpy(self._state_units.scaled(numbers.cpu().numpy())).float().to(device)
            if not self.parallel:
                prompt = self.network.read(pixels, ids, present, state)
                first, context = prompt.last, Following(self.network, prompt)
            else:
                embedded = self.network.embed(pixels, ids, present, state)
                first, context = self._decided(embedded, leaves)
        return context, None if self.value_head is None else self.value_head(first[:, 0].float())

    def write_published(self, folder: Path) -> None:
        """Write the checkpoint again in its own layout, with the weights as they are now."""
        self.checkpoint.write(folder, {name.removeprefix("network."): tensor for name, tensor in self.weights()})

    def _decided(self, embedded: Embedded, leaves: Mapping[str, Tensor]) -> tuple[Tensor, Any]:
        """Hidden states of a chunk [N, n, H], and the head's context."""
        if isinstance(self.head, ChunkDenoising):
            seeds = observation_seeds(leaves) if not torch.is_grad_enabled() else []
            there = embedded.valid[..., None]
            mean = (embedded.hidden * there).sum(1, keepdim=True) / there.sum(1, keepdim=True)
            return mean, Denoising(self.network, embedded, self.head.per_action, seeds)
        zeros = embedded.hidden.new_zeros(len(embedded.valid), self._horizon, self.network.width)
        hidden = self.network.decide(embedded, actions=zeros, causal=self._causal)[:, : self.head.count]
        if isinstance(self.head, ChunkNumbers):
            return hidden, self.network.numbers(hidden, self.head.per_action).flatten(1)
        return hidden, self.head.tempered(self.network.logits(hidden))

    def _positions_of(
        self, logits: Any, critic: Tensor | None, chosen: Tensor, acted: Tensor | None, with_entropy: bool
    ) -> tuple[Tensor, ...]:
        if isinstance(logits, Following):
            assert isinstance(self.head, ChunkTokens)
            logits = self.head.tempered(logits.logits(chosen))
        return super()._positions_of(logits, critic, chosen, acted, with_entropy)
