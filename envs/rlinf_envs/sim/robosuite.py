"""robosuite 1.5: manipulation tasks on MuJoCo whose starts a seed fixes exactly.

Its pins clash with ours (mink 0.0.5 wants numpy 1), so it lives in a virtual environment of its own: `env.isolation:
process`. The first step of a process compiles for half a minute; `env.step_timeout_s` must allow for it.
"""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.sim import SEEDS, MissingSimulatorError, Split, start_seed
from rlinf_envs.sim.camera import COLLISION_SHAPES, Camera, use_offscreen_gl
from rlinf_envs.spaces import FreeText
from rlinf_envs.typed import typed

# Of what is drawn when the model is built (the size of Lift's cube): the same in every environment, or equal seeds
# would not give equal starts.
_MODEL_SEED = 0


class RobosuiteEnv(gymnasium.Env):
    """One task, one arm.

    Observations are robot and object state, or with ``camera`` image, robot state, instruction.

    ``info["success"]`` is the benchmark's own criterion (`_check_success`). An episode is cut after
    ``max_steps``; success ends it only if ``end_on_success`` is set. ``dense`` selects the task's shaped reward.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    @typed
    def __init__(
        self,
        task: str = "Lift",
        robot: str = "Panda",
        split: Split = "train",
        max_steps: int = 100,
        camera: str | None = None,
        image_size: int = 64,
        shadows: bool = False,
        dense: bool = True,
        end_on_success: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if camera is not None or render_mode is not None:
            use_offscreen_gl()
        try:
            import robosuite
        except ImportError as error:
            raise MissingSimulatorError("robosuite", requirements="requirements/robosuite.txt") from error
        self.split, self.max_steps, self.end_on_success = split, max_steps, end_on_success
        self.render_mode = render_mode
        self.instruction = " ".join(re.findall(r"[A-Z][a-z]+", task)).lower()
        self._camera_name, self._image_size, self._shadows, self._steps = camera, image_size, shadows, 0
        self._camera: Camera | None = None
        self._env: Any = robosuite.make(
            task,
            robots=robot,
            has_renderer=False,
            has_offscreen_renderer=False,  # `Camera` draws, without shadows and multi-sampling
            use_camera_obs=False,
            reward_shaping=dense,
            ignore_done=True,
            hard_reset=False,  # a hard one compiles the model again: 2 s instead of 2 ms
            seed=_MODEL_SEED,
        )
        low, high = self._env.action_spec
        self.action_space = spaces.Box(low.astype(np.float32), high.astype(np.float32))
        state = spaces.Box(-np.inf, np.inf, self._state(self._begin(0)).shape, np.float32)
        self.observation_space: spaces.Space = state
        if camera is not None:
            image = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
            self.observation_space = spaces.Dict({"image": image, "state": state, "instruction": FreeText(64)})

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin in the start state that the seed picks; without a seed, in the next of this env's own stream."""
        super().reset(seed=seed)
        chosen = int(self.np_random.integers(SEEDS)) if seed is None else seed
        return self._observation(self._begin(start_seed(chosen, self.split))), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, _, _ = self._env.step(np.asarray(action, dtype=np.float64))
        self._steps += 1
        success = bool(self._env._check_success())
        terminated = self.end_on_success and success
        truncated = self._steps >= self.max_steps and not terminated
        return self._observation(observation), float(reward), terminated, truncated, {"success": success}

    def render(self) -> np.ndarray:
        """Draw a frame of the `agentview` camera (or the one that is observed)."""
        return self._frame()

    def close(self) -> None:
        if self._camera is not None:
            self._camera.close()
            self._camera = None
        self._env.close()

    def _begin(self, seed: int) -> dict[str, np.ndarray]:
        """All of the task's randomness comes from one generator, which its sampler of placements holds too."""
        self._steps = 0
        self._env.rng = np.random.default_rng(seed)
        sampler = getattr(self._env, "placement_initializer", None)
        for part in (sampler, *getattr(sampler, "samplers", {}).values()):
            if part is not None:
                part.rng = self._env.rng
        return self._env.reset()

    def _observation(self, observation: dict[str, np.ndarray]) -> Any:
        if self._camera_name is None:
            return self._state(observation)
        return {"image": self._frame(), "state": self._state(observation), "instruction": self.instruction}

    def _state(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """[D] float32: the robot's own state, and without a camera the state of the objects."""
        names = [name for name in observation if name.endswith("proprio-state")]
        if self._camera_name is None:
            names.append("object-state")
        return np.concatenate([observation[name] for name in names]).astype(np.float32)

    def _frame(self) -> np.ndarray:
        sim = self._env.sim
        if self._camera is None:
            self._camera = Camera(
                sim.model._model,
                self._camera_name or "agentview",
                self._image_size,
                shadows=self._shadows,
                hidden_groups=(COLLISION_SHAPES,),
            )
        return self._camera.frame(sim.data._data)
