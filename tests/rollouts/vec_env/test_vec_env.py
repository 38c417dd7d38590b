"""Success is a rate where the environment tells it, True or False, and nothing at all where it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from simulator_runs import summary

from rlinf.base.errors import UserError
from rlinf.report.watch_simulator import _table
from rlinf.rollouts.simulator.records import EpisodeRecord, episode_metrics
from rlinf.rollouts.vec_env.native import success_of_info
from rlinf.rollouts.vec_env.vec_env import VecEnv
from rlinf.rollouts.vec_env.vectorize import make_vec_env
from rlinf.schema import EnvConfig
from rlinf.train.evaluation.simulator import record_metrics

SUCCESS = ("success_once", "success_at_end")


class Telling(gymnasium.Env):
    """Eight steps; tells success ("never"), tells that there is none ("false"), or only of what went well ("true")."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, tells: str = "never") -> None:
        self.tells = tells

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.left, self.lucky = 8, self.np_random.random() < 0.5
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        self.left -= 1
        info: dict[str, Any] = {"false": {"success": False}}.get(self.tells, {})
        if self.tells == "true" and self.lucky and self.left == 0:
            info = {"success": True}
        return np.zeros(2, np.float32), 1.0, self.left == 0, False, info


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register("Telling-v0", Telling)
    yield
    del gymnasium.registry["Telling-v0"]


def telling(folder: Path, kind: str, tells: str, *more: str) -> tuple[dict[str, Any], list[dict], list[dict]]:
    """Summary, metrics and evaluated episodes of a run."""
    report = summary(folder, kind, 2, ["env.id=Telling-v0", f"env.kwargs={{tells: '{tells}'}}", *more])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    rows = [json.loads(line) for line in (folder / "episodes" / "step_000002.jsonl").read_text().splitlines()]
    return report, lines, rows


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_an_unreported_success_is_no_number(tmp_path: Path, kind: str) -> None:
    report, lines, rows = telling(tmp_path / "run", kind, "never")
    assert not [name for line in [report["metrics"], *lines] for name in line if "success" in name]
    assert lines[-1]["rollout/return"] == report["metrics"]["eval/return"] == 8.0
    assert all(row[name] is None for row in rows for name in SUCCESS)


@pytest.mark.parametrize("kind", ["ppo", "grpo"])
def test_a_success_reported_as_false_is_a_rate_of_0(tmp_path: Path, kind: str) -> None:
    report, lines, rows = telling(tmp_path / "run", kind, "false", "checkpoint.best_metric=eval/success_once")
    assert (report["metrics"]["eval/success_once"], report["metrics"]["eval/success_once/n"]) == (0.0, 4.0)
    assert lines[-1]["rollout/success_at_end"] == 0.0
    assert all(row[name] is False for row in rows for name in SUCCESS)


def test_where_success_is_reported_of_some_episodes_the_others_have_failed() -> None:
    records = [EpisodeRecord(0, 1.0, 5, True, True), EpisodeRecord(1, 1.0, 5, None, None)]
    assert episode_metrics(records)["rollout/success_once"] == 0.5
    measured = record_metrics(records)
    assert (measured["eval/success_at_end"], measured["eval/success_at_end/n"]) == (0.5, 2.0)


def test_the_best_checkpoint_by_an_unreported_success_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"best_metric: eval/success_once is no metric.*tells no success.*'success'"):
        telling(tmp_path / "run", "ppo", "never", "checkpoint.best_metric=eval/success_once")
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == ""


@pytest.mark.parametrize(("tells", "shown"), [(None, False), (False, True), (True, True)])
def test_the_table_of_watch_has_a_column_where_success_is_reported(tells: bool | None, shown: bool) -> None:
    table = _table(3, [EpisodeRecord(0, 1.0, 5, tells, tells)])
    assert ("success" in [column.header for column in table.columns]) == shown


@pytest.mark.parametrize("options", [{}, {"vectorization": "async"}, {"isolation": "process"}])
@pytest.mark.parametrize("kind", ["silent", "telling"])
def test_every_kind_of_envs_records_whether_success_was_reported(options: dict[str, Any], kind: str) -> None:
    key = {"silent": "success", "telling": "is_false"}[kind]
    given: dict[str, Any] = {"vectorization": "sync", **options}
    vec_env: VecEnv = make_vec_env(EnvConfig("reporting_env:ReportingEnv-v0", success_key=key, **given), 2)
    try:
        vec_env.reset([0, 1], [0, 1])
        result = vec_env.step([1], np.zeros(1, dtype=np.int64))
        assert result.has_success.tolist() == [kind == "telling"]
        assert not result.success.any()
    finally:
        vec_env.close()


@pytest.fixture(autouse=True)
def reporting_env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that other processes find in the working directory."""
    (tmp_path / "reporting_env.py").write_text(
        "import gymnasium\nfrom gymnasium.envs.classic_control.cartpole import CartPoleEnv\n"
        "class ReportingEnv(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        return (*super().step(action)[:4], {'is_false': False})\n"
        "gymnasium.register('ReportingEnv-v0', ReportingEnv)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_info_of_a_native_vector_env_marks_the_envs_that_reported() -> None:
    info = {"success": np.array([True, False, True]), "_success": np.array([True, True, False])}
    success, has_success = success_of_info(info, "success", 3)
    assert success.tolist() == [True, False, False]
    assert has_success.tolist() == [True, True, False]
    assert not success_of_info({}, "success", 3)[1].any()
    assert success_of_info({"success": np.zeros(3)}, "success", 3)[1].all()


def test_seeded_native_envs_tell_no_success_of_cartpole() -> None:
    vec_env = make_vec_env(EnvConfig("CartPole-v1", vectorization="native"), 3)
    vec_env.reset([0, 1, 2], [0, 1, 2])
    for some in ([0, 1, 2], [1]):
        assert not vec_env.step(some, np.zeros(len(some), dtype=np.int64)).has_success.any()
    vec_env.close()
