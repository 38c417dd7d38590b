"""Policies of the small published checkpoints, their errors against the original's actions, and of altered ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import published_checkpoints as small
import torch
from gymnasium import spaces

from rlinf.data.spaces import empty_leaves, write_observation
from rlinf.models.loading import load_tokenizer
from rlinf.models.vla import VlaOptions
from rlinf.models.vla.build import build_published
from rlinf.models.vla.published.checkpoint import FlowCheckpoint

TOLERANCE = 1e-5
PARTS = (
    "crop",
    "padding",
    "colours",
    "camera order",
    "camera absent",
    "state statistics",
    "action statistics",
    "no action statistics",
    "gripper sign",
    "chunk",
    "steps",
    "instruction",
    "prompt",
)
"""Conventions, of which another one must break the parity."""


def space_of(family: str) -> tuple[spaces.Dict, spaces.Box]:
    state, action = small.NUMBERS[family]
    observation = {
        "front": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "wrist": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "state": spaces.Box(-np.inf, np.inf, (state,), np.float32),
        "task": spaces.Text(64),
    }
    return spaces.Dict(observation), spaces.Box(-np.inf, np.inf, (action,), np.float32)


def options_of(checkpoint: Any, chunk: int, changed: dict[str, Any]) -> VlaOptions:
    """Options of a policy that acts as the checkpoint does, but for what is ``changed``."""
    given = {"cameras": {}, "flip": [], "train": "all"} | {
        name: changed.pop(name) for name in ("cameras", "flip", "train") if name in changed
    }
    return VlaOptions(
        language={},
        vision=None,
        published={"checkpoint": asdict(checkpoint), **given},
        **{"num_action_chunks": chunk, "logprob_type": "action_level", **changed},
    )


def build(family: str, folder: Path, **changed: Any) -> Any:
    checkpoint = changed.pop("checkpoint", None) or FlowCheckpoint.read(str(folder))
    options = options_of(checkpoint, int(checkpoint.config["chunk_size"]), changed)
    both = space_of(family)
    return build_published(*both, options, load_tokenizer(str(checkpoint.tokenizer)), checkpoint).eval()


def leaves_of(family: str, change: Callable[[dict[str, Any]], None] | None = None) -> dict[str, torch.Tensor]:
    space = space_of(family)[0]
    leaves = empty_leaves(space, (len(small.TASKS),))
    for row in range(len(small.TASKS)):
        seen = small.observation(family, row)
        if change is not None:
            change(seen)
        write_observation(leaves, row, seen)
    return {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}


def acted(policy: Any, leaves: dict[str, torch.Tensor]) -> np.ndarray:
    """Actions [rows, chunk, numbers], beginning with the noise of the golden files."""
    horizon, width = policy.head.horizon, policy.head.width
    noise = np.stack([small.noise(horizon, width, row) for row in range(len(small.TASKS))])
    with torch.no_grad():
        prefix, _ = policy.read(leaves)
        chains = policy.head.followed(prefix, torch.from_numpy(noise).flatten(1))
    return np.asarray(policy.env_actions(chains.numpy()))


def error(family: str, policy: Any, leaves: dict[str, torch.Tensor] | None = None) -> float:
    golden = json.loads((small.GOLDEN / f"{family}.json").read_text())
    wanted = np.array(golden["actions"])
    made = acted(policy, leaves_of(family) if leaves is None else leaves)
    return float(np.abs(made - wanted[:, : made.shape[1]]).max())


def altered(folder: Path, **changed: Any) -> FlowCheckpoint:
    """The checkpoint with other entries in its `config.json`."""
    checkpoint = FlowCheckpoint.read(str(folder))
    return replace(checkpoint, config={**checkpoint.config, **changed})


def other_modes(family: str, **modes: str) -> dict[str, str]:
    usual = {"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"}
    if family == "pi05":
        usual |= {"STATE": "QUANTILES", "ACTION": "QUANTILES"}
    return usual | modes


def recoloured(seen: dict[str, Any]) -> None:
    seen["wrist"] = np.ascontiguousarray(seen["wrist"][..., ::-1])


def cropped(seen: dict[str, Any]) -> None:
    """The middle of the picture, as large as before."""
    rows, columns = np.linspace(2, 37, 40).astype(int), np.linspace(2, 45, 48).astype(int)
    seen["front"] = np.ascontiguousarray(seen["front"][rows][:, columns])


def shorter(seen: dict[str, Any]) -> None:
    seen["task"] = seen["task"][:-1]


def later_actions(policy: Any, chains: np.ndarray) -> np.ndarray:
    """A chunk that begins one action later."""
    head = policy.head
    ends = chains[:, -head.chain.numbers :].reshape(len(chains), head.horizon, head.width)
    return np.asarray(head._bounds.to_env(ends[:, 1:, : head.per_action]))


def error_of_flip(family: str, part: str, folder: Path) -> float:
    """Error of a policy in which one convention is another one."""
    seen = {"crop": cropped, "colours": recoloured, "instruction": shorter}.get(part)
    front, wrist = "observation.images.front", "observation.images.wrist"
    given: dict[str, Any] = {
        "camera order": {"cameras": {front: "wrist", wrist: "front"}},
        "camera absent": {"cameras": {wrist: "none"}},
        "gripper sign": {"flip": [small.NUMBERS[family][1] - 1]},
        "steps": {"flow_steps": 5},
    }.get(part, {})
    modes = {
        "state statistics": {"STATE": "MIN_MAX"},
        "action statistics": {"ACTION": "MIN_MAX"},
        "no action statistics": {"ACTION": "IDENTITY"},
    }.get(part)
    if modes is not None:
        given["checkpoint"] = altered(folder, normalization_mapping=other_modes(family, **modes))
    policy = build(family, folder, **given)
    if part == "prompt":
        plain = policy.instructions.tokenizer
        policy.instructions.tokenizer = lambda text: plain(text.replace("\n", ""))
    if part == "padding":
        policy._alignment = {"corner": "centre", "centre": "corner"}[policy._alignment]
    if part == "chunk":
        policy.head.chunk = policy.head._bounds._chunk = 4
        policy.head.to_env = lambda chains: later_actions(policy, chains)
    return error(family, policy, leaves_of(family, seen))
