"""Actor and critic behind one interface: MLP, CNN or mixed observations, feed-forward or recurrent.

Inputs: leaves named as in `spaces.py`. While acting they are [N, ...]; in :meth:`ActorCritic.evaluate` [B, C, ...] for
C decisions. Recurrent policies also read ``recurrent_state`` [B, S] (before the row's first decision) and
``episode_start`` [B, C] bool; chunks of K actions ``executed`` [B, C, K] bool (without it: all of them).

A decision may have several positions (`rlinf.data.granularity`): T = C times `granularity.positions_per_decision`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rlinf.data.batch import Costs
from rlinf.data.granularity import Granularity, Levels
from rlinf.data.inputs import BatchError, Inputs, ObservationInputs, picked
from rlinf.data.messages import PolicyOutput
from rlinf.data.spaces import SpaceError
from rlinf.models.actor_critic.chunks import chunked_space, split_chunk
from rlinf.models.actor_critic.distributions import ActionHead, CategoricalHead, action_head, only_legal
from rlinf.models.actor_critic.encoders import ObservationEncoder
from rlinf.models.actor_critic.export import load_policy, save_policy
from rlinf.models.actor_critic.layers import mlp, orthogonal
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.actor_critic.state_dependent import state_dependent_head
from rlinf.models.decision_rule import DecisionRule
from rlinf.models.memory import Cell, advance, make_cell, state_numbers, unroll
from rlinf.models.policy_of_head import PolicyOfHead


class ActorCritic(PolicyOfHead):
    """An `interfaces.ActorCriticPolicy`; built from the two spaces of an environment. It always has a critic."""

    imitation_noise = 0
    head: ActionHead

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions | None = None
    ) -> None:
        super().__init__()
        options = options or ActorCriticOptions()
        self.options = options
        self.encoder = ObservationEncoder(observation_space, options)
        shared = options.shared_critic or options.recurrent != "none"
        self.critic_encoder = None if shared else ObservationEncoder(observation_space, options)
        width = self.encoder.out_features
        self.cell: Cell | None = None
        if options.recurrent != "none":
            self.cell = make_cell(options.recurrent, width, options.embedding_size)
            width = options.embedding_size
        self.actor_body = mlp(width, options.hidden_sizes, options.activation)
        self.critic_body = None if shared else mlp(width, options.hidden_sizes, options.activation)
        last = options.hidden_sizes[-1] if options.hidden_sizes else width
        self._observation_space, self._action_space = observation_space, action_space
        chunk = options.num_action_chunks
        joint_space = action_space if chunk == 1 else chunked_space(action_space, chunk)
        if options.use_sde:
            self.head = state_dependent_head(last, joint_space, options.distribution, options.init_log_std)
        else:
            self.head = action_head(
                last, joint_space, options.distribution, options.init_log_std, options.distribution_options
            )
        if options.action_mask is not None and (chunk > 1 or not isinstance(self.head, CategoricalHead)):
            raise SpaceError(f"env.action_mask needs single actions of a categorical distribution, not {joint_space}")
        dimensions = math.prod(self.head.action_shape) // chunk
        levels = Levels(options.reward_type, options.logprob_type, options.entropy_type)
        self.granularity = Granularity.of(levels, actions=chunk, dimensions=dimensions)
        self.value_head = orthogonal(nn.Linear(last, self.granularity.decision_rewards), 1.0)

    @property
    def state_size(self) -> int:
        """Numbers of recurrent state per row; 0 for feed-forward policies."""
        return 0 if self.cell is None else state_numbers(self.cell)

    @property
    def noise_hold(self) -> int:
        """Return how many decisions share their noise; -1: all of a rollout."""
        return self.options.sde_sample_freq if self.options.use_sde else 1

    @property
    def positions_independent(self) -> bool:
        """Whether a position can be evaluated without the positions before it."""
        return self.cell is None

    @torch.no_grad()
    def step(self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return actions [N, ...] and the next recurrent state [N, S]; greedy if ``noise`` [N, noise_size] is None."""
        features = self.encoder(observations)
        if self.cell is not None:
            features, state = advance(self.cell, features, state)
        parameters = self._distribution(self.actor_body(features), observations)
        return self.head.mode(parameters) if noise is None else self.head.sample(parameters, noise), state

    def evaluate(self, inputs: Inputs, actions: Tensor, mask: Tensor, *, with_entropy: bool = True) -> PolicyOutput:
        """Compute log-probabilities, entropy and values [B, T], with gradient; 0 where ``mask`` [B, T] is false."""
        positions = self.granularity
        decided = positions.decisions(mask)
        full = bool(mask.all())
        whole = self.cell is not None or full or bool(decided.all())
        # A policy without memory needs no padding: only the true decisions are computed, then put at their positions.
        indices = None if whole else decided.nonzero(as_tuple=True)
        given = ObservationInputs.of(inputs)
        flat = {n: _picked(given.observations[n], indices) for n in self.encoder.leaves}
        actor, critic, _ = self._features(flat, given, decided.shape)
        parameters = self._distribution(actor, flat)
        # From here on every decision is a row with one chunk: [n, 1, K, D].
        chunks = (len(parameters), 1, positions.actions, positions.dimensions)
        executed = given.executed if positions.actions > 1 else None
        acted = None if executed is None else _picked(executed, indices)[:, None]
        logprobs = self.head.log_prob(parameters, _picked(actions, indices)).view(chunks)
        entropy = self.head.entropy(parameters).view(chunks) if with_entropy else None
        return PolicyOutput(
            logprobs=self._arranged(positions.logprobs(logprobs, acted), indices, mask, full),
            entropy=None if entropy is None else self._arranged(positions.entropy(entropy, acted), indices, mask, full),
            values=self._arranged(positions.spread(self.value_head(critic)), indices, mask, full),
        )

    def _arranged(self, column: Tensor, indices: tuple[Tensor, ...] | None, mask: Tensor, full: bool) -> Tensor:
        """Arrange the positions [n, P] of flat decisions as [B, T]; ``full``: ``mask`` is true everywhere."""
        rows, parts = mask.shape[0], column.shape[1]
        if indices is None:
            table = column.reshape(mask.shape)
        else:
            table = column.new_zeros(rows, mask.shape[1] // parts, parts).index_put(indices, column).flatten(1)
            if parts == 1:
                return table
        return table if full else torch.where(mask, table, 0.0)

    @torch.no_grad()
    def values(self, observations: Mapping[str, Tensor], state: Tensor) -> Tensor:
        """Critic [N] at observations [N, ...] that follow recurrent states [N, S]: of a chunk, of its first action."""
        nowhere = torch.zeros(len(state), 1, dtype=torch.bool)
        start = ObservationInputs({}, recurrent_state=state, episode_starts=nowhere)
        _, critic, _ = self._features(observations, start, torch.Size((len(state), 1)))
        return self.value_head(critic)[:, 0]

    @torch.no_grad()
    def states(self, inputs: Inputs, shape: torch.Size) -> Tensor:
        """Recurrent state after each of the decisions ``shape`` = [B, C], as [B * C, S]."""
        given = ObservationInputs.of(inputs)
        flat = {name: given.observations[name].flatten(0, 1) for name in self.encoder.leaves}
        return self._features(flat, given, shape)[2]

    @torch.no_grad()
    def observe(self, inputs: Inputs, mask: Tensor) -> None:
        """Add the true decisions [B, C, ...] to the running statistics: after a batch's update, on every rank."""
        if not self.options.normalize_observations:
            return
        decided = self.granularity.decisions(mask)
        leaves = ObservationInputs.of(inputs).observations
        rows = {name: leaves[name][decided] for name in self.encoder.observed}
        self.encoder.observe(rows)
        if self.critic_encoder is not None:
            self.critic_encoder.observe(rows)

    def costs(self, inputs: Inputs, mask: Tensor) -> Costs:
        """Count the true decisions of each row; a recurrent policy pays for the padding too."""
        return self.decision_rule.costs(self.granularity.decisions(mask))

    @property
    def decision_rule(self) -> DecisionRule:
        """How decisions may be divided."""
        observed = self.encoder.observed if self.options.normalize_observations else ()
        return DecisionRule(independent=self.positions_independent, observed=observed)

    def save_pretrained(self, folder: str) -> None:
        """Write the weights and what :meth:`from_pretrained` builds the policy from."""
        save_policy(self, folder, (self._observation_space, self._action_space), self.options)

    @classmethod
    def from_pretrained(cls, folder: str, levels: Levels | None = None) -> Self:
        """Load the policy of an exported folder, at other ``levels`` if given; see `export.load_policy` on trusting it.

        A critic of whole chunks has no value of single actions, nor the other way round: a ``reward_type``
        with another number of values is a ValueError.
        """
        observation_space, action_space, options, weights = load_policy(folder)
        if levels is not None:
            options = replace(options, **vars(levels))
        policy = cls(observation_space, action_space, options)
        values = len(weights["value_head.bias"])
        if values != policy.granularity.decision_rewards:
            raise ValueError(
                f"the critic in {folder} tells {values} values of a decision, and algorithm.reward_type "
                f"{options.reward_type} needs {policy.granularity.decision_rewards}: train with the other reward_type"
            )
        policy.load_state_dict(weights)
        return policy

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, ...] of this policy as the environment takes them; with chunks [N, K, ...]."""
        joint = self.head.to_env(actions)
        chunk = self.options.num_action_chunks
        return joint if chunk == 1 else split_chunk(joint, self._action_space, chunk)

    def _distribution(self, hidden: Tensor, observations: Mapping[str, Tensor]) -> Tensor:
        """Compute the parameters of the head for hidden layers [n, F], without illegal actions at observations [n,
        ...]."""
        return only_legal(self.head(hidden), observations, self.options.action_mask)

    def _features(
        self, flat: Mapping[str, Tensor], inputs: ObservationInputs, shape: torch.Size
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute last hidden layers of actor and critic [n, F], and recurrent states [n, S], for observations [n,
        ...].

        Recurrent policies need all positions of ``shape`` = [B, T] in ``flat``, and their initial states in
        ``inputs``.
        """
        features = self.encoder(flat)
        states = features.new_zeros(len(features), 0)
        if self.cell is not None:
            state, starts = inputs.recurrent_state, inputs.episode_starts
            if state is None or starts is None:
                raise BatchError("a recurrent policy needs the batch's recurrent_state and episode_starts")
            outputs, after = unroll(self.cell, features.unflatten(0, shape), state, starts)
            features, states = outputs.flatten(0, 1), after.flatten(0, 1)
        actor = self.actor_body(features)
        if self.critic_body is None or self.critic_encoder is None:
            return actor, actor, states
        return actor, self.critic_body(self.critic_encoder(flat)), states


def _picked(tensor: Tensor, indices: tuple[Tensor, ...] | None) -> Tensor:
    """[B, C, ...] to the decisions at ``indices`` (None: all) [n, ...]."""
    return tensor.flatten(0, 1) if indices is None else picked(tensor, *indices)
