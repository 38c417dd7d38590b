"""An environment whose actions are the noise of a frozen flow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.data.spaces import empty_leaves, write_observation
from rlinf.models.tokenizer import train_tokenizer
from rlinf.models.vla import VlaOptions
from rlinf.models.vla.build import build_vla, load_vla
from rlinf.rollouts.steering import SteerByNoise

SPACE = spaces.Dict({"state": spaces.Box(-1.0, 1.0, (2,), np.float32), "task": spaces.Text(16)})


class Counting(gymnasium.Env):
    """Ends after five steps; keeps its actions; each step is worth 1."""

    observation_space, action_space = SPACE, spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self) -> None:
        self.taken: list[np.ndarray] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.taken = []
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.taken.append(np.asarray(action))
        return self._seen(), 1.0, len(self.taken) == 5, False, {"success": len(self.taken) == 5}

    def _seen(self) -> dict[str, Any]:
        return {"state": np.full(2, 0.1 * len(self.taken), np.float32), "task": "go"}


@pytest.fixture
def folder(tmp_path: Path) -> str:
    torch.manual_seed(0)
    options = VlaOptions(language={}, vision=None, flow_steps=3, num_action_chunks=3, max_instruction_tokens=8)
    tokenizer = train_tokenizer(["go"], vocab_size=280, split_words=True)
    build_vla(SPACE, Counting.action_space, options, tokenizer).save_pretrained(str(tmp_path))
    return str(tmp_path)


def test_a_step_is_the_chunk_that_the_noise_leads_to(folder: str) -> None:
    env = SteerByNoise(Counting(), policy=folder, bound=2.0, repeat=False)
    assert env.action_space.shape == (6,)
    code, _ = env.reset(seed=0)
    assert code in env.observation_space
    noise = np.linspace(-1, 1, 6).astype(np.float32)
    after, reward, ended, cut, info = env.step(noise)
    policy: Any = load_vla(folder)
    leaves = empty_leaves(SPACE, (1,))
    write_observation(leaves, 0, {"state": np.zeros(2, np.float32), "task": "go"})
    with torch.no_grad():
        context, _ = policy.read({name: torch.from_numpy(leaf) for name, leaf in leaves.items()})
        wanted = policy.env_actions(policy.head.followed(context, torch.from_numpy(2.0 * noise)[None]).numpy())[0]
    assert np.allclose(env.unwrapped.taken, wanted, atol=1e-6)  # type: ignore[attr-defined]
    assert (reward, ended, cut) == (3.0, False, False)
    assert not np.allclose(code, after)
    _, reward, ended, _, info = env.step(noise)
    assert (reward, ended, info["success"]) == (2.0, True, True)


def test_other_noise_is_another_action_and_nothing_is_trained(folder: str) -> None:
    env = SteerByNoise(Counting(), policy=folder)
    assert env.action_space.shape == (2,)
    taken = []
    for sign in (-1.0, 1.0):
        env.reset(seed=0)
        env.step(np.full(2, sign, np.float32))
        taken.append(np.stack(env.unwrapped.taken))  # type: ignore[attr-defined]
    assert np.abs(taken[0] - taken[1]).max() > 0.01
    assert not any(weight.requires_grad for weight in env.policy.parameters())


def test_a_policy_without_a_flow_is_refused(tmp_path: Path) -> None:
    options = VlaOptions(language={}, vision=None, max_instruction_tokens=8)
    tokenizer = train_tokenizer(["go"], vocab_size=280, split_words=True)
    build_vla(SPACE, Counting.action_space, options, tokenizer).save_pretrained(str(tmp_path))
    with pytest.raises(ValueError, match="needs a flow policy"):
        SteerByNoise(Counting(), policy=str(tmp_path))
