"""The common part of all off-policy networks: observations in, chunks of actions out, weights, export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from rlinf.data.batch import Costs
from rlinf.data.granularity import Granularity
from rlinf.data.inputs import Inputs, ObservationInputs
from rlinf.data.messages import PolicyOutput
from rlinf.data.spaces import SpaceError, observation_leaves, require_actions
from rlinf.models.actor_critic.chunks import chunked_space, split_chunk
from rlinf.models.actor_critic.distributions import ActionHead, only_legal
from rlinf.models.actor_critic.encoders import ObservationEncoder, image_axes, is_image
from rlinf.models.actor_critic.export import load_policy, save_policy
from rlinf.models.actor_critic.options import ActorCriticOptions
from rlinf.models.policy_of_head import PolicyOfHead

_OTHERS = {
    spaces.Discrete: "loss_type: dqn or discrete_sac, ",
    spaces.Box: "loss_type: sac, td3, ddpg, tqc or crossq, ",
}
"""Action space -> the off-policy losses that have it."""


class OffPolicyNetworks(PolicyOfHead):
    """An `interfaces.ActingPolicy` without a critic of states. Subclasses make their encoders and layers.

    A subclass's ``head`` turns what :meth:`distribution` gives into actions.
    """

    state_size = 0
    positions_independent = True
    remembers: ClassVar[bool] = False
    """Whether they have a memory, which `policy.recurrent` names."""
    loss_type: ClassVar[str]
    """Their name in errors."""
    action_spaces: ClassVar[type[spaces.Space]] = spaces.Box
    """The action spaces that they are made for."""

    options: ActorCriticOptions
    granularity: Granularity
    head: ActionHead

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Space, options: ActorCriticOptions
    ) -> None:
        """Raise SpaceError for actions of another kind, and ValueError for a memory that these networks do not have."""
        super().__init__()
        require_actions(action_space)
        if not isinstance(action_space, self.action_spaces):
            continuous = self.action_spaces is spaces.Box
            kind = "continuous actions (a Box)" if continuous else "discrete actions (a Discrete space)"
            others = next((fits for fitted, fits in _OTHERS.items() if isinstance(action_space, fitted)), "")
            raise SpaceError(
                f"loss_type: {self.loss_type} needs {kind}, got {action_space}. Choose {others}"
                "adv_type: gae with loss_type: actor_critic (PPO), or adv_type: grpo"
            )
        if self.remembers != (options.recurrent != "none"):
            memory = f"{type(self).__name__} {'has' if self.remembers else 'has no'} memory"
            raise ValueError(f"loss_type {self.loss_type}: {memory}, and policy.recurrent is {options.recurrent}")
        if options.action_mask is not None and self.action_spaces is spaces.Box:
            raise SpaceError(
                f"env.action_mask needs discrete actions, and loss_type: {self.loss_type} has continuous ones"
            )
        self.options = options
        self._spaces = (observation_space, action_space)

    @property
    def noise_hold(self) -> int:
        """Return how many decisions share their noise; -1: all of a rollout."""
        return self.options.sde_sample_freq if self.options.use_sde else 1

    def joint_box(self) -> spaces.Box:
        """Return the space of all actions of a decision."""
        chunk, space = self.options.num_action_chunks, self._spaces[1]
        joint = space if chunk == 1 else chunked_space(space, chunk)
        assert isinstance(joint, spaces.Box)
        return joint

    def encoders(self) -> list[ObservationEncoder]:
        """All encoders, which see the same observations."""
        return [module for module in self.children() if isinstance(module, ObservationEncoder)]

    def image_axes(self) -> dict[str, tuple[int, int]]:
        """Per image leaf, the axes of its height and width, counted from the end."""
        leaves = observation_leaves(self._spaces[0])
        return {
            name: image_axes(leaf) for name, leaf in leaves.items() if isinstance(leaf, spaces.Box) and is_image(leaf)
        }

    def distribution(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Parameters [N, ...] of the actor at observations [N, ...]."""
        raise NotImplementedError

    def legal(self, parameters: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return parameters [N, n] of discrete actions without those that are illegal at observations [N, ...]."""
        return only_legal(parameters, inputs, self.options.action_mask)

    def parameters_of_rows(self, given: ObservationInputs, shape: torch.Size) -> Tensor:
        """Parameters [B * C, ...] of the actor at the decisions ``shape`` = [B, C] of rows."""
        leaves = self.encoders()[0].leaves
        return self.distribution({name: given.observations[name].flatten(0, 1) for name in leaves})

    @torch.no_grad()
    def step(self, observations: Mapping[str, Tensor], state: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return actions [N, *action_shape]; greedy if ``noise`` is None. There is no recurrent state."""
        parameters = self.distribution(observations)
        return self.head.mode(parameters) if noise is None else self.head.sample(parameters, noise), state

    def evaluate(self, inputs: Inputs, actions: Tensor, mask: Tensor, *, with_entropy: bool = True) -> PolicyOutput:
        """Log-probabilities and entropy [B, T]; of a chunk, those of the actions carried out."""
        given = ObservationInputs.of(inputs)
        positions, executed = self.granularity, given.executed
        chunks = (*mask.shape, positions.actions, positions.dimensions)
        parameters = self.parameters_of_rows(given, positions.decisions(mask).shape)
        logprobs = self.head.log_prob(parameters, actions.flatten(0, 1)).view(chunks)
        entropy = self.head.entropy(parameters).view(chunks) if with_entropy else None
        return PolicyOutput(
            positions.logprobs(logprobs, executed), None if entropy is None else positions.entropy(entropy, executed)
        )

    def observe(self, inputs: Inputs, mask: Tensor) -> None:
        """Add the valid positions [B, T, ...] to the running statistics."""
        if self.options.normalize_observations:
            device = next(self.parameters()).device
            leaves = ObservationInputs.of(inputs).observations
            rows = {name: leaves[name][mask].to(device) for name in self.encoders()[0].leaves}
            for encoder in self.encoders():
                encoder.observe(rows)

    def costs(self, inputs: Inputs, mask: Tensor) -> Costs:
        return Costs(mask.sum(dim=1).clamp(min=1))

    def save_pretrained(self, folder: str) -> None:
        """Write the weights and what :meth:`from_pretrained` builds the policy from."""
        save_policy(self, folder, self._spaces, self.options, self.loss_type)

    @classmethod
    def from_pretrained(cls, folder: str) -> Self:
        """Load the policy of an exported folder; see `actor_critic.export` on trusting it."""
        observation_space, action_space, options, weights = load_policy(folder)
        policy = cls(observation_space, action_space, options)
        policy.load_state_dict(weights)
        return policy

    def env_actions(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, A] of this policy as the environment takes them; with chunks [N, K, ...]."""
        joint, chunk = self.head.to_env(actions), self.options.num_action_chunks
        return joint if chunk == 1 else split_chunk(joint, self._spaces[1], chunk)
