"""A vision-language-action policy: a vision tower and a language model that decide on a chunk of actions at once.

The sequence of the language model is: instruction and image patches (or the other way round, as in OpenVLA),
state, one query per action token, and one for the value if there is a critic. All tokens of a decision are
read off their queries in one pass. OpenVLA-OFT does so too, unlike its first version, which draws one after
the other. So acting and evaluating cost the same one pass.

Inputs are leaves as in `actor_critic/spaces.py`: [N, ...] while acting, [B, C, ...] in
:meth:`VlaPolicy.evaluate` for C decisions of T / C positions (`data.granularity`). Chunks of K actions also
have ``executed`` [B, C, K].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.spaces import ADVANTAGE
from rlinf.models.vla.action_tokens import ActionTokens
from rlinf.models.vla.backbones import encoder_layers, random_tower, random_vision, rebuilt
from rlinf.models.vla.conditioning import mean_of_words
from rlinf.models.vla.deciding import VisionLanguageAction
from rlinf.models.vla.flow import ActionFlow
from rlinf.models.vla.instructions import Instructions
from rlinf.models.vla.observation import ImageTokens, StateToken, sort_leaves
from rlinf.models.vla.options import VlaOptions

_QUERY_STD = 0.02


class VlaPolicy(VisionLanguageAction):
    """An `interfaces.ActorCriticPolicy`. Without ``language`` and ``vision`` the towers have random weights."""

    head: ActionTokens | ActionFlow

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        options: VlaOptions,
        tokenizer: Any,
        *,
        language: Any = None,
        vision: Any = None,
    ) -> None:
        super().__init__(observation_space, action_space, options, tokenizer)
        leaves = sort_leaves(observation_space, options.cameras)
        self.instructions: Instructions = Instructions(
            tokenizer, leaves.texts, options.task, options.max_instruction_tokens, options.prompt
        )
        self.language = language if language is not None else random_tower(rebuilt(options.language))
        self.language.requires_grad_(not options.freeze_language)
        width = self.language.config.hidden_size
        self.images: ImageTokens | None = None
        if leaves.images:
            assert options.vision is not None
            tower = vision
            if tower is None:
                tower = random_vision(rebuilt(options.vision), options.patch_init, options.stem)
            self.images = ImageTokens(tower.requires_grad_(not options.freeze_vision), leaves.images, width, options)
        self.state = StateToken(leaves.states, width, options.normalize_observations) if leaves.states else None
        self.head = _action_head(width, action_space, options)
        self.make_critic(width)
        queries = self.head.count + int(options.value_head)
        self.queries = nn.Parameter(torch.randn(queries, width) * _QUERY_STD)
        self.indicator: nn.Embedding | None = None
        if options.advantage:
            self.indicator = nn.Embedding(3, width)
            nn.init.normal_(self.indicator.weight, std=_QUERY_STD)

    def towers(self) -> list[nn.Module]:
        return [self.language, *([] if self.images is None else [self.images.tower])]

    def layers(self) -> list[nn.Module]:
        return [layer for tower in self.towers() for layer in encoder_layers(tower)]

    @property
    def tokens_per_decision(self) -> int:
        """Positions of the language model for one decision, at most."""
        patches = self.images.count if self.images is not None else 0
        return self.options.max_instruction_tokens + patches + int(self.state is not None) + len(self.queries)

    def read(self, leaves: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Logits [N, Q, V] of the action tokens or the context of a flow, and values [N, rewards of a decision].

        Without the leaf `ADVANTAGE` a flow that reads it acts as after positive decisions.
        """
        if self.indicator is None:
            return self._read(leaves, None)
        indicator = leaves.get(ADVANTAGE)
        if indicator is not None:
            return self._read(leaves, indicator)
        positive = torch.ones(len(next(iter(leaves.values()))), dtype=torch.int64)
        context, values = self._read(leaves, positive)
        if self.options.guidance != 1.0:
            context = torch.cat([context, self._read(leaves, 0 * positive)[0]], dim=1)
        return context, values

    def _read(self, leaves: Mapping[str, Tensor], indicator: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Read observations with an ``indicator`` [N] of 0, 1 or 2, as `ADVANTAGE`."""
        device = self.queries.device
        rows = len(next(iter(leaves.values())))
        half = self.options.dtype == "bfloat16"
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
            ids, present = self.instructions(dict(leaves), rows, device)
            words = self.language.get_input_embeddings()(ids)
            parts, there = [words], [present]
            if self.images is not None:
                index = 0 if self.options.order == "picture_first" else 1
                parts.insert(index, self.images(leaves, mean_of_words(words, present)))
                there.insert(index, present.new_ones(rows, self.images.count))
            if self.state is not None:
                parts.append(self.state(leaves))
            queries = self.queries.expand(rows, -1, -1)
            if self.indicator is not None and indicator is not None:
                queries = queries + self.indicator(indicator.to(device).long())[:, None]
            parts.append(queries)
            embedded = torch.cat([part.to(words.dtype) for part in parts], dim=1)
            there.append(present.new_ones(rows, embedded.shape[1] - sum(part.shape[1] for part in there)))
            attention = torch.cat(there, dim=1).long()
            hidden = self.language(
                inputs_embeds=embedded,
                attention_mask=attention,
                position_ids=(attention.cumsum(1) - 1).clamp(min=0),
                use_cache=False,
            ).last_hidden_state[:, -len(self.queries) :]
        hidden = hidden.float()
        values = None if self.value_head is None else self.value_head(hidden[:, -1])
        return self.head(hidden[:, : self.head.count]), values


def _action_head(width: int, space: spaces.Space, options: VlaOptions) -> ActionTokens | ActionFlow:
    chunk = options.num_action_chunks
    if options.flow_steps:
        return ActionFlow(
            width,
            space,
            chunk=chunk,
            steps=options.flow_steps,
            noise_level=options.flow_noise_level,
            hidden=options.flow_hidden,
            draws=options.flow_draws,
            guidance=options.guidance,
        )
    bins = None if options.action_tokens == "vocabulary" else options.action_bins
    return ActionTokens(
        width,
        space,
        bins=bins,
        chunk=chunk,
        temperature=options.temperature,
        statistics=options.action_statistics,
    )
