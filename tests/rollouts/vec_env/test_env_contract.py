"""What an environment returns is what training reads: nothing is stretched, cut, wrapped round or taken for true."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlinf.rollouts.env_errors import account_of
from rlinf.rollouts.vec_env import vec_env
from rlinf.rollouts.vec_env.env_checker import remarks_on
from rlinf.rollouts.vec_env.make_env import EnvArgumentsError, EnvNotFoundError, make_env, make_native_env
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.rollouts.vec_env.vec_env import ObservationCheck, StepResult
from rlinf.schema import EnvConfig

BYTES, NUMBERS = spaces.Box(0, 255, (2, 2), np.uint8), spaces.Box(-9, 9, (4,), np.float32)


class Returning(gymnasium.Env):
    """Returns after a step what it was made with, and sound parts otherwise."""

    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, space: spaces.Space = NUMBERS, seen: Any = None, **returned: Any) -> None:
        self.observation_space = space
        self.seen, self.returned = (
            seen,
            {"reward": 1.0, "terminated": False, "truncated": False, "info": {}, **returned},
        )

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, ...]:
        action *= 0.0  # as environments do that scale what they are given
        seen = self.observation_space.sample() if self.seen is None else self.seen
        return seen, *self.returned.values()


def stepped(space: spaces.Space = NUMBERS, **returned: Any) -> tuple[SyncVecEnv, StepResult]:
    options = EnvConfig("any", step_timeout_s=0.0)
    envs = SyncVecEnv(options, 1, lambda _: Returning(space, **returned))
    assert not envs.reset([0], [0])
    return envs, envs.step([0], np.ones((1, 2), np.float32))


class OfGym(Returning):
    """Written for gym: ``start`` is the body of its reset, without a seed among the arguments."""

    def __init__(self, start: Callable[[gymnasium.Env], Any]) -> None:
        super().__init__()
        self.start = start

    def reset(self) -> Any:  # type: ignore[override]
        return self.start(self)


class OfPairs(Returning):
    """Returns an observation of two parts, and no info."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(4, np.float32), np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        (OfGym(lambda _: np.zeros(4, np.float32)), "gymnasium calls reset(self, *, seed=None, options=None)"),
        (OfPairs(), "reset() returned a ndarray as its info, which must be a dictionary"),
    ],
)
def test_a_reset_as_in_gym_fails_with_that_of_gymnasium(env: gymnasium.Env, words: str) -> None:
    envs = SyncVecEnv(EnvConfig("any", step_timeout_s=0.0), 1, lambda _: env)
    assert envs.reset([0], [0]) == {0: "failures"}
    assert words in envs.last_failure


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (AttributeError("'Packing' object has no attribute 'seed'"), "have no seed(): reset(seed=seed) seeds"),
        (
            AttributeError("'numpy.random._generator.Generator' object has no attribute 'randint'"),
            "it has random, normal and integers",
        ),
        (AttributeError("'dict' object has no attribute 'all'"), "gymnasium.registry is a dictionary"),
        (TypeError("register() got an unexpected keyword argument 'timestep_limit'"), "takes max_episode_steps"),
        (ImportError("cannot import name 'rendering' from 'gymnasium.envs.classic_control'"), "draw with pygame"),
        (AttributeError("module 'gymnasium.utils.seeding' has no attribute 'hash_seed'"), "has np_random alone"),
        (FutureWarning("the keyword is deprecated"), "warnings.filterwarnings('error')"),
    ],
)
def test_the_account_of_an_error_names_the_remedy(error: Exception, words: str) -> None:
    assert words in account_of(error)


def test_an_error_of_another_kind_has_no_remedy_of_gym() -> None:
    account = account_of(AttributeError("'NoneType' object has no attribute 'seed'"))
    assert account == "AttributeError: 'NoneType' object has no attribute 'seed'"


@pytest.mark.parametrize(
    ("space", "seen", "words"),
    [
        (NUMBERS, 0.5, "observation has shape ()"),
        (NUMBERS, np.ones(1, np.float32), "observation has shape (1,)"),
        (BYTES, np.full((2, 2), 0.9, np.float32), "observation: 0.8999999761581421 is no uint8"),
        (BYTES, np.array([[1, 2], [3, 256]]), "observation: 256 is no uint8"),
        (spaces.Box(-9, 9, (2,), np.int64), np.array([1.0, np.nan]), "observation: nan is no int64"),
        (NUMBERS, np.ma.array(np.ones(4, np.float32), mask=[0, 1, 0, 0]), "masked"),
        (NUMBERS, ["a"] * 4, "values of type"),
        (spaces.Discrete(3), 3, "observation = 3, which is outside Discrete(3)"),
        (spaces.MultiDiscrete([3, 4]), np.array([3, 0]), "observation = [3, 0], which is outside MultiDiscrete"),
        (spaces.Dict(goal=spaces.Discrete(2, start=5)), {"goal": 4}, "observation.goal = 4, which is outside"),
    ],
)
def test_an_observation_that_its_space_has_not_ends_the_episode(space: spaces.Space, seen: Any, words: str) -> None:
    envs, result = stepped(space, seen=seen)
    assert result.failed == {0: "failures"}
    assert words in envs.last_failure


