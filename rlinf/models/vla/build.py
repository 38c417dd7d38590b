"""A vision-language-action policy from towers with weights or without."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gymnasium import spaces

from rlinf.models.loading import PolicyError
from rlinf.models.vla.action_tokens import ActionTokens
from rlinf.models.vla.backbones import language_config, load_tower, vision_config
from rlinf.models.vla.deciding import VisionLanguageAction
from rlinf.models.vla.observation import sort_leaves
from rlinf.models.vla.options import VlaOptions
from rlinf.models.vla.pi0 import Pi0Policy, load_pi0
from rlinf.models.vla.policy import VlaPolicy
from rlinf.models.vla.published.checkpoint import FlowCheckpoint
from rlinf.models.vla.published.fitting import load_tensors
from rlinf.models.vla.published.groot_checkpoint import KEY as FLOW_KEY
from rlinf.models.vla.published.groot_checkpoint import GrootCheckpoint
from rlinf.models.vla.published.groot_policy import GrootPolicy
from rlinf.models.vla.published.openvla_checkpoint import KEY, OpenVlaCheckpoint
from rlinf.models.vla.published.openvla_policy import OpenVlaPolicy
from rlinf.models.vla.published.policy import PublishedPolicy
from rlinf.models.vla.vocabulary_actions import action_rows


def build_vla(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    options: VlaOptions,
    tokenizer: Any,
    *,
    language_path: str | None = None,
    vision_path: str | None = None,
) -> VlaPolicy:
    """Build new projections and heads around the towers; what is not loaded is drawn from torch's own generator.

    A tower without a folder has the architecture that ``options`` name for it, a small one if that is empty.
    """
    cameras = sort_leaves(observation_space, options.cameras).images
    language = language_config(language_path, options.language, tokenizer)
    if len(tokenizer) > language.vocab_size:
        raise PolicyError(
            f"the tokenizer has {len(tokenizer)} tokens and the language tower {language.vocab_size}: "
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
    policy = VlaPolicy(observation_space, action_space, whole, tokenizer, **loaded)
    if options.action_tokens == "vocabulary" and language_path is not None and isinstance(policy.head, ActionTokens):
        with torch.no_grad():
            policy.head.logits.weight.copy_(action_rows(language_path, policy.language, tokenizer))
    return policy


def build_pi0(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    options: VlaOptions,
    tokenizer: Any,
    *,
    path: str | None = None,
) -> Pi0Policy:
    """PI0 with the weights of ``path``, or with random ones of the architecture that ``options.pi0`` names."""
    model = None if path is None else load_pi0(path)
    written = options.pi0 if model is None else model.config.to_dict()
    return Pi0Policy(observation_space, action_space, replace(options, pi0=written), tokenizer, model=model)


def build_published(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    options: VlaOptions,
    tokenizer: Any,
    checkpoint: FlowCheckpoint | GrootCheckpoint,
) -> PublishedPolicy | GrootPolicy:
    """Build a published policy with the weights of its checkpoint; its steps are the checkpoint's if they are 0."""
    options = replace(options, flow_steps=options.flow_steps or checkpoint.steps)
    kind = GrootPolicy if isinstance(checkpoint, GrootCheckpoint) else PublishedPolicy
    policy = kind(observation_space, action_space, options, tokenizer)
    names, stored = policy.own_names(), policy.checkpoint.weights()
    load_tensors(
        policy.network,
        {own: stored[name] for name, own in names.items()},
        source=f"{FLOW_KEY}: {policy.checkpoint.folder}",
        names={own: name for name, own in names.items()},
    )
    return policy


def build_openvla(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    options: VlaOptions,
    tokenizer: Any,
    checkpoint: OpenVlaCheckpoint,
) -> OpenVlaPolicy:
    """Build an OpenVLA policy with the weights of its checkpoint."""
    policy = OpenVlaPolicy(observation_space, action_space, options, tokenizer)
    source = f"{KEY}: {checkpoint.folder}"
    load_tensors(policy.network, checkpoint.weights(), source=source)
    return policy


def load_vla(folder: str, **changed: Any) -> VisionLanguageAction:
    """Load the policy of an exported folder; ``changed`` as in `VisionLanguageAction.from_pretrained`."""
    written = json.loads((Path(folder) / "vla.json").read_text())
    kind: type[VisionLanguageAction] = VlaPolicy if written.get("pi0") is None else Pi0Policy
    if written.get("published") is not None:
        kind = GrootPolicy if "embodiment" in written["published"]["checkpoint"] else PublishedPolicy
    if written.get("openvla") is not None:
        kind = OpenVlaPolicy
    return kind.from_pretrained(folder, **changed)
