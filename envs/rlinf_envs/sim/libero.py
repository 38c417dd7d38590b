"""LIBERO: manipulation tasks given in language and seen by cameras, with the benchmark's own start states.

Its pins (robosuite 1.4, bddl) clash with ours, so it lives in a virtual environment of its own (`make
venvs/libero`, `env.isolation: process`), with its assets; nothing is fetched and no input is requested here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf_envs.sim import Split, start_number
from rlinf_envs.sim.camera import use_offscreen_gl
from rlinf_envs.sim.libero_expert import LiberoExpert
from rlinf_envs.sim.libero_files import LiberoFileError, import_libero, load_init_states
from rlinf_envs.sim.libero_goals import Goal, own_and_other_goal
from rlinf_envs.sim.libero_recorded import NUMBERS, mirrored, recorded_state
from rlinf_envs.sim.libero_scene import CAMERAS, LiberoScene
from rlinf_envs.sim.pace import Pace
from rlinf_envs.spaces import FreeText
from rlinf_envs.typed import typed

_EVALUATION_SHARE = 5
"""One in this many start states is for evaluation: the last ones, 10 of LIBERO's 50."""
_PICTURES = ("image", "wrist_image")
"""Of each camera in turn."""
_PROPRIOCEPTION = ("robot0_eef_pos", "robot0_eef_quat", "robot0_gripper_qpos")


