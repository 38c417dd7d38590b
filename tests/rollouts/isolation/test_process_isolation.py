"""Environments in an interpreter of their own: the same trajectories bit for bit, and every way in which they break."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

from rlinf.base.errors import UserError
from rlinf.data.space_description import describe, rebuild
from rlinf.rollouts.isolation import wire
from rlinf.rollouts.isolation.process import EnvProcess, EnvProcessError, EnvProcessTimeoutError
from rlinf.rollouts.isolation.vec_env import IsolatedVecEnv, remarks_in_process
from rlinf.rollouts.vec_env.vec_env import VecEnv
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig

TROUBLE = '''
import ctypes, os, signal, sys, time
import gymnasium
import numpy as np
from gymnasium import spaces


class Env(gymnasium.Env):
    """Obeys the action; its observation is a Dict of two dtypes."""

    action_space = spaces.Discrete(5)
    observation_space = spaces.Dict(
        {"image": spaces.Box(0, 255, (2, 2, 3), np.uint8), "at": spaces.Tuple((spaces.Discrete(9), spaces.Box(-9, 9)))}
    )

    def __init__(self, refuse=False):
        if refuse:
            raise RuntimeError("no such robot")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.seen(), {}

    def step(self, action):
        self.steps += 1
        if action == 1:
            raise ValueError("the gripper is stuck")
        if action == 2:
            print("about to fall over", flush=True)
            os.abort()
        if action == 3:
            time.sleep(3600)
        if action == 4:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            ctypes.PyDLL(None).sleep(3600)  # with the interpreter's lock held
        return self.seen(), 1.0, False, False, {"success": self.steps == 2, "heavy": "torch" in sys.modules}

    def seen(self):
        image = self.np_random.integers(0, 256, (2, 2, 3)).astype(np.uint8)
        return {"image": image, "at": (self.steps, self.np_random.normal(size=1).astype(np.float32))}


class Noisy(Env):
    """Does nothing, and draws from a stream of its own."""

    def step(self, action):
        return super().step(0)

    def seen(self):
        return {"image": np.random.randint(0, 256, (2, 2, 3)).astype(np.uint8), "at": (0, np.zeros(1, np.float32))}


gymnasium.register("Trouble-v0", entry_point=Env)
gymnasium.register("Noisy-v0", entry_point=Noisy)
'''
HANG_OF_MY_OWN = """
import os, sys
from rlinf.rollouts.isolation.vec_env import IsolatedVecEnv
from rlinf.schema import EnvConfig
import numpy as np
vec_env = IsolatedVecEnv(EnvConfig("trouble:Trouble-v0", isolation="process"), 1)
vec_env.reset([0], [0])
print(vec_env._processes[0]._process.pid, flush=True)
vec_env.step([0], np.array([4]))
"""


@pytest.fixture
def trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnvConfig]:
    (tmp_path / "trouble.py").write_text(TROUBLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield EnvConfig("trouble:Trouble-v0", isolation="process", step_timeout_s=20.0)
    sys.modules.pop("trouble", None)


@contextlib.contextmanager
def opened(vec_env: VecEnv) -> Iterator[VecEnv]:
    try:
        yield vec_env
    finally:
        vec_env.close()


def trajectory(options: EnvConfig, actions: np.ndarray, num_envs: int = 3) -> list[np.ndarray]:
    """Everything that some sub-environments give for actions [T, sub-environments, ...], resets included."""
    given: list[np.ndarray] = []
    with opened(make_vec_env(options, num_envs)) as vec_env:
        everyone = list(range(num_envs))
        assert vec_env.reset(everyone, [7, 8, 7][:num_envs]) == {}
        for step, action in enumerate(actions):
            given += [leaf.copy() for leaf in vec_env.observations.values()]
            result = vec_env.step(everyone, action)
            assert result.failed == {}
            given += [result.rewards, result.terminated, result.truncated, result.success, result.has_success]
            over = np.nonzero(result.terminated | result.truncated)[0].tolist()
            vec_env.reset(over, [step + env_index for env_index in over])
    return given


@pytest.mark.parametrize(
    ("env_id", "vectorization"),
    [
        ("CartPole-v1", "async"),
        ("Pendulum-v1", "sync"),
        pytest.param("CartPole-v1", "sync", marks=pytest.mark.slow),
        pytest.param("Pendulum-v1", "async", marks=pytest.mark.slow),
    ],
)
def test_the_trajectory_is_that_of_this_process(env_id: str, vectorization: str) -> None:
    here = EnvConfig(env_id, vectorization="sync", max_episode_steps=30)
    there = EnvConfig(env_id, vectorization=vectorization, max_episode_steps=30, isolation="process")
    with opened(make_vec_env(here, 1)) as vec_env:
        vec_env.action_space.seed(1)
        actions = np.stack([[vec_env.action_space.sample() for _ in range(3)] for _ in range(80)])
    for ours, theirs in zip(trajectory(here, actions), trajectory(there, actions), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_nested_observations_and_success_arrive(trouble: EnvConfig) -> None:
    here = EnvConfig(trouble.id, vectorization="sync")
    actions = np.zeros((3, 3), dtype=np.int64)
    for ours, theirs in zip(trajectory(here, actions), trajectory(trouble, actions), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with opened(make_vec_env(trouble, 2)) as vec_env:
        assert set(vec_env.observations) == {"observation.image", "observation.at.0", "observation.at.1"}
        vec_env.reset([0, 1], [0, 1])
        vec_env.step([1], actions[0, :1])
        result = vec_env.step([0, 1], actions[0, :2])
        assert result.success.tolist() == [False, True]
        assert result.has_success.all()


def test_the_other_interpreter_has_no_torch_of_ours(trouble: EnvConfig) -> None:
    options = EnvConfig(trouble.id, isolation="process", success_key="heavy")
    with opened(make_vec_env(options, 1)) as vec_env:
        vec_env.reset([0], [0])
        assert not vec_env.step([0], np.array([0])).success[0]


def test_an_exception_brings_its_traceback_and_spares_the_neighbours(trouble: EnvConfig) -> None:
    with opened(make_vec_env(trouble, 2)) as vec_env:
        vec_env.reset([0, 1], [0, 1])
        result = vec_env.step([0, 1], np.array([1, 0]))
        assert result.failed == {0: "failures"}
        assert result.rewards[1] == 1.0
        assert "trouble.py" in vec_env.last_failure
        assert "ValueError: the gripper is stuck" in vec_env.last_failure
        vec_env.restart(0)
        assert vec_env.reset([0], [5]) == {}
        assert vec_env.step([0, 1], np.array([0, 0])).failed == {}


def test_a_death_is_named_and_the_envs_come_back(trouble: EnvConfig) -> None:
    with opened(make_vec_env(trouble, 2)) as vec_env:
        vec_env.reset([0, 1], [0, 1])
        assert vec_env.step([0, 1], np.array([0, 2])).failed == {0: "failures", 1: "failures"}
        assert "was killed by SIGABRT" in vec_env.last_failure
        assert sys.executable in vec_env.last_failure
        assert "about to fall over" in vec_env.last_failure
        for env_index in (0, 1):
            vec_env.restart(env_index)
        assert vec_env.reset([0, 1], [0, 1]) == {}
        assert vec_env.step([0, 1], np.array([0, 0])).failed == {}


def test_processes_of_their_own_die_alone(trouble: EnvConfig) -> None:
    options = EnvConfig(trouble.id, vectorization="async", isolation="process")
    with opened(make_vec_env(options, 2)) as vec_env:
        vec_env.reset([0, 1], [0, 1])
        assert vec_env.step([0, 1], np.array([0, 2])).failed == {1: "failures"}


def test_a_hang_in_python_is_broken_off_inside(trouble: EnvConfig) -> None:
    options = EnvConfig(trouble.id, isolation="process", step_timeout_s=1.0)
    with opened(make_vec_env(options, 2)) as vec_env:
        vec_env.reset([0, 1], [0, 1])
        result = vec_env.step([0, 1], np.array([3, 0]))
        assert result.failed == {0: "timeouts"}
        assert result.rewards[1] == 1.0


def test_a_hang_that_no_signal_reaches_is_killed_from_outside(
    trouble: EnvConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlinf.rollouts.isolation.vec_env._MOMENT_S", 0.5)
    options = EnvConfig(trouble.id, isolation="process", step_timeout_s=0.5)
    with opened(make_vec_env(options, 1)) as vec_env:
        vec_env.reset([0], [0])
        began = time.monotonic()
        assert vec_env.step([0], np.array([4])).failed == {0: "timeouts"}
        assert time.monotonic() - began < 15.0
        assert re.search(r"did not answer 'step' within .* s \(env\.step_timeout_s\)", vec_env.last_failure)


def test_it_dies_with_the_run_even_while_it_hangs(trouble: EnvConfig, tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(HANG_OF_MY_OWN)
    paths = os.pathsep.join([*sys.path, str(tmp_path)])
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}, cwd=tmp_path
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        time.sleep(0.5)
        os.kill(child, 0)
        parent.send_signal(signal.SIGKILL)
    until = time.monotonic() + 10.0
    while _runs(child):
        assert time.monotonic() < until, "the environment's process outlived its run"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    """A zombie that is not reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_error_names_why_an_environment_cannot_be_built(trouble: EnvConfig) -> None:
    with pytest.raises(EnvProcessError, match="no such robot"):
        IsolatedVecEnv(EnvConfig(trouble.id, {"refuse": True}, isolation="process"), 1)
    with pytest.raises(EnvProcessError, match="/no/python cannot be started"):
        EnvProcess("/no/python", 20.0)
    with pytest.raises(EnvProcessError, match="ended with exit code"):
        EnvProcess("/bin/false", 20.0).call(wire.WireMessage("make"), 20.0)
    with pytest.raises(EnvProcessTimeoutError, match=r"'hello' within 0\.001 s \(cluster\.start_timeout_s\)"):
        EnvProcess(None, 0.001).call(wire.WireMessage("make"), 20.0)


