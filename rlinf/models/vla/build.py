"""A vision-language-action policy from towers with weights or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gymnasium import spaces

from rlinf.granularity import Levels
from rlinf.models.loading import PolicyError
from rlinf.models.vla.backbones import language_config, load_tower, pixel_statistics, vision_config
from rlinf.models.vla.observation import sort_leaves
from rlinf.models.vla.options import VlaOptions
from rlinf.models.vla.policy import VlaPolicy


@dataclass(frozen=True)
class VlaSpec:
    """Where the towers come from; the other fields mean what they mean in `VlaOptions`."""

    language_path: str | None = None
    language: Mapping[str, Any] = field(default_factory=dict)
    """An architecture, read without ``language_path``; empty takes a small one."""
    vision_path: str | None = None
    vision: Mapping[str, Any] = field(default_factory=dict)
    image_mean: Sequence[float] | None = None
    image_std: Sequence[float] | None = None
    action_bins: int = 32
    num_action_chunks: int = 1
    temperature: float = 1.0
    task: str | None = None
    max_instruction_tokens: int = 32
    value_head: bool = False
    freeze_vision: bool = False
    freeze_language: bool = False
    normalize_observations: bool = False
    dtype: str = "float32"
    levels: Levels = field(default_factory=Levels)


def build_vla(observation_space: spaces.Space, action_space: spaces.Space, spec: VlaSpec, tokenizer: Any) -> VlaPolicy:
    """New projections and heads around the towers; what is not loaded is drawn from torch's own generator."""
    cameras = sort_leaves(observation_space).images
    language = language_config(spec.language_path, spec.language, tokenizer)
    if len(tokenizer) > language.vocab_size:
        raise PolicyError(
            f"the tokenizer knows {len(tokenizer)} tokens and the language tower {language.vocab_size}: "
            "set policy.tokenizer.path to the tower's own"
        )
    vision = None
    if cameras:
        sides = {max(space.shape) for space in cameras.values()}
        vision = vision_config(spec.vision_path, spec.vision, max(sides))
    mean, std = pixel_statistics(spec.vision_path)
    options = VlaOptions(
        language=language.to_dict(),
        vision=None if vision is None else vision.to_dict(),
        image_mean=mean if spec.image_mean is None else tuple(spec.image_mean),
        image_std=std if spec.image_std is None else tuple(spec.image_std),
        action_bins=spec.action_bins,
        num_action_chunks=spec.num_action_chunks,
        temperature=spec.temperature,
        task=spec.task,
        max_instruction_tokens=spec.max_instruction_tokens,
        value_head=spec.value_head,
        freeze_vision=spec.freeze_vision,
        freeze_language=spec.freeze_language,
        normalize_observations=spec.normalize_observations,
        dtype=spec.dtype,
        **vars(spec.levels),
    )
    towers = (("language", spec.language_path, language), ("vision", spec.vision_path, vision))
    loaded = {
        name: load_tower(path, config) for name, path, config in towers if path is not None and config is not None
    }
    return VlaPolicy(observation_space, action_space, options, tokenizer, **loaded)
