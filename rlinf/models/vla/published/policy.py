"""A SmolVLA, pi0 or pi0.5 checkpoint as a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from rlinf.models.vla.observation import observation_seeds
from rlinf.models.vla.published.checkpoint import FlowCheckpoint
from rlinf.models.vla.published.flow_policy import PublishedFlow
from rlinf.models.vla.published.layers import ReadContext
from rlinf.models.vla.published.networks import NETWORKS, FlowNetwork, own_names
from rlinf.models.vla.published.processing import ActionScaling, Alignment, Prompts, Scaling, aloha_state, resized


class PublishedPolicy(PublishedFlow):
    """An `interfaces.ActorCriticPolicy`; the weights are random."""

    description = FlowCheckpoint
    checkpoint: FlowCheckpoint
    network: FlowNetwork
    instructions: Prompts

    def furnish(self, tokenizer: Any, texts: Sequence[str]) -> ActionScaling:
        checkpoint = self.checkpoint
        config = checkpoint.config
        self.aloha = bool(config.get("adapt_to_pi_aloha"))
        modes, eps = config["normalization_mapping"], float(checkpoint.step("normalizer_processor").get("eps", 1e-8))
        before, after = (checkpoint.statistics_of(name) for name in ("normalizer_processor", "unnormalizer_processor"))
        self._state_scaling = Scaling("observation.state", modes["STATE"], before, eps)
        self._picture_scaling = {name: Scaling(name, modes["VISUAL"], before, eps) for name in self.cameras}
        self.instructions = Prompts(
            tokenizer,
            texts,
            self.options.task,
            limit=int(checkpoint.step("tokenizer_processor").get("max_length", config["tokenizer_max_length"])),
            with_state=checkpoint.family == "pi05",
        )
        self._alignment: Alignment = "corner" if checkpoint.family == "smolvla" else "centre"
        self.network = NETWORKS[checkpoint.family](checkpoint, tokenizer)
        return Scaling("action", modes["ACTION"], after, eps)

    def own_names(self) -> dict[str, str]:
        return own_names(self.checkpoint)

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
            if self.aloha:
                state = aloha_state(state)
            width = int(self.checkpoint.config["max_state_dim"])
            state = functional.pad(state, (0, width - state.shape[1]))
            prefix = self.network.prefix(pictures, seen, ids, present, state)
        prefix.seeds.extend(observation_seeds(leaves) if not torch.is_grad_enabled() else [])
        return prefix, None if self.value_head is None else self.value_head(prefix.summary)

    def _pictures(self, leaves: Mapping[str, Tensor], device: torch.device) -> tuple[Tensor, Tensor]:
        """Pictures [N, C, 3, h, w] in [-1, 1] and which are there [N, C]; those that are not come last, black."""
        made = []
        for theirs, ours in self.cameras.items():
            images = leaves[ours].to(device)
            pixels = (images.movedim(-1, 1) if images.shape[-1] == 3 else images).float() / 255.0
            pixels = self._picture_scaling[theirs].scaled(pixels)
            made.append(resized(pixels, self.network.size, self._alignment) * 2.0 - 1.0)
        there = len(made)
        absent = len(self.checkpoint.pictures) - there
        if self.checkpoint.family == "smolvla":
            absent = min(absent, int(self.checkpoint.config["empty_cameras"]))
        made += [torch.full_like(made[0], -1.0)] * absent
        seen = torch.tensor([True] * there + [False] * absent, device=device)
        return torch.stack(made, dim=1), seen.expand(len(made[0]), -1)