def test_the_checker_runs_over_there(trouble: EnvConfig) -> None:
    found = remarks_in_process(EnvConfig("CartPole-v1", isolation="process"))
    assert not any(remark.fatal for remark in found)
    found = remarks_in_process(EnvConfig("trouble:Noisy-v0", isolation="process"))
    assert any(remark.fatal and "not equivalent" in remark.message for remark in found)


SPACES = [
    spaces.Box(np.float32([-1, -np.inf]), np.float32([0.1, np.inf])),
    spaces.Box(0, 255, (2, 3), np.uint8),
    spaces.Discrete(4, start=-1),
    spaces.MultiDiscrete([2, 5]),
    spaces.MultiBinary((2, 2)),
    spaces.Text(20, min_length=0),
    spaces.Dict([("z", spaces.Discrete(2)), ("a", spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1))))]),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: type(space).__name__)
def test_spaces_travel(space: spaces.Space) -> None:
    arrays: dict[str, np.ndarray] = {}
    description = describe(space, "observation", arrays)
    here, there = socket.socketpair()
    with here, there:
        wire.send(here, wire.WireMessage("made", {"space": description}, arrays))
        came = wire.receive(there, 5.0)
    rebuilt = rebuild(came.fields["space"], came.arrays)
    assert rebuilt == space
    if isinstance(space, spaces.Dict):
        assert list(rebuilt) == list(space)


