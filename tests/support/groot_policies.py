"""GR00T policies of small checkpoints, and how far their actions are from the original's, as they are and otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import groot_checkpoints as small
import numpy as np
import published_checkpoints
import torch
from gymnasium import spaces
from published_policies import options_of

from rlinf.data.spaces import empty_leaves, write_observation
from rlinf.models.loading import load_tokenizer
from rlinf.models.vla.build import build_published
from rlinf.models.vla.published.groot_checkpoint import GrootCheckpoint
from rlinf.models.vla.published.groot_lerobot import read_lerobot_groot

TOLERANCE = 1e-5
FRONT, WRIST = "observation.images.front", "observation.images.wrist"
PARTS = (
    "crop",
    "filter",
    "colours",
    "means of colours",
    "camera order",
    "camera absent",
    "frames",
    "state statistics",
    "state padding",
    "state that actions are relative to",
    "relative statistics",
    "outliers",
    "action statistics",
    "embodiment",
    "gripper sign",
    "chunk",
    "steps",
    "instruction",
    "capitals",
    "prompt",
    "words and pictures in turn",
    "layer of the backbone",
)
"""Conventions, of which another one must break the parity."""
_OF_RELATIVE = ("state that actions are relative to", "relative statistics")
_ELSEWHERE = {
    "groot": ("frames", *_OF_RELATIVE),
    "groot_areas": ("gripper sign", "words and pictures in turn", *_OF_RELATIVE),
    "groot_relative": ("frames", "gripper sign"),
    "groot_lerobot": ("frames", "gripper sign", *_OF_RELATIVE),
}


def parts_of(case: str) -> list[str]:
    """The conventions that a checkpoint has: those that it has not, another one has."""
    return [part for part in PARTS if part not in _ELSEWHERE[case]]


def space() -> tuple[spaces.Dict, spaces.Box]:
    observation = {
        "front": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "wrist": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "state": spaces.Box(-np.inf, np.inf, (small.STATE,), np.float32),
        "task": spaces.Text(64),
    }
    return spaces.Dict(observation), spaces.Box(-np.inf, np.inf, (small.ACTION,), np.float32)


def read(case: str, folder: Path) -> GrootCheckpoint:
    if small.CASES[case].lerobot:
        return read_lerobot_groot(str(folder), None)
    return GrootCheckpoint.read(str(folder), embodiment=small.CASES[case].embodiment)


def build(case: str, folder: Path, **changed: Any) -> Any:
    checkpoint = changed.pop("checkpoint", None) or read(case, folder)
    options = options_of(checkpoint, small.DECODED, changed)
    return build_published(*space(), options, load_tokenizer(checkpoint.tokenizer), checkpoint).eval()


def leaves_of(change: Callable[[dict[str, Any]], None] | None = None) -> dict[str, torch.Tensor]:
    leaves = empty_leaves(space()[0], (len(small.TASKS),))
    for row in range(len(small.TASKS)):
        seen = small.observation(row)
        if change is not None:
            change(seen)
        write_observation(leaves, row, seen)
    return {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}


def acted(policy: Any, leaves: dict[str, torch.Tensor] | None = None) -> np.ndarray:
    """Actions [rows, chunk, numbers], beginning with the noise of the golden files."""
    noise = np.stack([published_checkpoints.noise(small.HORIZON, small.WIDTH, row) for row in range(len(small.TASKS))])
    with torch.no_grad():
        context, _ = policy.read(leaves_of() if leaves is None else leaves)
        chains = policy.head.followed(context, torch.from_numpy(noise).flatten(1))
    return np.asarray(policy.env_actions(chains.numpy()))


def error(case: str, policy: Any, leaves: dict[str, torch.Tensor] | None = None) -> float:
    wanted = np.array(json.loads((small.GOLDEN / f"{case}.json").read_text())["actions"])
    made = acted(policy, leaves)
    return float(np.abs(made - wanted[:, : made.shape[1]]).max())


def recoloured(seen: dict[str, Any]) -> None:
    seen["wrist"] = np.ascontiguousarray(seen["wrist"][..., ::-1])


def shorter(seen: dict[str, Any]) -> None:
    seen["task"] = seen["task"][:-2]


def error_of_flip(case: str, part: str, folder: Path) -> float:
    """Error of a policy in which one convention is another one."""
    known = read(case, folder)
    given, processor, config = small.CASES[case], dict(known.processor), dict(known.config)
    options: dict[str, Any] = {
        "camera order": {"cameras": {FRONT: "wrist", WRIST: "front"}},
        "camera absent": {"cameras": {FRONT: "none"}},
        "steps": {"flow_steps": 5},
    }.get(part, {})
    processor |= {
        "crop": {"image_crop_size": None, "crop_fraction": 0.7},
        "filter": {"use_albumentations": not given.areas},
        "outliers": {"clip_outliers": not given.cut},
        "capitals": {"formalize_language": not given.plain},
    }.get(part, {})
    config |= {
        "words and pictures in turn": {"attend_text_every_n_blocks": 1},
        "layer of the backbone": {"select_layer": 2},
    }.get(part, {})
    modalities, preprocessor, number = processor["modality_configs"], dict(known.preprocessor), known.embodiment_id
    if part == "frames":
        video = {**known.modality("video"), "delta_indices": [0]}
        modalities = {known.embodiment: {**modalities[known.embodiment], "video": video}}
    if part == "means of colours":
        preprocessor["image_mean"] = preprocessor["image_mean"][::-1]
    if part == "embodiment":
        number = 7
    checkpoint = replace(
        known,
        config=config,
        processor={**processor, "modality_configs": modalities},
        statistics=_statistics(known, part),
        preprocessor=preprocessor,
        embodiment_id=number,
        shapes=_shapes(known, int(config["select_layer"])),
    )
    policy = build(case, folder, checkpoint=checkpoint, **options)
    _change(policy, part)
    return error(case, policy, leaves_of({"colours": recoloured, "instruction": shorter}.get(part)))


def _statistics(known: GrootCheckpoint, part: str) -> dict[str, Any]:
    """The statistics, of which one part takes the other kind of ends."""
    result = json.loads(json.dumps(known.statistics))
    if part == "relative statistics":
        arm = result["relative_action"]["arm"]
        arm["min"], arm["max"] = arm["min"][0], arm["max"][0]  # the first action's for all
        return dict(result)
    for group in result[part.split()[0]].values() if part.endswith("statistics") else ():
        group["min"], group["q01"] = group["q01"], group["min"]
        group["max"], group["q99"] = group["q99"], group["max"]
    return dict(result)


def _shapes(known: GrootCheckpoint, layers: int) -> dict[str, list[int]]:
    """The tensors of a backbone with so few layers."""
    beyond = tuple(f"language_model.layers.{number}." for number in range(layers, int(known.config["select_layer"])))
    return {name: shape for name, shape in known.shapes.items() if not any(part in name for part in beyond)}


def _change(policy: Any, part: str) -> None:
    """Change what no file of a checkpoint holds."""
    if part == "gripper sign":
        plain = policy.head.to_env
        policy.head.to_env = lambda chains: plain(chains) * np.array([1.0] * (small.ACTION - 1) + [-1.0])
    if part == "prompt":
        template = policy.instructions.tokenizer.chat_template
        policy.instructions.tokenizer.chat_template = template.replace("<|im_end|>", "")
    if part == "state padding":
        scaled = policy._state_scaling.scaled
        policy._state_scaling.scaled = lambda state: torch.nn.functional.pad(scaled(state), (1, 0))
    if part == "state that actions are relative to":
        policy._reference = lambda state: torch.zeros(len(state), small.ACTION)
    if part == "chunk":
        head = policy.head

        def later(chains: np.ndarray) -> np.ndarray:
            end = head.noise_size
            ends = chains[:, end - head.chain.numbers : end].reshape(len(chains), head.horizon, head.width)
            reference = chains[:, None, end:] if chains.shape[1] > end else 0.0
            return np.asarray(head._bounds.to_env(ends[:, 1 : small.DECODED + 1, : head.per_action], reference))

        policy.head.to_env = later
