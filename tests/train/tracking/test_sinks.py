"""Metric services, with fakes instead of them: names, resuming, and what happens when one fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny_runs import config, mapping

from rlinf.base.errors import UserError
from rlinf.train.tracking import sinks
from rlinf.train.tracking.metric_log import MetricLog
from rlinf.train.tracking.sinks import kept, mlflow_name


class FakeRun:
    def __init__(self, name: str, calls: list[Any]) -> None:
        self.id, self.calls = name, calls
        self.info = SimpleNamespace(run_id=name)

    def define_metric(self, name: str, *, step_metric: str) -> None:
        self.calls.append(("axis", name, step_metric))

    def log(self, metrics: dict[str, float]) -> None:
        self.calls.append(("log", metrics))

    def finish(self, exit_code: int) -> None:
        self.calls.append(("finish", exit_code))


@pytest.fixture
def services(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls that reach the fakes."""
    calls: list[Any] = []

    def init(**options: Any) -> FakeRun:
        calls.append(("init", options["id"], options["dir"]))
        calls.append(("names", options["project"], options["name"]))
        calls.append(("config", options["config"]))
        return FakeRun(options["id"] or "first", calls)

    def start_run(run_id: str | None, run_name: str) -> FakeRun:
        calls.append(("start_run", run_id, run_name))
        return FakeRun(run_id or "one", calls)

    wandb = SimpleNamespace(init=init, Settings=lambda **given: given)
    mlflow = SimpleNamespace(
        set_experiment=lambda name: calls.append(("experiment", name)),
        start_run=start_run,
        log_params=lambda params: calls.append(("params", params)),
        log_metrics=lambda metrics, step: calls.append(("metrics", step, metrics)),
        end_run=lambda status: calls.append(("end", status)),
    )
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    return calls


