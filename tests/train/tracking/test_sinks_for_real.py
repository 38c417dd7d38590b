"""Weights & Biases, MLflow and Trackio as they are, without a network: numbers arrive, and a resumed run goes on there.

Each test needs its package, which the extras `wandb`, `mlflow` and `trackio` bring (`make test-sinks`).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import config

from rlinf.train.tracking.metric_log import MetricLog
from rlinf.train.tracking.sinks import kept


def two_sessions(folder: Path, **logging: Any) -> None:
    """A run that ends after step 2 and is resumed from the checkpoint of step 1."""
    wanted = config(folder, logging=logging)
    warnings: list[str] = []
    with MetricLog(folder, wanted, from_step=-4, warn=warnings.append) as log:
        log.write(-1, {"sft/loss": 2.0})
        log.write(0, {"eval/pass@2": 0.25})
        log.write(1, {"train/loss": 1.0})
        log.write(2, {"train/loss": 9.0})
    if logging.get("tensorboard"):
        time.sleep(1.1)  # files of events are read in the order of their names, which begin with the second
    with MetricLog(folder, wanted, from_step=1, warn=warnings.append) as log:
        log.write(2, {"train/loss": 0.5})
        log.write(3, {"train/loss": 0.25})
    assert warnings == []


def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    two_sessions(tmp_path, mlflow_experiment="arithmetic")
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("arithmetic")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_id == kept(tmp_path)["mlflow"]
    assert run.info.status == "FINISHED"
    assert run.data.params["run.name"] == "tiny"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert {one.step: one.value for one in history} == {1: 1.0, 2: 0.5, 3: 0.25}
    assert run.data.metrics["eval/pass_at_2"] == 0.25


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    two_sessions(tmp_path, wandb_project="arithmetic")
    name = kept(tmp_path)["wandb"]
    written = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert [path.name.rpartition("-")[2] for path in written] == [name, name]
    assert all(list(path.glob("*.wandb")) for path in written)
    lines = history_of(next(written[0].glob("*.wandb")))
    assert {line["step"]: line["sft/loss"] for line in lines if "sft/loss" in line} == {-1: 2.0}
    assert {line["step"]: line["train/loss"] for line in lines if "train/loss" in line} == {1: 1.0, 2: 9.0}


def test_wandb_takes_its_own_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    wandb.teardown()  # it reads its variables once in a process
    settings = {"PROJECT": "from-the-shell", "ENTITY": "us", "NAME": "named", "RUN_GROUP": "all", "TAGS": "one,two"}
    for variable, value in {**settings, "MODE": "offline", "SILENT": "true"}.items():
        monkeypatch.setenv(f"WANDB_{variable}", value)
    with MetricLog(tmp_path, config(tmp_path), from_step=0) as log:
        log.write(1, {"train/loss": 1.0})
    (written,) = (tmp_path / "wandb").glob("offline-run-*")
    run = next(one.run for one in records_of(next(written.glob("*.wandb"))) if one.WhichOneof("record_type") == "run")
    found = (run.project, run.entity, run.display_name, run.run_group, list(run.tags))
    assert found == ("from-the-shell", "us", "named", "all", ["one", "two"])


def test_mlflow_takes_its_own_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/shell.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "from-the-shell")
    monkeypatch.setenv("MLFLOW_RUN_NAME", "named")
    with MetricLog(tmp_path, config(tmp_path), from_step=0) as log:
        log.write(1, {"train/loss": 1.0})
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/shell.db")
    (run,) = client.search_runs([client.get_experiment_by_name("from-the-shell").experiment_id])
    assert (run.info.run_name, run.data.metrics["train/loss"]) == ("named", 1.0)


def history_of(file: Path) -> list[dict[str, Any]]:
    """The logged lines of an offline run."""
    items = [one.history.item for one in records_of(file) if one.WhichOneof("record_type") == "history"]
    return [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in line} for line in items]


def records_of(file: Path) -> list[Any]:
    """The records of a LevelDB log (checksum, length, kind), smaller than one block."""
    from wandb.proto import wandb_internal_pb2

    data, offset, found = file.read_bytes(), 7, []
    assert len(data) < 32768
    while offset + 7 < len(data):
        length = int.from_bytes(data[offset + 4 : offset + 6], "little")
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data[offset + 7 : offset + 7 + length])
        offset += 7 + length
        found.append(record)
    return found


def test_tensorboard_has_the_warm_start(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    two_sessions(tmp_path, tensorboard=True)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("sft/loss")] == [(-1, 2.0)]
    assert [(one.step, one.value) for one in events.Scalars("train/loss")] == [(1, 1.0), (2, 0.5), (3, 0.25)]


def test_trackio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("trackio")
    two_sessions(tmp_path, trackio_project="arithmetic")
    from trackio.sqlite_storage import SQLiteStorage

    (name,) = SQLiteStorage.get_runs("arithmetic")
    assert name == kept(tmp_path)["trackio"]
    logs = SQLiteStorage.get_logs("arithmetic", name)
    found = {one["step"]: one["train/loss"] for one in logs if "train/loss" in one}
    assert (found[1], found[3]) == (1.0, 0.25)
    assert json.dumps(os.listdir(tmp_path / "trackio"))
