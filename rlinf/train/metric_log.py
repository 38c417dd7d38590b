"""Where metrics go: `metrics.jsonl` always; TensorBoard, Weights & Biases and MLflow where they are asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, Self

from rlinf.config import Config, to_mapping


class Sink(Protocol):
    """A service that takes numbers."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class MetricLog:
    """One JSON object a step. After a resume the file continues from the checkpoint, without the lost steps."""

    def __init__(self, folder: Path, config: Config, *, from_step: int) -> None:
        self.path = folder / "metrics.jsonl"
        self._keep_until(from_step)
        self._file = self.path.open("a")
        self._sinks = _sinks(folder, config, from_step)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Numbers of one step, flushed at once."""
        self._file.write(json.dumps({"step": step, **metrics}) + "\n")
        self._file.flush()
        for sink in self._sinks:
            sink.write(step, metrics)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        for sink in self._sinks:
            sink.close()

    def _keep_until(self, step: int) -> None:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        kept = []
        for line in lines:
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (ValueError, KeyError):
                continue  # cut short by a kill: the step will be written again
        self.path.write_text("".join(kept))


class _TensorBoard:
    def __init__(self, folder: Path, from_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=from_step + 1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _WandB:
    def __init__(self, project: str, config: Config) -> None:
        import wandb

        self._run = wandb.init(project=project, name=config.run.name, config=to_mapping(config), resume="allow")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


class _MLflow:
    def __init__(self, experiment: str, config: Config) -> None:
        import mlflow

        self._mlflow: Any = mlflow
        mlflow.set_experiment(experiment)
        mlflow.start_run(run_name=config.run.name)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._mlflow.log_metrics({name.replace("@", "_at_"): value for name, value in metrics.items()}, step=step)

    def close(self) -> None:
        self._mlflow.end_run()


def _sinks(folder: Path, config: Config, from_step: int) -> list[Sink]:
    wanted = config.logging
    sinks: list[Sink] = []
    if wanted.tensorboard:
        sinks.append(_TensorBoard(folder, from_step))
    if wanted.wandb_project is not None:
        sinks.append(_WandB(wanted.wandb_project, config))
    if wanted.mlflow_experiment is not None:
        sinks.append(_MLflow(wanted.mlflow_experiment, config))
    return sinks