def test_a_resumed_run_continues_the_same_records(tmp_path: Path, services: list[Any]) -> None:
    wanted = config(tmp_path, logging={"wandb_project": "p", "mlflow_experiment": "e"})
    with MetricLog(tmp_path, wanted, from_step=0) as log:
        log.write(1, {"eval/pass@2": 0.5, "eval/pass@2/ci_low": 0.1})
    with MetricLog(tmp_path, wanted, from_step=1) as log:
        log.write(2, {"a": 1.0})
    assert kept(tmp_path) == {"wandb": "first", "mlflow": "one"}
    assert [call for call in services if call[0] == "init"] == [
        ("init", None, str(tmp_path)),
        ("init", "first", str(tmp_path)),
    ]
    assert [call[1] for call in services if call[0] == "start_run"] == [None, "one"]
    assert ("metrics", 1, {"eval/pass_at_2": 0.5, "eval/pass_at_2_ci_low": 0.1}) in services
    params = [call[1] for call in services if call[0] == "params"]
    assert len(params) == 1
    assert params[0]["run.name"] == "tiny"
    assert [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == [1, 2]


def test_a_warm_start_has_its_curve_in_wandb(tmp_path: Path, services: list[Any]) -> None:
    wanted = config(tmp_path, logging={"wandb_project": "p"}, sft={"steps": 2})
    with MetricLog(tmp_path, wanted, from_step=-3) as log:
        log.write(-2, {"sft/loss": 2.0})
        log.write(-1, {"sft/loss": 1.0})
        log.write(0, {"eval/reward": 0.5})
    assert [call[1] for call in services if call[0] == "log"] == [
        {"sft/loss": 2.0, "step": -2, "sft/step": 0},
        {"sft/loss": 1.0, "step": -1, "sft/step": 1},
        {"eval/reward": 0.5, "step": 0},
    ]
    axes = [call[1:] for call in services if call[0] == "axis"]
    assert axes == [("sft/loss", "sft/step"), ("eval/reward", "step")]


def test_services_are_sent_no_secret(tmp_path: Path, services: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "sk-of-the-shell")
    secrets = {"API_KEY": "${oc.env:MY_SECRET}", "OTHER_KEY": "sk-written-out", "PADDED": "Bearer ${oc.env:MY_SECRET}"}
    kwargs = {**mapping(tmp_path)["env"]["kwargs"], "prompt_template": "${oc.env:MY_SECRET} {question}"}
    logging = {"wandb_project": "p", "mlflow_experiment": "e"}
    wanted = config(tmp_path, logging=logging, cluster={"env": secrets}, env={"kwargs": kwargs})
    assert wanted.cluster.env["API_KEY"] == "sk-of-the-shell"
    with MetricLog(tmp_path, wanted, from_step=0) as log:
        log.write(1, {"a": 1.0})
    assert "sk-" not in repr(services)
    (output,) = [call[1] for call in services if call[0] == "config"]
    assert output["cluster"]["env"]["API_KEY"] == "${oc.env:MY_SECRET}"
    (params,) = [call[1] for call in services if call[0] == "params"]
    assert params["cluster.env"]["OTHER_KEY"] == "***"


def test_a_run_that_fails_is_reported_so(tmp_path: Path, services: list[Any]) -> None:
    wanted = config(tmp_path, logging={"wandb_project": "p", "mlflow_experiment": "e"})
    with pytest.raises(KeyError), MetricLog(tmp_path, wanted, from_step=0):
        raise KeyError
    assert ("finish", 1) in services
    assert ("end", "FAILED") in services


def test_a_service_that_goes_away_does_not_stop_the_run(
    tmp_path: Path, services: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(metrics: dict[str, float], step: int) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(sys.modules["mlflow"], "log_metrics", lost)
    warnings: list[str] = []
    wanted = config(tmp_path, logging={"mlflow_experiment": "e"})
    with MetricLog(tmp_path, wanted, from_step=0, warn=warnings.append) as log:
        log.write(1, {"a": 1.0})
        log.write(2, {"a": 2.0})
    (words,) = warnings
    assert words.startswith("MLflow does not take metrics (metrics.jsonl has them): ")
    assert "no route to host" in words
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    assert ("end", "FINISHED") in services


def test_a_service_that_does_not_start_names_the_key(
    tmp_path: Path, services: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(name: str) -> None:
        raise ValueError("no such server")

    monkeypatch.setattr(sys.modules["mlflow"], "set_experiment", refused)
    with pytest.raises(UserError, match=r"logging.mlflow_experiment: the service did not start: .*no such server"):
        MetricLog(tmp_path, config(tmp_path, logging={"mlflow_experiment": "e"}), from_step=0)


VARIABLES = ("WANDB_PROJECT", "WANDB_NAME", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_RUN_NAME")


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The services' own variables, all set, and their packages found."""
    for variable in VARIABLES:
        monkeypatch.setenv(variable, variable.lower())
    monkeypatch.setattr(sinks, "installed", lambda package: package in ("wandb", "mlflow"))


def names(calls: list[Any]) -> list[tuple[Any, ...]]:
    """What a run is called: (project, name) of W&B, (experiment,) and (run id, name) of MLflow."""
    return [call[1:] for call in calls if call[0] in ("names", "experiment", "start_run")]


@pytest.mark.usefixtures("variables")
def test_the_variables_of_services_name_project_and_run(tmp_path: Path, services: list[Any]) -> None:
    with MetricLog(tmp_path, config(tmp_path), from_step=0) as log:
        log.write(1, {"a": 1.0})
    expected = [("wandb_project", "wandb_name"), ("mlflow_experiment_name",), (None, "mlflow_run_name")]
    assert names(services) == expected
    assert ("metrics", 1, {"a": 1.0}) in services


@pytest.mark.usefixtures("variables")
def test_keys_of_the_file_come_before_the_variables(tmp_path: Path, services: list[Any]) -> None:
    with MetricLog(tmp_path, config(tmp_path, logging={"wandb_project": "p", "mlflow_experiment": ""}), from_step=0):
        pass
    assert names(services) == [("p", "wandb_name")]


@pytest.mark.usefixtures("variables")
def test_variables_without_the_package_start_nothing(
    tmp_path: Path, services: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "installed", lambda package: False)
    with MetricLog(tmp_path, config(tmp_path), from_step=0):
        pass
    assert services == []


def test_without_variables_the_run_has_its_own_name(
    tmp_path: Path, services: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    with MetricLog(tmp_path, config(tmp_path, logging={"wandb_project": "p", "mlflow_experiment": "e"}), from_step=0):
        pass
    assert names(services) == [("p", "tiny"), ("e",), (None, "tiny")]


def test_names_that_mlflow_takes() -> None:
    assert mlflow_name("eval/return/ci_low") == "eval/return_ci_low"
    assert mlflow_name("train/loss") == "train/loss"
    assert mlflow_name("loss") == "loss"
    assert mlflow_name("reward_terms/a,b") == "reward_terms/a_b"
