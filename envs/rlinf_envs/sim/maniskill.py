"""ManiSkill 3 (SAPIEN physics on the CPU): manipulation tasks whose starts a seed fixes exactly.

The simulator opens a Vulkan device even for state observations. Without a GPU that is Mesa's lavapipe, 24.3 or newer.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.sim import SEEDS, MissingSimulatorError, Split, start_seed
from rlinf_envs.sim.camera import check_frame
from rlinf_envs.spaces import FreeText
from rlinf_envs.typed import typed


class NoVulkanError(RuntimeError):
    """ManiSkill cannot be made, most likely for want of a Vulkan device."""


class ManiSkillEnv(gymnasium.Env):
    """One task, one robot. Observations are the state, or with ``camera`` a Dict of image, robot state, instruction.

    ``info["success"]`` is the benchmark's own criterion (`evaluate` of the task). An episode is cut after
    ``max_steps``; success ends it only if ``end_on_success`` is set. ``reward_mode`` is ManiSkill's:
    `normalized_dense`, `dense`, `sparse`.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    @typed
    def __init__(
        self,
        task: str = "PushCube-v1",
        split: Split = "train",
        max_steps: int = 50,
        camera: str | None = None,
        image_size: int = 64,
        control_mode: str = "pd_ee_delta_pos",
        reward_mode: str = "normalized_dense",
        shadows: bool = False,
        end_on_success: bool = False,
        render_mode: str | None = None,
    ) -> None:
        try:
            import mani_skill.envs  # noqa: F401  (registers its tasks)
        except ImportError as error:
            raise MissingSimulatorError("ManiSkill", extra="maniskill") from error
        self.split, self.max_steps, self.end_on_success = split, max_steps, end_on_success
        self.render_mode = render_mode
        self.instruction = " ".join(re.findall(r"[A-Z][a-z]+|\d+", task.partition("-")[0])).lower()
        self._camera, self._checked, self._steps = camera, False, 0
        draws = camera is not None or render_mode is not None
        settings: dict[str, Any] = {"sensor_configs": {"width": image_size, "height": image_size}} if camera else {}
        try:
            made = gymnasium.make(
                task,
                obs_mode="rgb" if camera else "state",
                sim_backend="physx_cpu",
                render_backend="cpu" if draws else "none",
                control_mode=control_mode,
                reward_mode=reward_mode,
                enable_shadow=shadows,
                render_mode=render_mode,
                disable_env_checker=True,
                **settings,
            )
        except RuntimeError as error:
            raise NoVulkanError(
                f"ManiSkill could not make {task} ({error}). It needs a Vulkan device, for states too: without a GPU, "
                "install mesa-vulkan-drivers 24.3 or newer and libvulkan1; `rlinf doctor` shows what is installed"
            ) from error
        inner: Any = made.unwrapped
        self._env = inner
        self.action_space = spaces.Box(self._env.single_action_space.low, self._env.single_action_space.high)
        first, _ = self._env.reset(seed=start_seed(0, split))
        self.observation_space = self._space(first, image_size)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin in the start state that the seed picks; without a seed, in the next of this env's own stream."""
        super().reset(seed=seed)
        chosen = int(self.np_random.integers(SEEDS)) if seed is None else seed
        observation, _ = self._env.reset(seed=start_seed(chosen, self.split))
        self._steps = 0
        return self._observation(observation), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, _, _, info = self._env.step(np.asarray(action, dtype=np.float32))
        self._steps += 1
        success = bool(info["success"])
        terminated = self.end_on_success and success
        truncated = self._steps >= self.max_steps and not terminated
        return self._observation(observation), float(reward), terminated, truncated, {"success": success}

    def render(self) -> np.ndarray:
        """Draw a frame of the task's own render camera."""
        return self._env.render()[0].cpu().numpy().astype(np.uint8)

    def close(self) -> None:
        self._env.close()

    def _space(self, first: Any, image_size: int) -> spaces.Space:
        state = spaces.Box(-np.inf, np.inf, self._state(first).shape, np.float32)
        if self._camera is None:
            return state
        cameras = list(first["sensor_data"])
        if self._camera not in cameras:
            raise ValueError(f"this task has no camera {self._camera!r}; there are {', '.join(cameras)}")
        image = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        return spaces.Dict({"image": image, "state": state, "instruction": FreeText(64)})

    def _observation(self, observation: Any) -> Any:
        if self._camera is None:
            return self._state(observation)
        image = observation["sensor_data"][self._camera]["rgb"][0].cpu().numpy()
        if not self._checked:
            check_frame(image, self._camera, f"Vulkan (VK_DRIVER_FILES={os.environ.get('VK_DRIVER_FILES')!r})")
            self._checked = True
        return {"image": image, "state": self._state(observation), "instruction": self.instruction}

    def _state(self, observation: Any) -> np.ndarray:
        """[D] float32: the whole state, or with a camera the robot's own state."""
        if self._camera is None:
            return observation[0].cpu().numpy().astype(np.float32)
        return np.concatenate([leaf for part in ("agent", "extra") for leaf in _leaves(observation[part])])


def _leaves(part: Any) -> list[np.ndarray]:
    """List the entries of a nested mapping of tensors [1, ...], each as a vector of float32."""
    if isinstance(part, Mapping):
        return [leaf for entry in part.values() for leaf in _leaves(entry)]
    return [part[0].cpu().numpy().astype(np.float32).reshape(-1)]
