"""Policies as ONNX files: onnxruntime's actions are the policy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions

pytest.importorskip("onnxruntime", reason="pip install 'oneloop-rl[onnx]'")
pytest.importorskip("onnxscript", reason="pip install 'oneloop-rl[onnx]'")
from rlinf.models.actor_critic.onnx_file import run_onnx, write_onnx

STATE = spaces.Box(-np.inf, np.inf, (5,), np.float32)
PICTURE = spaces.Dict({"image": spaces.Box(0, 255, (16, 16, 3), np.uint8), "state": STATE})
BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32))


@pytest.mark.parametrize(
    ("observed", "acted", "options"),
    [
        pytest.param(STATE, BOX, {"normalize_observations": True, "num_action_chunks": 2}, marks=pytest.mark.slow),
        pytest.param(
            PICTURE,
            BOX,
            {"distribution": "squashed_gaussian", "recurrent": "gru", "embedding_size": 8},
            marks=pytest.mark.slow,
        ),
        (STATE, spaces.Discrete(3, start=4), {}),
    ],
    ids=["normalised chunks", "pictures and memory", "categories"],
)
def test_onnxruntime_acts_like_the_policy(
    tmp_path: Path, observed: spaces.Space, acted: spaces.Space, options: dict[str, Any]
) -> None:
    torch.manual_seed(0)
    policy = ActorCritic(observed, acted, ActorCriticOptions(hidden_sizes=(16,), **options)).eval()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.5)
    if options.get("normalize_observations"):
        policy.encoder.observe({"observation": torch.randn(64, 5) * 4 + 2})
    assert write_onnx(policy, (observed, acted), tmp_path / "policy.onnx") < 1e-5
    # For another number of rows than it was written with, and after several steps of memory.
    draw = np.random.default_rng(0)
    state = np.zeros((7, policy.state_size), np.float32)
    for _ in range(3):
        leaves = {"observation.state": draw.normal(size=(7, 5)).astype(np.float32)}
        leaves["observation.image"] = draw.integers(0, 255, (7, 16, 16, 3), dtype=np.uint8)
        if observed is STATE:
            leaves = {"observation": leaves["observation.state"]}
        given = {name: torch.from_numpy(leaf) for name, leaf in leaves.items()}
        own, after = policy.step(given, torch.from_numpy(state), None)
        found = run_onnx(tmp_path / "policy.onnx", leaves, state if policy.state_size else None)
        assert np.abs(found[0] - policy.env_actions(own.numpy())).max() < 1e-5
        if policy.state_size:
            assert np.abs(found[1] - after.numpy()).max() < 1e-5
            state = found[1]
