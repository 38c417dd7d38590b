"""Run by LIBERO's interpreter, which has no pytest: an episode of ours, or of LIBERO's own, saved as arrays.

    python libero_engine.py {ours,two_envs,theirs} ASSETS INIT_STATES OUT.npz

All take the first start of the first task of `libero_spatial` and the same eight actions. `two_envs` has an environment
of another task and size made, stepped and closed in between. `theirs` uses none of our code but what finds the files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from rlinf_envs.sim.libero_files import import_libero, load_init_states

SIZE, SETTLE = 48, 10
SUITE = "libero_spatial"
ACTIONS = np.random.default_rng(0).uniform(-1, 1, (8, 7))
KEYS = ("image", "wrist_image", "state")


def ours(assets: str, init_states: str, *, two_envs: bool) -> list[dict[str, Any]]:
    env = gymnasium.make(
        "rlinf_envs:rlinf/Libero-v0",
        suite=SUITE,
        image_size=SIZE,
        settle_steps=SETTLE,
        shadows=True,
        assets=assets,
        init_states=init_states,
    )
    env.reset(seed=0)
    env.step(np.ones(7))  # an episode before, of which nothing may be left
    seen = [env.reset(seed=0)[0]]
    if two_envs:
        other = gymnasium.make("rlinf_envs:rlinf/Libero-v0", suite="libero_goal", image_size=80, assets=assets)
        other.reset(seed=0)
        other.step(ACTIONS[0])
    seen += [env.step(action)[0] for action in ACTIONS[:4]]
    if two_envs:
        other.close()
    seen += [env.step(action)[0] for action in ACTIONS[4:]]
    env.close()
    return seen


def theirs(assets: str, init_states: str) -> list[dict[str, Any]]:
    import_libero(assets)
    from libero.libero import benchmark
    from libero.libero.envs import OffScreenRenderEnv

    tasks = benchmark.get_benchmark_dict()[SUITE]()
    file = Path(init_states) / SUITE / tasks.get_task(0).init_states_file
    env = OffScreenRenderEnv(bddl_file_name=tasks.get_task_bddl_file_path(0), camera_heights=SIZE, camera_widths=SIZE)
    env.seed(0)
    env.reset()
    seen = [env.set_init_state(load_init_states(file)[0])]
    rest = [0.0] * 6 + [-1.0]
    seen = [env.step(action)[0] for action in [rest] * SETTLE + list(ACTIONS)][SETTLE - 1 :]
    env.close()
    state = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")
    return [
        {
            "image": observation["agentview_image"][::-1],
            "wrist_image": observation["robot0_eye_in_hand_image"][::-1],
            "state": np.concatenate([observation[name] for name in state]).astype(np.float32),
        }
        for observation in seen
    ]


if __name__ == "__main__":
    kind, assets, init_states, out = sys.argv[1:]
    episode = (
        theirs(assets, init_states) if kind == "theirs" else ours(assets, init_states, two_envs=kind == "two_envs")
    )
    np.savez(out, **{key: np.stack([observation[key] for observation in episode]) for key in KEYS})
