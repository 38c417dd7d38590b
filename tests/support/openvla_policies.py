"""Policies of the small OpenVLA checkpoints, their errors against the original's actions, and of altered ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import openvla_checkpoints as small
import torch
from gymnasium import spaces

from rlinf.data.spaces import empty_leaves, write_observation
from rlinf.models.loading import load_tokenizer
from rlinf.models.vla import VlaOptions
from rlinf.models.vla.build import build_openvla
from rlinf.models.vla.published.openvla_checkpoint import OpenVlaCheckpoint
from rlinf.models.vla.published.openvla_policy import PROMPT

TOLERANCE = 1e-5
CONTINUOUS_TOLERANCE = 2e-4
"""Of heads of numbers: here float32 differs by 7e-5 between two kernels, and the golden by 1e-4 from float64."""
FAR = 1e-3
"""An action under another convention differs by more."""
SPACE = spaces.Dict(
    {
        "front": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "wrist": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "state": spaces.Box(-np.inf, np.inf, (small.STATE,), np.float32),
        "task": spaces.Text(64),
    }
)
ACTIONS = spaces.Box(-np.inf, np.inf, (small.ACTION,), np.float32)
PARTS = (
    "crop",
    "pictures",
    "colours",
    "tower order",
    "action statistics",
    "data set",
    "mask",
    "gripper sign",
    "instruction",
    "capitals",
    "prompt",
    "space at its end",
)
"""Conventions, of which another one must break the parity."""
PARTS_OF_CHUNKS = ("chunk", "horizon", "attention")
PARTS_OF_NUMBERS = ("camera order", "camera absent", "state statistics")
PARTS_OF_DIFFUSION = ("steps", "trained steps", "cut numbers", "position of the step")


def parts_of(case: str) -> list[str]:
    """Conventions that a case has."""
    chosen = small.CASES[case]
    parts = [*PARTS, *(PARTS_OF_CHUNKS if chosen.parallel else ()), *(PARTS_OF_NUMBERS if chosen.continuous else ())]
    parts += PARTS_OF_DIFFUSION if chosen.diffusion else ()
    left_out = () if chosen.gripper else ("gripper sign",)
    # Noise is given for a chunk of this length, and diffusion has attention both ways alone.
    left_out = ("horizon", "attention") if chosen.diffusion else left_out
    return [part for part in parts if part not in left_out]


def build(case: str, folder: Path, **changed: Any) -> Any:
    """Build the policy of a case; ``changed``: options, entries of the checkpoint's section, or another checkpoint."""
    chosen = small.CASES[case]
    checkpoint = changed.pop("checkpoint", None) or OpenVlaCheckpoint.read(str(folder))
    given: dict[str, Any] = {
        "decoding": "parallel" if chosen.parallel else "sequential",
        "horizon": small.HORIZON,
        "statistics": "quantiles",
        "pictures": "dataset" if chosen.dataset else "plain",
        "gripper": "opens_at_minus_one" if chosen.gripper else "as_trained",
        "noise_level": None,
        "diffusion_steps": small.STEPS,
        "trained_diffusion_steps": small.TRAINED_STEPS,
        "statistics_key": small.KEY,
    }
    given |= {name: changed.pop(name) for name in tuple(changed) if name in given}
    options: dict[str, Any] = {
        "cameras": chosen.cameras,
        "center_crop": 0.9 if chosen.crop else 1.0,
        "num_action_chunks": small.HORIZON if chosen.parallel else 1,
        "logprob_type": "token_level",
        "entropy_type": "token_level",
        **changed,
    }
    made = VlaOptions(language={}, vision=None, openvla={"checkpoint": asdict(checkpoint), **given}, **options)
    return build_openvla(SPACE, ACTIONS, made, load_tokenizer(str(folder)), checkpoint).eval()


def leaves_of(change: Callable[[dict[str, Any]], None] | None = None) -> dict[str, torch.Tensor]:
    """Observations of all rows."""
    leaves = empty_leaves(SPACE, (len(small.TASKS),))
    for row in range(len(small.TASKS)):
        seen = small.observation(row)
        if change is not None:
            change(seen)
        write_observation(leaves, row, seen)
    return {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}


