"""A vision-language-action policy: a vision tower and a language model that decide on a chunk of actions at once.

The sequence of the language model is: instruction, image patches, state, one query per action token, and one for the
value where there is a critic. All tokens of a decision are read off their queries in one pass (as OpenVLA-OFT does, and
unlike its first version, which draws one after the other), so acting and evaluating cost the same one pass.

Inputs are leaves as in `actor_critic/spaces.py`: [N, ...] while acting, [B, C, ...] in :meth:`VlaPolicy.evaluate`
for C decisions of T / C positions (`rlinf.granularity`); chunks of K actions have ``executed`` [B, C, K] beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.granularity import Granularity, Levels
from rlinf.models.actor_critic.layers import orthogonal
from rlinf.models.vla.action_tokens import ActionTokens
from rlinf.models.vla.backbones import random_tower, rebuilt
from rlinf.models.vla.export import load_exported, save_exported
from rlinf.models.vla.flow import ActionFlow
from rlinf.models.vla.instructions import Instructions
from rlinf.models.vla.observation import ImageTokens, StateToken, sort_leaves
from rlinf.models.vla.options import VlaOptions
from rlinf.types import Costs, Inputs, ObservationInputs, PolicyOutput

_QUERY_STD = 0.02
_TOKENS_AT_ONCE = 65_536  # of a pass without gradient: bounds its memory


class VlaPolicy(nn.Module):
    """An `interfaces.ActorCriticPolicy`. Without ``language`` and ``vision`` the towers have random weights."""

    state_size = 0
    positions_independent = True
    noise_kind: str
    action_dtype: type[np.generic]

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
        super().__init__()
        self.options = options
        self._spaces = observation_space, action_space
        leaves = sort_leaves(observation_space)
        self.instructions = Instructions(tokenizer, leaves.texts, options.task, options.max_instruction_tokens)
        self.language = language if language is not None else random_tower(rebuilt(options.language))
        self.language.requires_grad_(not options.freeze_language)
        width = self.language.config.hidden_size
        self.images: ImageTokens | None = None
        if leaves.images:
            assert options.vision is not None
            tower = vision if vision is not None else random_tower(rebuilt(options.vision))
            self.images = ImageTokens(tower.requires_grad_(not options.freeze_vision), leaves.images, width, options)
        self.state = StateToken(leaves.states, width, options.normalize_observations) if leaves.states else None
        self.head = _action_head(width, action_space, options)
        levels = Levels(options.reward_type, options.logprob_type, options.entropy_type)
        self.granularity = Granularity.of(levels, actions=options.num_action_chunks, dimensions=self.head.per_action)
        values = self.granularity.decision_rewards
        self.value_head = orthogonal(nn.Linear(width, values), 1.0) if options.value_head else None
        queries = self.head.count + int(options.value_head)
        self.queries = nn.Parameter(torch.randn(queries, width) * _QUERY_STD)
        self.noise_kind, self.noise_size = self.head.noise_kind, self.head.noise_size
        self.action_shape, self.action_dtype = self.head.action_shape, self.head.action_dtype
        self.imitation_noise = self.head.imitation_noise

    @torch.no_grad()
    def step(self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Action tokens [N, Q] or flows, and ``state`` as it came; greedy where ``noise`` is None."""
        decided, _ = self._read(observations)
        return self.head.mode(decided) if noise is None else self.head.sample(decided, noise), state

    def evaluate(self, inputs: Inputs, actions: Tensor, mask: Tensor, *, with_entropy: bool = True) -> PolicyOutput:
        """Log-probabilities, entropy and values [B, T], with gradient; 0 where ``mask`` is false."""
        decided = self.granularity.decisions(mask)
        places = decided.nonzero(as_tuple=True)
        given = ObservationInputs.of(inputs)
        leaves = {name: leaf[places] for name, leaf in given.observations.items()}
        chosen, acted = actions[places], None if given.executed is None else given.executed[places]
        # Under gradient the learner has cut the batch already; without, the bound is kept here.
        size = len(chosen) if torch.is_grad_enabled() else max(1, _TOKENS_AT_ONCE // self.tokens_per_decision)
        parts = []
        for at in torch.arange(len(chosen), device=mask.device).split(max(1, size)):
            if len(at):
                logits, critic = self._read({name: leaf[at] for name, leaf in leaves.items()})
                parts.append(
                    self._positions_of(logits, critic, chosen[at], None if acted is None else acted[at], with_entropy)
                )
        logprobs, entropy, values = ([part[column] for part in parts] for column in range(3))
        return PolicyOutput(
            logprobs=_in_place(logprobs, places, mask),
            entropy=_in_place(entropy, places, mask) if with_entropy else None,
            values=_in_place(values, places, mask) if self.value_head is not None else None,
        )

    def _positions_of(
        self, logits: Tensor, critic: Tensor | None, chosen: Tensor, acted: Tensor | None, with_entropy: bool
    ) -> tuple[Tensor, ...]:
        """Log-probabilities, entropy and values [n, P] of n decisions with P positions each (`rlinf.granularity`).

        ``acted`` [n, K]: the actions that were carried out; None: all. Zeros for what is not asked for or not there.
        """
        positions = self.granularity
        chunks = (-1, 1, positions.actions, positions.dimensions)
        executed = None if acted is None else acted[:, None]
        logprobs = positions.logprobs(self.head.log_prob(logits, chosen).view(chunks), executed)
        nothing = torch.zeros_like(logprobs)
        entropy = positions.entropy(self.head.entropy(logits).view(chunks), executed) if with_entropy else nothing
        return logprobs, entropy, nothing if critic is None else positions.spread(critic)

    @torch.no_grad()
    def values(self, observations: Mapping[str, Tensor], state: Tensor) -> Tensor:
        """Critic [N] at observations [N, ...]: of a chunk, of its first action."""
        _, values = self._read(observations)
        assert values is not None
        return values[:, 0]

    @torch.no_grad()
    def states(self, inputs: Inputs, shape: torch.Size) -> Tensor:
        """No memory: [B * T, 0]."""
        return torch.zeros(shape.numel(), 0)

    @torch.no_grad()
    def observe(self, inputs: Inputs, mask: Tensor) -> None:
        """Takes the states of the valid positions into the running statistics, where there are any."""
        if self.state is not None:
            self.state.observe(ObservationInputs.of(inputs).observations, self.granularity.decisions(mask))

    @property
    def tokens_per_decision(self) -> int:
        """Positions of the language model for one decision, at most."""
        patches = self.images.count if self.images is not None else 0
        return self.options.max_instruction_tokens + patches + int(self.state is not None) + len(self.queries)

    def costs(self, inputs: Inputs, mask: Tensor) -> Costs:
        """Tokens of the true decisions of each row."""
        return Costs(self.granularity.decisions(mask).sum(dim=1).clamp(min=1) * self.tokens_per_decision)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight and every running statistic, by name."""
        for name, tensor in self.state_dict().items():
            yield name, tensor.detach()

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        """What the environment takes for tokens [N, Q]: [N, ...], with chunks [N, K, ...]."""
        return self.head.to_env(actions)

    def own_actions(self, actions: np.ndarray) -> np.ndarray:
        """The tokens [N, Q] nearest to environment actions: what a demonstration is learned as."""
        return self.head.from_env(actions)

    def save_pretrained(self, folder: str) -> None:
        """Weights, options, spaces and tokenizer: all that :meth:`from_pretrained` reads."""
        save_exported(self, folder, self._spaces, self.options, self.instructions.tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        folder: str,
        *,
        levels: Levels | None = None,
        temperature: float | None = None,
        dtype: str | None = None,
    ) -> Self:
        """The policy of an exported folder; see `actor_critic.export.load_policy` on trusting it.

        ``levels``, ``temperature`` and ``dtype`` replace those that it was trained with.
        """
        both_spaces, options, tokenizer, weights = load_exported(folder)
        options = replace(
            options,
            temperature=options.temperature if temperature is None else temperature,
            dtype=options.dtype if dtype is None else dtype,
        )
        if levels is not None:
            options = replace(options, **vars(levels))
        policy = cls(*both_spaces, options, tokenizer)
        policy.load_state_dict(weights)
        return policy

    def _read(self, leaves: Mapping[str, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Logits [N, Q, V] of the action tokens or the context of a flow, and values [N, rewards of a decision]."""
        device = self.queries.device
        rows = len(next(iter(leaves.values())))
        with self._precision(device):
            ids, present = self.instructions(dict(leaves), rows, device)
            parts = [self.language.get_input_embeddings()(ids)]
            if self.images is not None:
                parts.append(self.images(leaves))
            if self.state is not None:
                parts.append(self.state(leaves))
            parts.append(self.queries.expand(rows, -1, -1))
            embedded = torch.cat([part.to(parts[0].dtype) for part in parts], dim=1)
            rest = present.new_ones(rows, embedded.shape[1] - present.shape[1])
            attention = torch.cat([present, rest], dim=1).long()
            hidden = self.language(
                inputs_embeds=embedded,
                attention_mask=attention,
                position_ids=(attention.cumsum(1) - 1).clamp(min=0),
                use_cache=False,
            ).last_hidden_state[:, -len(self.queries) :]
        hidden = hidden.float()
        values = None if self.value_head is None else self.value_head(hidden[:, -1])
        return self.head(hidden[:, : self.head.count]), values

    def _precision(self, device: torch.device) -> AbstractContextManager[Any]:
        half = self.options.dtype == "bfloat16"
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=half)


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
        )
    return ActionTokens(width, space, bins=options.action_bins, chunk=chunk, temperature=options.temperature)


def _in_place(parts: list[Tensor], places: tuple[Tensor, ...], mask: Tensor) -> Tensor:
    """The positions [n, P] of decisions, in pieces laid end to end, as [B, T]; 0 where the mask is false."""
    if not parts:
        return torch.zeros(mask.shape, device=mask.device)
    column = torch.cat(parts)
    width = column.shape[1]
    table = column.new_zeros(mask.shape[0], mask.shape[1] // width, width).index_put(places, column).flatten(1)
    return torch.where(mask, table, 0.0)
