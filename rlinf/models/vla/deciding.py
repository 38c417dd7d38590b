"""The common part of policies that see, read and act, with any towers: a decision's context, a head on it.

Inputs are leaves as in `actor_critic/spaces.py`: [N, ...] while acting, [B, C, ...] in
:meth:`VisionLanguageAction.evaluate` for C decisions of T / C positions (`data.granularity`). Chunks of K
actions also have ``executed`` [B, C, K].
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
import torch
from gymnasium import spaces
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rlinf.data.batch import Costs
from rlinf.data.granularity import Granularity, Levels
from rlinf.data.inputs import Inputs, ObservationInputs, picked
from rlinf.data.messages import PolicyOutput
from rlinf.models.actor_critic.export import load_spaces, save_spaces
from rlinf.models.actor_critic.layers import orthogonal
from rlinf.models.adapters import ADAPTER, AdaptedPolicy, merged_weights, separate_weights
from rlinf.models.decision_rule import DecisionRule
from rlinf.models.loading import load_tokenizer
from rlinf.models.policy_of_head import DecidingHead, PolicyOfHead
from rlinf.models.vla.observation import StateNumbers
from rlinf.models.vla.options import VlaOptions

_TOKENS_AT_ONCE = 65_536  # of a pass without gradient: bounds its memory


class ActionHeadOfContext(DecidingHead, Protocol):
    """From a policy's context of a decision (its own kind of context) to actions, in the head's own units [N, Q]."""

    imitation_noise: int
    per_action: int
    """Numbers of an action."""

    def sample(self, context: Any, noise: Tensor) -> Tensor: ...

    def mode(self, context: Any) -> Tensor: ...

    def log_prob(self, context: Any, actions: Tensor) -> Tensor:
        """Log-probability of each number of the chunk [N, K D]."""

    def entropy(self, context: Any) -> Tensor:
        """Likewise."""

    def to_env(self, actions: np.ndarray) -> np.ndarray: ...


class InstructionTokens(Protocol):
    """Tokens of instructions, in the way of a family."""

    tokenizer: Any


class VisionLanguageAction(AdaptedPolicy, PolicyOfHead):
    """An `interfaces.ActorCriticPolicy` and `DecidingPolicy`. A subclass makes what is named here, and :meth:`read`."""

    state_size = 0
    positions_independent = True

    options: VlaOptions
    granularity: Granularity
    instructions: InstructionTokens
    head: ActionHeadOfContext
    state: StateNumbers | None
    value_head: nn.Module | None

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: VlaOptions, tokenizer: Any
    ) -> None:
        """Keep what an export stores; a subclass makes its parts, with random weights."""
        super().__init__()
        self.options, self._spaces = options, (observation_space, action_space)

    def make_critic(self, width: int) -> None:
        """Make the positions of decisions, which the head has, and a critic of states [N, width] if there is one."""
        options = self.options
        levels = Levels(options.reward_type, options.logprob_type, options.entropy_type)
        self.granularity = Granularity.of(levels, actions=options.num_action_chunks, dimensions=self.head.per_action)
        values = self.granularity.decision_rewards
        self.value_head = orthogonal(nn.Linear(width, values), 1.0) if options.value_head else None

    @property
    def imitation_noise(self) -> int:
        return self.head.imitation_noise

    @property
    def is_lora(self) -> bool:
        """Whether the towers have low-rank adapters (`rlinf.models.adapters.adapt`)."""
        return any(ADAPTER in name for name, _ in self.named_parameters())

    def towers(self) -> list[nn.Module]:
        """Return the parts that may have weights of a checkpoint."""
        raise NotImplementedError

    def layers(self) -> list[nn.Module]:
        """Return the parts of towers that compute one after the other, each by a call of its own."""
        return []

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight and every running statistic, by name; adapters are merged into their layers."""
        return merged_weights(self)

    def separate_weights(self) -> Iterator[tuple[str, Tensor, bool]]:
        """Yield the same with adapters separate from their layers, and whether each changes in training."""
        return separate_weights(self)

    @property
    def tokens_per_decision(self) -> int:
        """Positions of the language model for one decision, at most."""
        raise NotImplementedError

    def read(self, leaves: Mapping[str, Tensor]) -> tuple[Any, Tensor | None]:
        """Compute the head's context for observations [N, ...], and values [N, rewards of a decision]."""
        raise NotImplementedError

    @torch.no_grad()
    def step(self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return action tokens [N, Q] or flows, and ``state`` as it came; greedy if ``noise`` is None."""
        decided, _ = self.read(observations)
        return self.head.mode(decided) if noise is None else self.head.sample(decided, noise), state

    @torch.no_grad()
    def decide(
        self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor
    ) -> tuple[Tensor, Tensor, PolicyOutput]:
        """As :meth:`step`, with log-probabilities and values of the same pass: a large model runs once a decision."""
        context, values = self.read(observations)
        actions = self.head.sample(context, noise)
        return actions, state, PolicyOutput(self.head.log_prob(context, actions), values=values)

    def evaluate(self, inputs: Inputs, actions: Tensor, mask: Tensor, *, with_entropy: bool = True) -> PolicyOutput:
        """Compute log-probabilities, entropy and values [B, T], with gradient; 0 where ``mask`` is false."""
        decided = self.granularity.decisions(mask)
        indices = decided.nonzero(as_tuple=True)
        given = ObservationInputs.of(inputs)
        leaves = {name: picked(leaf, *indices) for name, leaf in given.observations.items()}
        chosen, acted = actions[indices], None if given.executed is None else given.executed[indices]
        # Under gradient the learner has cut the batch already; without, the bound is kept here.
        size = len(chosen) if torch.is_grad_enabled() else max(1, _TOKENS_AT_ONCE // self.tokens_per_decision)
        parts = []
        for at in torch.arange(len(chosen), device=mask.device).split(max(1, size)):
            if len(at):
                logits, critic = self.read({name: leaf[at] for name, leaf in leaves.items()})
                parts.append(
                    self._positions_of(logits, critic, chosen[at], None if acted is None else acted[at], with_entropy)
                )
        logprobs, entropy, values = ([part[column] for part in parts] for column in range(3))
        return PolicyOutput(
            logprobs=_arranged(logprobs, indices, mask),
            entropy=_arranged(entropy, indices, mask) if with_entropy else None,
            values=_arranged(values, indices, mask) if self.value_head is not None else None,
        )

    def _positions_of(
        self, logits: Tensor, critic: Tensor | None, chosen: Tensor, acted: Tensor | None, with_entropy: bool
    ) -> tuple[Tensor, ...]:
        """Compute log-probabilities, entropy, values [n, P] of n decisions of P positions each
        (`rlinf.data.granularity`).

        ``acted`` [n, K]: the actions that were carried out; None: all. Zeros for results not requested or not there.
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
        _, values = self.read(observations)
        assert values is not None
        return values[:, 0]

    @torch.no_grad()
    def states(self, inputs: Inputs, shape: torch.Size) -> Tensor:
        """No memory: [B * T, 0]."""
        return torch.zeros(shape.numel(), 0)

    @torch.no_grad()
    def observe(self, inputs: Inputs, mask: Tensor) -> None:
        """Add the states of the valid positions to the running statistics, if there are any."""
        if self.state is not None:
            self.state.observe(ObservationInputs.of(inputs).observations, self.granularity.decisions(mask))

    def costs(self, inputs: Inputs, mask: Tensor) -> Costs:
        """Tokens of the true decisions of each row."""
        return self.decision_rule.costs(self.granularity.decisions(mask))

    @property
    def decision_rule(self) -> DecisionRule:
        """How decisions may be divided."""
        return DecisionRule(self.tokens_per_decision, observed=() if self.state is None else self.state.observed)

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        """Tokens [N, Q] as the actions that the environment takes: [N, ...], with chunks [N, K, ...]."""
        return self.head.to_env(actions)

    def save_pretrained(self, folder: str) -> None:
        """Weights, options, spaces and tokenizer: all that :meth:`from_pretrained` reads."""
        self.save_weights(dict(self.weights()), folder)

    def save_weights(self, named: Mapping[str, Tensor], folder: str) -> None:
        """Write the same with weights that were collected elsewhere; ``folder`` is made."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in named.items()}
        save_file(weights, target / "model.safetensors")
        (target / "vla.json").write_text(json.dumps(asdict(self.options), indent=2))
        save_spaces(target, self._spaces)
        self.instructions.tokenizer.save_pretrained(str(target))

    @classmethod
    def from_pretrained(
        cls,
        folder: str,
        *,
        levels: Levels | None = None,
        temperature: float | None = None,
        dtype: str | None = None,
    ) -> Self:
        """Load the policy of an exported folder; see `actor_critic.export.load_policy` on trusting it.

        ``levels``, ``temperature`` and ``dtype`` replace those that it was trained with.
        """
        source = Path(folder)
        written = json.loads((source / "vla.json").read_text())
        for name in ("image_mean", "image_std", "cameras"):
            written[name] = tuple(written.get(name, ()))
        both_spaces, options, tokenizer = load_spaces(source), VlaOptions(**written), load_tokenizer(folder)
        weights = load_file(source / "model.safetensors")
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


def _arranged(parts: list[Tensor], indices: tuple[Tensor, ...], mask: Tensor) -> Tensor:
    """Arrange the positions [n, P] of decisions, in pieces laid end to end, as [B, T]; 0 where the mask is false."""
    if not parts:
        return torch.zeros(mask.shape, device=mask.device)
    column = torch.cat(parts)
    width = column.shape[1]
    table = column.new_zeros(mask.shape[0], mask.shape[1] // width, width).index_put(indices, column).flatten(1)
    return torch.where(mask, table, 0.0)
