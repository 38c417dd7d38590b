"""A vision-language-action policy from towers with weights or without."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gymnasium import spaces

from rlinf.models.loading import PolicyError
from rlinf.models.vla.backbones import language_config, load_tower, vision_config
from rlinf.models.vla.observation import sort_leaves
from rlinf.models.vla.options import VlaOptions
from rlinf.models.vla.policy import VlaPolicy


def build_vla(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    options: VlaOptions,
    tokenizer: Any,
    *,
    language_path: str | None = None,
    vision_path: str | None = None,
) -> VlaPolicy:
    """New projections and heads around the towers; what is not loaded is drawn from torch's own generator.

    A tower without a folder has the architecture that ``options`` name for it, a small one where that is empty.
    """
    cameras = sort_leaves(observation_space).images
    language = language_config(language_path, options.language, tokenizer)
    if len(tokenizer) > language.vocab_size:
        raise PolicyError(
            f"the tokenizer knows {len(tokenizer)} tokens and the language tower {language.vocab_size}: "
            "set policy.tokenizer.path to the tower's own"
        )
    vision = None
    if cameras:
        sides = {max(space.shape) for space in cameras.values()}
        vision = vision_config(vision_path, options.vision or {}, max(sides))
    whole = replace(options, language=language.to_dict(), vision=None if vision is None else vision.to_dict())
    towers = (("language", language_path, language), ("vision", vision_path, vision))
    loaded = {
        name: load_tower(path, config) for name, path, config in towers if path is not None and config is not None
    }
    return VlaPolicy(observation_space, action_space, whole, tokenizer, **loaded)
