"""The options of a vision-language-action policy, besides the two spaces and a tokenizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rlinf.data.granularity import Level

Conditioning = Literal["none", "film"]
PatchInit = Literal["random", "position_independent"]
Stem = Literal["patches", "convolutions"]
ActionTokenKind = Literal["own", "vocabulary"]
Order = Literal["words_first", "picture_first"]


@dataclass(frozen=True)
class VlaOptions:
    """Written into the folder of an exported policy's weights: enough to build it again without any other folder."""

    language: Mapping[str, Any]
    """A whole transformers configuration as a mapping, `model_type` included."""
    vision: Mapping[str, Any] | None
    """Likewise; None where the environment has no images."""
    image_mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Of pixels in [0, 1], per channel: subtracted."""
    image_std: tuple[float, ...] = (0.5, 0.5, 0.5)
    """Per channel: divided by."""
    action_bins: int = 32
    """Values that each number of a continuous action can take, evenly from low to high."""
    action_tokens: ActionTokenKind = "own"
    """`vocabulary`: OpenVLA's 256 bins, which are the last ids of the language tower's vocabulary."""
    action_statistics: Mapping[str, Sequence[float]] | None = None
    """Quantiles of actions that `vocabulary` is of; None: the bounds of the action space."""
    cameras: tuple[str, ...] = ()
    """The images that are read, in their order; empty: all, in the order of the space."""
    center_crop: float = 1.0
    """Share of the area of each picture, in its middle, that is seen."""
    flow_steps: int = 0
    """Above 0: actions are not discretised but the end of a flow, whose steps these are."""
    flow_noise_level: float = 0.5
    """Of the noise that each step adds while collecting."""
    flow_hidden: int = 256
    """Width of the two hidden layers of the velocity."""
    flow_draws: int = 1
    """Random points at which imitation matches the flow of an action."""
    advantage: bool = False
    """A flow is conditioned on whether a decision was better than expected (the leaf `data.spaces.ADVANTAGE`)."""
    guidance: float = 1.0
    """How far it goes from the velocity without that indicator to the one with it, and beyond."""
    pi0: Mapping[str, Any] | None = None
    """A whole PI0 configuration as a mapping, for a policy over that model; `language` and `vision` are empty then."""
    published: Mapping[str, Any] | None = None
    """A published checkpoint but its weights (`published.checkpoint.FlowCheckpoint` or
    `published.groot_checkpoint.GrootCheckpoint`), with `cameras`, `flip`, `train`."""
    openvla: Mapping[str, Any] | None = None
    """An OpenVLA checkpoint but its weights (`published.openvla_checkpoint.OpenVlaCheckpoint`), with the other entries
    of `policy.vla.checkpoint` and `statistics_key`."""
    num_action_chunks: int = 1
    """Actions per decision (K)."""
    temperature: float = 1.0
    """Logits are divided by it, while acting and while evaluating."""
    task: str | None = None
    """The instruction where the environment gives none."""
    prompt: str | None = None
    """What the instruction is put into (`config.facts.prompted`)."""
    max_instruction_tokens: int = 64
    value_head: bool = False
    freeze_vision: bool = False
    freeze_language: bool = False
    normalize_observations: bool = False
    """State entries by running statistics; images always by `image_mean` and `image_std`."""
    reward_type: Level = "chunk_level"
    """What one value is of: a chunk, or each of its actions."""
    logprob_type: Level = "chunk_level"
    """What one log-probability is of."""
    entropy_type: Level = "chunk_level"
    conditioning: Conditioning = "none"
    """How the instruction reaches the vision tower; exports from before there was a choice do not have the key."""
    patch_init: PatchInit = "random"
    """How the patch embedding of a tower without weights starts."""
    stem: Stem = "patches"
    """What a tower without weights has before its layers."""
    order: Order = "words_first"
    """Of the language model's sequence."""
    dtype: str = "float32"
    """Of activations (autocast); weights and statistics stay float32."""