class LiberoEnv(gymnasium.Env):
    """Task number ``task`` of a ``suite`` (`libero_spatial`, `_object`, `_goal`, `_10`, `_90`).

    Observations: image and wrist_image [H, W, 3] upright (the latter not with ``wrist: False``), state [9]
    (position, quaternion, gripper) and the instruction. The reward is 1 at success and 0 else;
    ``info["success"]`` is the benchmark's own criterion (its goal predicates). An episode begins with
    ``settle_steps`` at rest, while objects settle. ``shadows`` also has reflections and multi-sampling, which
    makes the pictures LIBERO's own.

    ``assets`` is the folder of LIBERO's assets, if they are neither in its package nor in its download folder.
    ``texture_size`` reduces textures to N pixels a side. With 256 ten tasks take 3 GB, each
    starts in half of the time, and a picture of 64 pixels differs by at most 2 of 255.
    ``init_states`` is one of start states other than its package's, with the same names
    (`SUITE/TASK.pruned_init`).

    ``recorded`` gives what published policies were trained with: pictures with left and right exchanged, and state [8]
    (position, rotation vector, gripper).

    ``other_goals`` is the share of episodes whose goal is the next thing of the task's file (:mod:`.libero_goals`),
    instead of its own; ``reset(options={"other_goal": True})`` selects it always.

    ``expert_speed`` is the share of the controller's reach that the demonstrator moves by in a step, and
    ``expert_haste`` the share of steps in which it takes all of it nevertheless.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}  # noqa: RUF012

    @typed
    def __init__(
        self,
        suite: str = "libero_spatial",
        task: int = 0,
        split: Split = "train",
        max_steps: int = 300,
        image_size: int = 128,
        settle_steps: int = 10,
        shadows: bool = False,
        wrist: bool = True,
        recorded: bool = False,
        assets: str | None = None,
        texture_size: int | None = None,
        init_states: str | None = None,
        end_on_success: bool = True,
        other_goals: float = 0.0,
        expert_speed: float = 1.0,
        expert_haste: float = 0.0,
        render_mode: str | None = None,
    ) -> None:
        self._pace = Pace(expert_speed, expert_haste)
        if not 0.0 <= other_goals <= 1.0:
            raise ValueError(f"other_goals must be from 0 to 1, got {other_goals}")
        if texture_size is not None and texture_size < 1:
            raise ValueError(f"texture_size must be at least 1, got {texture_size}")
        use_offscreen_gl()
        libero = import_libero(assets, texture_size)
        from libero.libero import benchmark

        suites = benchmark.get_benchmark_dict()
        if suite not in suites:
            raise ValueError(f"LIBERO has no suite {suite!r}; there are {', '.join(sorted(suites))}")
        tasks = suites[suite]()
        if not 0 <= task < tasks.get_num_tasks():
            raise ValueError(f"{suite} has tasks 0 to {tasks.get_num_tasks() - 1}, not {task}")
        chosen = tasks.get_task(task)
        file = Path(init_states or libero.get_libero_path("init_states")) / chosen.problem_folder
        file /= chosen.init_states_file
        self.states = load_init_states(file)
        training = len(self.states) - len(self.states) // _EVALUATION_SHARE
        self.starts = range(training) if split == "train" else range(training, len(self.states))
        self.max_steps, self.settle_steps, self.end_on_success = max_steps, settle_steps, end_on_success
        self.render_mode, self._recorded = render_mode, recorded
        self._cameras = CAMERAS if wrist else CAMERAS[:1]
        self._scene = LiberoScene(
            tasks.get_task_bddl_file_path(task), image_size, shadows=shadows, cameras=self._cameras
        )
        self._expert = LiberoExpert(self._scene.engine)
        self._goals = own_and_other_goal(self._scene.engine.parsed_problem, str(chosen.language))
        self._other_goals = other_goals
        if other_goals:
            self._other_goal()
        self.draws_observations = True
        """While it is false, pictures are black: they will not be used."""
        if self.states.shape[1] != self._scene.state_size:
            raise LiberoFileError(
                f"{file} has states of {self.states.shape[1]} numbers, and the scene of these assets has "
                f"{self._scene.state_size}: one is of another version, or of another task"
            )
        self._steps, self._seen = 0, True
        self._image = np.zeros((image_size, image_size, 3), np.uint8)
        self.action_space = spaces.Box(-1.0, 1.0, (7,), np.float32)
        image = spaces.Box(0, 255, (image_size, image_size, 3), np.uint8)
        self.observation_space = spaces.Dict(
            {
                **dict.fromkeys(_PICTURES[: len(self._cameras)], image),
                "state": spaces.Box(-np.inf, np.inf, (NUMBERS if recorded else 9,), np.float32),
                "instruction": FreeText(512),
            }
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin in the start state that ``options["reset_state_id"]`` names, else in one that the seed picks."""
        super().reset(seed=seed)
        start = self.starts[start_number(len(self.starts), options, self.np_random)]
        drawn = self._other_goals > 0.0 and self.np_random.random() < self._other_goals
        other = drawn or bool((options or {}).get("other_goal"))
        self._goal = self._other_goal() if other else self._goals[0]
        self._scene.engine.parsed_problem["goal_state"] = [list(predicate) for predicate in self._goal.predicates]
        observation = self._scene.begin(start, self.states[start], self.settle_steps)
        self._steps, self._seen, self.draws_observations = 0, True, True
        self._expert.begin()
        return self._observation(observation), {"other_goal": True} if other else {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._seen = self.draws_observations
        observation, success = self._scene.step(action, draw=self._seen)
        self._steps += 1
        terminated = self.end_on_success and success
        truncated = self._steps >= self.max_steps and not terminated
        return self._observation(observation), float(success), terminated, truncated, {"success": success}

    def render(self) -> np.ndarray:
        """Return the newest frame of `agentview`."""
        return self._image if self._seen else self._scene.picture()

    def expert_action(self) -> np.ndarray:
        """Return the scripted demonstrator's action now: float32 [7]. Raise NoScriptError if the task has no script."""
        return self._expert.action(self._pace.draw(self.np_random))

    def close(self) -> None:
        self._scene.close()

    def _other_goal(self) -> Goal:
        """Return the other goal. Raise ValueError if the scene has none."""
        own, other = self._goals
        if other is None:
            raise ValueError(f"no other goal for {own.instruction!r}: it must name one thing of several in the scene")
        return other

    def _observation(self, observation: dict[str, np.ndarray]) -> dict[str, Any]:
        pictures = [observation[f"{camera}_image"] for camera in self._cameras]
        self._image = pictures[0]
        parts = [observation[name] for name in _PROPRIOCEPTION]
        state = recorded_state(*parts) if self._recorded else np.concatenate(parts).astype(np.float32)
        if self._recorded:
            pictures = [mirrored(picture) for picture in pictures]
        seen = dict(zip(_PICTURES, pictures, strict=False))
        return {**seen, "state": state, "instruction": self._goal.instruction}
