"""The options of an actor-critic, besides the two spaces. Field names are those of the `policy` section."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rlinf.data.granularity import Level

Activation = Literal["tanh", "relu", "silu", "gelu", "elu", "leaky_relu", "selu", "mish"]
Distribution = str
"""`auto`, `categorical`, `gaussian`, `squashed_gaussian`, `beta`, or `module:Class` of a head of one's own."""


@dataclass(frozen=True)
class ActorCriticOptions:
    hidden_sizes: tuple[int, ...] = (64, 64)
    """Hidden layers of the actor and of the critic, behind the encoders."""
    activation: Activation = "tanh"
    encoder: str = "auto"
    """`auto` takes a CNN for image leaves (uint8 of two dimensions at least), an MLP for others; `mlp`, `cnn`,
    or `module:Class` of one's own."""
    encoder_options: Mapping[str, object] = field(default_factory=dict)
    """Of an encoder of one's own."""
    distribution: Distribution = "auto"
    distribution_options: Mapping[str, object] = field(default_factory=dict)
    """Of a distribution of one's own."""
    init_log_std: float = 0.0
    use_sde: bool = False
    """The noise of normal actions depends on the state (`state_dependent`)."""
    sde_sample_freq: int = -1
    """Decisions that share that noise; -1: all of a rollout."""
    dueling: bool = False
    """Of a Q-network: value and advantages have a layer each."""
    exploration_noise: float = 0.1
    """Of a deterministic actor: standard deviation while collecting, of actions in [-1, 1]."""
    critic_layer_norm: bool = False
    """Of critics that judge actions: layers are normalised before their activation."""
    num_critics: int = 2
    """Of critics that judge actions."""
    num_quantiles: int = 25
    """Of a critic that gives a distribution of the return."""
    denoising_steps: int = 4
    """Of a flow policy that soft actor-critic trains: from noise to an action."""
    shared_critic: bool = False
    """One trunk for both heads. Recurrent policies always share it."""
    recurrent: Literal["none", "gru", "lstm"] = "none"
    embedding_size: int = 128
    """Width of image, text and recurrent features."""
    normalize_observations: bool = False
    action_mask: str | None = None
    """Illegal actions have probability 0: those that the leaf `data.spaces.ACTION_MASK` marks with 0."""
    num_action_chunks: int = 1
    """Actions per decision (K)."""
    reward_type: Level = "chunk_level"
    """What one value is of: a chunk, or each of its actions."""
    logprob_type: Level = "chunk_level"
    """What one log-probability is of."""
    entropy_type: Level = "chunk_level"
