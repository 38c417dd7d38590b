"""Published checkpoints act as their original code does: golden actions of LeRobot 0.6, and what must not be otherwise.

`tests/support/published_original.py make` writes the golden files, with LeRobot.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import published_checkpoints as small
import pytest
import torch
from gymnasium import spaces

from rlinf.data.spaces import SpaceError, empty_leaves, write_observation
from rlinf.models.loading import PolicyError, load_tokenizer
from rlinf.models.vla import VlaOptions
from rlinf.models.vla.build import build_published, load_vla
from rlinf.models.vla.published.checkpoint import Checkpoint

TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(family: str) -> Path:
        if family not in made:
            made[family] = tmp_path_factory.mktemp(family)
            small.write_checkpoint(family, made[family])
        return made[family]

    return folder


def space_of(family: str) -> tuple[spaces.Dict, spaces.Box]:
    state, action = small.NUMBERS[family]
    observation = {
        "front": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "wrist": spaces.Box(0, 255, small.CAMERA, np.uint8),
        "state": spaces.Box(-np.inf, np.inf, (state,), np.float32),
        "task": spaces.Text(64),
    }
    return spaces.Dict(observation), spaces.Box(-np.inf, np.inf, (action,), np.float32)


def build(family: str, folder: Path, **changed: Any) -> Any:
    checkpoint = changed.pop("checkpoint", None) or Checkpoint.read(str(folder))
    chunk = int(checkpoint.config["chunk_size"])
    given = {"cameras": {}, "flip": [], "train": "all"} | {
        name: changed.pop(name) for name in ("cameras", "flip", "train") if name in changed
    }
    options = VlaOptions(
        language={},
        vision=None,
        published={"checkpoint": checkpoint.to_dict(), **given},
        **{"num_action_chunks": chunk, "logprob_type": "action_level", **changed},
    )
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


@pytest.mark.parametrize("family", small.FAMILIES)
def test_the_same_observation_gives_the_originals_action(family: str, folders: Callable[[str], Path]) -> None:
    assert error(family, build(family, folders(family))) <= TOLERANCE