def acted(policy: Any, leaves: dict[str, torch.Tensor] | None = None) -> np.ndarray:
    """Greedy actions [rows, chunk, numbers]; diffusion begins with the noise of the golden file."""
    leaves = leaves_of() if leaves is None else leaves
    with torch.no_grad():
        if policy.checkpoint.diffusion:
            noise = np.stack([small.noise(row) for row in range(len(small.TASKS))])
            actions = policy.head.followed(policy.read(leaves)[0], torch.from_numpy(noise).flatten(1))
        else:
            actions, _ = policy.step(leaves, torch.zeros(len(small.TASKS), 0), None)
    made = np.asarray(policy.env_actions(actions.numpy()))
    return made.reshape(len(made), -1, small.ACTION)


def golden(case: str) -> dict[str, Any]:
    """What the original code did."""
    found: dict[str, Any] = json.loads((small.GOLDEN / "openvla.json").read_text())[case]
    return found


def tolerance(case: str) -> float:
    """Give the largest difference of an action to the original's, which other processors and kernels cause."""
    return CONTINUOUS_TOLERANCE if small.CASES[case].continuous else TOLERANCE


def error(case: str, policy: Any, leaves: dict[str, torch.Tensor] | None = None) -> float:
    """Largest difference of an action to the original's."""
    made = acted(policy, leaves)
    return float(np.abs(made - np.array(golden(case)["actions"])[:, : made.shape[1]]).max())


def altered(folder: Path, change: Callable[[dict[str, Any]], None]) -> OpenVlaCheckpoint:
    """Return the checkpoint with other statistics."""
    checkpoint = OpenVlaCheckpoint.read(str(folder))
    statistics = json.loads(json.dumps(checkpoint.statistics))
    change(statistics[small.KEY])
    return replace(checkpoint, statistics=statistics)


def _all_masked(statistics: dict[str, Any]) -> None:
    statistics["action"]["mask"] = [True] * small.ACTION


def _other_states(statistics: dict[str, Any]) -> None:
    statistics["proprio"]["q01"] = statistics["proprio"]["min"]


def _recoloured(seen: dict[str, Any]) -> None:
    seen["front"] = np.ascontiguousarray(seen["front"][..., ::-1])


def _shorter(seen: dict[str, Any]) -> None:
    seen["task"] = seen["task"][:-1]


def _timed_first(network: Any) -> None:
    """Put the embedding of a step of diffusion behind the first word."""
    whole = network.noise
    network.noise = lambda embedded, *given: whole(replace(embedded, words=1), *given)


def error_of_flip(case: str, part: str, folder: Path) -> float:
    """Error of a policy in which one convention is another one."""
    chosen = small.CASES[case]
    seen = {"colours": _recoloured, "instruction": _shorter}.get(part)
    given: dict[str, Any] = {
        "crop": {"center_crop": 1.0 if chosen.crop else 0.9},
        "pictures": {"pictures": "plain" if chosen.dataset else "dataset"},
        "action statistics": {"statistics": "bounds"},
        "data set": {"statistics_key": "bridge_orig"},
        "gripper sign": {"gripper": "opens_at_one"},
        "prompt": {"prompt": PROMPT.replace("robot", "arm")},
        "horizon": {"horizon": 2 * small.HORIZON},
        "attention": {"decoding": "parallel_causal"},
        "camera order": {"cameras": chosen.cameras[::-1]},
        "camera absent": {"cameras": chosen.cameras[:1]},
        "steps": {"diffusion_steps": 5},
        "trained steps": {"trained_diffusion_steps": 49},
    }.get(part, {})
    change = {"mask": _all_masked, "state statistics": _other_states}.get(part)
    if change is not None:
        given["checkpoint"] = altered(folder, change)
    policy = build(case, folder, **given)
    if part == "tower order":
        pictures = policy.pictures
        policy.pictures = lambda images: pictures(images)[::-1]
    elif part == "capitals":
        plain = policy.instructions.tokenizer
        policy.instructions._known = {
            text: [*plain(PROMPT.replace("{instruction}", text))["input_ids"], 29_871] for text in small.TASKS
        }
    elif part == "space at its end":
        policy.instructions._known = {text: policy.instructions._ids(text)[:-1] for text in small.TASKS}
    elif part == "chunk":
        whole = policy.head.to_env
        policy.head.to_env = lambda actions: whole(actions)[:, ::-1]
    elif part == "cut numbers":
        policy.head._largest = 2.0
    elif part == "position of the step":
        _timed_first(policy.network)
    return error(case, policy, leaves_of(seen))