def test_a_space_without_a_fixed_shape_is_a_users_mistake() -> None:
    space = spaces.Dict(parts=spaces.Graph(spaces.Box(-1.0, 1.0, (2,)), None))
    with pytest.raises(UserError, match=r"action\.parts: a space of type Graph has no fixed shape: turn it into a Box"):
        describe(space, "action", {})


def test_frames_of_anything_else_are_refused() -> None:
    here, there = socket.socketpair()
    with here, there:
        array = np.arange(6, dtype=np.float64).reshape(2, 3)[:, ::2]
        wire.send(here, wire.WireMessage("step", {"env_indices": [0]}, {"a": array, "none": np.zeros((0, 4))}))
        came = wire.receive(there, 5.0)
        np.testing.assert_array_equal(came.arrays["a"], array)
        assert came.arrays["none"].shape == (0, 4)
        with pytest.raises(TimeoutError):
            wire.receive(there, 0.05)
        here.sendall(b"Traceback (most recent call last)")
        with pytest.raises(wire.IsolationError, match="something else writes"):
            wire.receive(there, 5.0)
    here, there = socket.socketpair()
    with here, there:
        here.sendall(wire._HEAD.pack(wire._MAGIC, wire.VERSION + 1, 0, 0))
        with pytest.raises(wire.IsolationError, match=f"version {wire.VERSION + 1} of the protocol"):
            wire.receive(there, 5.0)
        with pytest.raises(wire.IsolationError, match="only numbers"):
            wire.send(here, wire.WireMessage("step", {}, {"a": np.array([object()])}))
        header = b'{"kind": "step", "fields": {}, "arrays": [["a", "|O", [1]]]}'
        here.sendall(wire._HEAD.pack(wire._MAGIC, wire.VERSION, len(header), 8) + header + bytes(8))
        with pytest.raises(wire.IsolationError, match="only numbers"):
            wire.receive(there, 5.0)
        here.close()
        with pytest.raises(wire.HungUpError):
            wire.receive(there, 5.0)


def test_no_process_is_left_of_environments_that_do_not_come_up(
    trouble: EnvConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[EnvProcess] = []
    close = EnvProcess.close
    monkeypatch.setattr(EnvProcess, "close", lambda self: closed.append(self) or close(self))

    def refused(*_: object) -> None:
        raise EnvProcessError("the environment's process cannot open shared memory")

    monkeypatch.setattr(IsolatedVecEnv, "_share_memory", refused)
    with pytest.raises(EnvProcessError, match="cannot open"):
        make_vec_env(trouble, 2)
    assert len(closed) == 1
    assert not closed[0].alive