@pytest.mark.parametrize(
    ("space", "seen", "kept"),
    [
        (BYTES, [[1, 2], [3, 255]], [[1, 2], [3, 255]]),
        (BYTES, np.array([[1.0, 2.0], [3.0, 4.0]]), [[1, 2], [3, 4]]),
        (NUMBERS, [1, 2.5, 3, 4], [1.0, 2.5, 3.0, 4.0]),
        (NUMBERS, np.array([1.0, 2.0, 3.0, 0.1]), [1.0, 2.0, 3.0, np.float32(0.1)]),
        (spaces.MultiBinary(2), np.array([True, False]), [1, 0]),
    ],
)
def test_values_of_another_type_that_fit_are_taken(space: spaces.Space, seen: Any, kept: Any) -> None:
    envs, result = stepped(space, seen=seen)
    assert not result.failed
    assert envs.observations["observation"][0].tolist() == kept


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ({"terminated": None}, "returned terminated None"),
        ({"truncated": "False"}, "returned truncated 'False'"),
        ({"terminated": np.nan}, "returned terminated nan"),
        ({"reward": "1.0"}, "the reward '1.0'"),
        ({"reward": None}, "the reward None"),
        ({"info": "solved"}, "the info 'solved'"),
        ({"info": {"success": "False"}}, "info['success'] 'False'"),
        ({"info": {"success": np.nan}}, "info['success'] nan"),
    ],
)
def test_what_is_neither_a_number_nor_a_flag_ends_the_episode(returned: dict[str, Any], words: str) -> None:
    envs, result = stepped(**returned)
    assert result.failed == {0: "failures"}
    assert words in envs.last_failure


@pytest.mark.parametrize(
    ("success", "reported"),
    [(np.bool_(True), (True, True)), (0.0, (False, True)), (np.array([0, 1]), (True, True)), (None, (False, False))],
)
def test_a_success_may_be_any_flag_and_none_reports_nothing(success: Any, reported: tuple[bool, bool]) -> None:
    _, result = stepped(info={"success": success}, truncated=np.array([True]), reward=np.array([2.0]))
    assert (bool(result.success[0]), bool(result.has_success[0])) == reported
    assert (result.truncated.tolist(), result.rewards.tolist()) == ([True], [2.0])


def test_an_environment_that_writes_into_its_action_changes_only_its_own() -> None:
    envs = SyncVecEnv(EnvConfig("any", step_timeout_s=0.0), 1, lambda _: Returning())
    envs.reset([0], [0])
    actions = np.ones((1, 2), np.float32)
    envs.step([0], actions)
    assert actions.tolist() == [[1.0, 1.0]]


class Closing(Returning):
    """Counts its calls of ``close``, which fail or hang."""

    closed: ClassVar[list[str]] = []

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def close(self) -> None:
        self.closed.append(self.how)
        if self.how == "raises":
            raise RuntimeError("no")
        time.sleep(60.0 if self.how == "hangs" else 0.0)


def test_environments_are_closed_together_and_a_hang_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vec_env, "_CLOSE_S", 0.1)
    monkeypatch.setattr(Closing, "closed", [])
    with pytest.warns(RuntimeWarning, match=r"Closing\.close\(\) was cut off"):
        vec_env.close_quietly(Closing("raises"), Closing("closes"), Closing("hangs"))
    assert Closing.closed == ["raises", "closes", "hangs"]


def test_a_wrong_category_hides_no_reward_that_is_not_a_number() -> None:
    failed: dict[int, str] = {}
    rewards = np.array([0.0, np.nan, 1.0])
    observations = {"observation": np.array([3, 1, 0])}
    message = ObservationCheck(spaces.Discrete(3)).mark(failed, [0, 1, 2], observations, rewards)
    assert failed == {0: "failures", 1: "nan"}
    assert message == "the environment returned observation = 3, which is outside Discrete(3)"


def test_what_names_an_environment_wrongly_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "walk_of_test.py").write_text(
        "import gymnasium, torch\n"
        "import numpy as np\n"
        "class Walk(gymnasium.Env):\n"
        "    observation_space = gymnasium.spaces.Box(-1, 1, (3,))\n"
        "    action_space = gymnasium.spaces.Discrete(2)\n"
        "    def reset(self, *, seed=None, options=None):\n"
        "        super().reset(seed=seed)\n"
        "        return np.zeros(3, np.float32), {}\n"
        "    def step(self, action):\n"
        "        return torch.ones(3), 1.0, True, False, {}\n"
        "def make(num_envs):\n"
        "    return Walk()\n"
    )
    with pytest.raises(EnvNotFoundError, match="it names a file: write walk_of_test:Walk"):
        make_env(EnvConfig("walk_of_test.py:Walk"))
    with pytest.raises(EnvNotFoundError, match=r"make gives one environment, .*Take num_envs out of its parameters"):
        make_native_env(EnvConfig("walk_of_test:make"), 2)
    with pytest.raises(EnvArgumentsError, match=r"env\.kwargs do not fit .*: it takes no tsak"):
        make_native_env(EnvConfig("rlinf_envs:rlinf/Math-v0", kwargs={"tsak": 1}), 2)
    # Tensors are read as arrays in training, so they are no mistake.
    assert not [remark for remark in remarks_on(make_env(EnvConfig("walk_of_test:Walk")), "success") if remark.fatal]
