"""Meta-World (50 table-top tasks of a Sawyer arm), with starts that a seed fixes exactly.

Each task comes with 50 start states. The first 40 are for training, the last 10 for evaluation (`split: eval`). The
package's own `reset(seed)` does not fix the start, so the state is chosen here.
"""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.sim import MissingSimulatorError, start_number
from rlinf_envs.sim.camera import Camera, use_offscreen_gl
from rlinf_envs.spaces import FreeText
from rlinf_envs.typed import typed

_TRAINING_STATES = 40
_GOAL = 36  # from this entry of the state on
_PICTURE_SIZE = 320
_TASK_SEED = 0  # of the 50 start states themselves; the same for everyone, always


class MetaWorldEnv(gymnasium.Env):
    """One task. Observations are the state [39], or with ``camera`` a Dict of image, robot state [4] and instruction.

    ``info["success"]`` is the benchmark's own criterion. An episode is cut after ``max_steps``; success ends it only
    if ``end_on_success`` is set. With ``reward_mode`` sparse the first success earns 1, and all other steps 0.
    It demonstrates with the package's own scripted policies.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 80}  # noqa: RUF012

    @typed
    def __init__(
        self,
        task: str = "reach-v3",
        split: Literal["train", "eval"] = "train",
        max_steps: int = 100,
        camera: str | None = None,
        image_size: int = 64,
        shadows: bool = False,
        reward_scale: float = 1.0,
        end_on_success: bool = False,
        reward_mode: Literal["dense", "sparse"] = "dense",
        render_mode: str | None = None,
    ) -> None:
        if camera is not None or render_mode is not None:
            use_offscreen_gl()
        try:
            import metaworld
        except ImportError as error:
            raise MissingSimulatorError("metaworld", extra="metaworld") from error
        if task not in metaworld.MT1.ENV_NAMES:
            raise ValueError(f"Meta-World has no task {task!r}; there are {', '.join(sorted(metaworld.MT1.ENV_NAMES))}")
        benchmark = metaworld.MT1(task, seed=_TASK_SEED)
        starts = benchmark.train_tasks
        self._starts = starts[:_TRAINING_STATES] if split == "train" else starts[_TRAINING_STATES:]
        self._env = benchmark.train_classes[task]()
        self._env.set_task(self._starts[0])
        self.instruction = task.removesuffix("-v3").replace("-", " ")
        self.max_steps, self.reward_scale, self.end_on_success = max_steps, reward_scale, end_on_success
        self.render_mode = render_mode
        self._sparse, self._succeeded = reward_mode == "sparse", False
        self._camera_name, self._image_size, self._shadows = camera, image_size, shadows
        self._camera: Camera | None = None
        self._picture_camera: Camera | None = None
        self._steps = 0
        self._task, self._state = task, np.zeros(0)
        self._expert: Any = None
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        shown: Any = self._env.observation_space
        low, high = (np.asarray(bound, np.float32) for bound in (shown.low, shown.high))
        # The goal is shown here, and the package's space declares it hidden, that is always 0.
        low[_GOAL:], high[_GOAL:] = -np.inf, np.inf
        state = spaces.Box(low, high, dtype=np.float32)
        self.observation_space: spaces.Space = state
        if camera is not None:
            self.observation_space = spaces.Dict(
                {
                    "image": spaces.Box(0, 255, (image_size, image_size, 3), np.uint8),
                    "state": spaces.Box(low[:4], high[:4], dtype=np.float32),
                    "instruction": FreeText(64),
                }
            )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin in the start state that ``options["reset_state_id"]`` names, else in one that the seed picks."""
        super().reset(seed=seed)
        self._env.set_task(self._starts[start_number(len(self._starts), options, self.np_random)])
        self._state, _ = self._env.reset()
        self._steps, self._succeeded = 0, False
        return self._observation(self._state), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        state, reward, _, _, info = self._env.step(np.asarray(action, dtype=np.float32))
        self._state = state
        self._steps += 1
        success = bool(info["success"])
        earned = float(success and not self._succeeded) if self._sparse else float(reward)
        self._succeeded = self._succeeded or success
        terminated = self.end_on_success and success
        truncated = self._steps >= self.max_steps and not terminated
        return self._observation(state), earned * self.reward_scale, terminated, truncated, {"success": success}

    def expert_action(self) -> np.ndarray:
        """Return the action of the package's scripted policy for the task now: float32 [4] in [-1, 1]."""
        if self._expert is None:
            from metaworld.policies import ENV_POLICY_MAP

            scripted: Any = ENV_POLICY_MAP[self._task]
            self._expert = scripted()
        return np.clip(self._expert.get_action(self._state), -1.0, 1.0).astype(np.float32)

    def render(self) -> np.ndarray:
        """Draw a picture for people: larger than the observation, and upright (the `corner2` camera hangs upside
        down)."""
        if self._picture_camera is None:
            self._picture_camera = Camera(self._env.model, "corner2", _PICTURE_SIZE)
        return self._picture_camera.frame(self._env.data)[::-1, ::-1]

    def close(self) -> None:
        for camera in (self._camera, self._picture_camera):
            if camera is not None:
                camera.close()
        self._camera = self._picture_camera = None
        self._env.close()

    def _observation(self, state: np.ndarray) -> Any:
        state = state.astype(np.float32)
        if self._camera_name is None:
            return state
        return {"image": self._frame(), "state": state[:4], "instruction": self.instruction}

    def _frame(self) -> np.ndarray:
        if self._camera is None:
            assert self._camera_name is not None
            self._camera = Camera(self._env.model, self._camera_name, self._image_size, shadows=self._shadows)
        return self._camera.frame(self._env.data)
