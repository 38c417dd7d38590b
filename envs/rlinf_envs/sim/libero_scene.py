"""LIBERO's engine on one task, begun from a start state that fixes all of the scene, and drawn by us."""

from __future__ import annotations

import pdb
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from rlinf_envs.sim.arm_control import ArmControl
from rlinf_envs.sim.camera import COLLISION_SHAPES, Camera, SharedCameras
from rlinf_envs.sim.forward_stages import ForwardStages

Observation = dict[str, np.ndarray]
Made = TypeVar("Made")

CAMERAS = ("agentview", "robot0_eye_in_hand")
_REST = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
"""No motion, the gripper open."""
_TRIES = 100
_SHARED = SharedCameras()


class LiberoScene:
    """A task's model, its physics, its goal and its two cameras (``CAMERAS``), uint8 [size, size, 3], upright.

    Two things of LIBERO's are not used. Its renderer draws with the OpenGL context that was made last in this process,
    be it another env's: `Camera` draws, when LIBERO would. Its `reset` has a `continue` in a `finally`, so that no
    exception gets out, not even one that breaks off a hang; and it compiles the model again.
    """

    def __init__(self, bddl_file: str, image_size: int, *, shadows: bool, cameras: Sequence[str] = CAMERAS) -> None:
        from libero.libero.envs.env_wrapper import ControlEnv

        self._control: Any = _placed(
            lambda: ControlEnv(
                bddl_file_name=bddl_file,
                has_offscreen_renderer=False,
                use_camera_obs=False,
                hard_reset=False,
                ignore_done=True,  # or it raises after 1000 steps
            )
        )
        self._engine = self._control.env
        for of_the_state in (
            self._engine.conditional_placement_initializer,
            self._engine.conditional_placement_on_objects_initializer,
        ):  # what stands in or on a fixture would be placed by where that stood in the last episode
            of_the_state.samplers.clear()
            of_the_state.sample_args.clear()
        sim = self._engine.sim
        self._model = sim.model._model
        self._stages = ForwardStages(self._model, sim.data._data)
        sim.forward, sim.step = self._stages.forward, self._stages.step
        self._engine._pre_action = ArmControl(self._engine)
        self.state_size = 1 + int(self._model.nq) + int(self._model.nv)
        """The time, then positions and speeds of all joints."""
        self._unseen = np.zeros((image_size, image_size, 3), np.uint8)
        self._draws = True
        self._key = (bddl_file, image_size, shadows)
        self._camera = _SHARED.take(
            self._key,
            lambda: Camera(self._model, CAMERAS[0], image_size, shadows=shadows, hidden_groups=(COLLISION_SHAPES,)),
        )
        for camera in cameras:
            self._engine.add_observable(self._observable(camera))

    def begin(self, start: int, state: np.ndarray, settle_steps: int) -> Observation:
        """Begin as in a new engine, in which nothing is left of the last episode; then ``settle_steps`` at rest.

        Fixtures (cabinets, stoves) are not part of a ``state`` [state_size]: LIBERO puts them at random positions,
        from numpy's global stream. Here the number of the start is that stream's seed.
        """
        engine = self._engine
        for robot in engine.robots:
            robot.gripper.current_action = np.zeros(robot.gripper.dof)  # where fingers go is summed up over steps
        self._draws = False
        with _numpy_seeded(start):
            _placed(engine.reset)
        self._draws = settle_steps == 0
        observation = self._control.set_init_state(state)
        for left in reversed(range(settle_steps)):
            observation, _ = self.step(_REST, draw=left == 0)
        return observation

    def step(self, action: np.ndarray, *, draw: bool = True) -> tuple[Observation, bool]:
        """Run a twentieth of a second; return the observation and whether the goal is reached now.

        If ``draw`` is false, the pictures are black."""
        self._draws = draw
        with self._stages.same_model():
            observation, _, success, _ = self._control.step(np.asarray(action, dtype=np.float64))
        return observation, bool(success)

    def picture(self) -> np.ndarray:
        """Draw the first camera's picture now."""
        return self._camera.frame(self._engine.sim.data._data, CAMERAS[0], model=self._model)

    def close(self) -> None:
        _SHARED.release(self._key)
        self._control.close()

    @property
    def engine(self) -> Any:
        """LIBERO's own environment: its model, objects and goal."""
        return self._engine

    def _observable(self, camera: str) -> Any:
        """LIBERO takes all that it observes early in a step, so pictures are of the same moment as the arm's state."""
        from robosuite.utils.observables import Observable, sensor

        @sensor(modality="image")
        def picture(_: Any) -> np.ndarray:
            if not self._draws:
                return self._unseen
            return self._camera.frame(self._engine.sim.data._data, camera, model=self._model)

        return Observable(f"{camera}_image", picture, sampling_rate=self._engine.control_freq)


@contextmanager
def _numpy_seeded(seed: int) -> Iterator[None]:
    before = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(before)


def _placed(make: Callable[[], Made]) -> Made:
    """Return the scene of ``make``. LIBERO draws positions and raises if no room is left: it is then called again."""
    from robosuite.utils.errors import RandomizationError

    with _no_debugger():
        for _ in range(_TRIES - 1):
            try:
                return make()
            except RandomizationError:
                continue
        return make()


@contextmanager
def _no_debugger() -> Iterator[None]:
    """Disable the debugger that LIBERO opens, waiting for input, before it raises if a drawer has no room."""
    debugger: Any = pdb
    before, debugger.set_trace = pdb.set_trace, lambda: None
    try:
        yield
    finally:
        debugger.set_trace = before
