"""Services that take a run's numbers: TensorBoard, Weights & Biases, MLflow, Trackio, and trackers of one's own.

Each library enters here, when it is used.

A service's name for a run is kept in `tracking.json` of the run directory: a resumed run goes on under the
same name.
"""

from __future__ import annotations

import functools
import json
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from rlinf.base.durable import write_atomically
from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file
from rlinf.base.machine import installed
from rlinf.base.own_errors import own_account
from rlinf.base.packages import missing_package
from rlinf.base.user_code import imported
from rlinf.config import Config
from rlinf.config.defaults import default_of, value_of
from rlinf.config.dump import at
from rlinf.config.names import leaves
from rlinf.config.record import stored

_KEPT = "tracking.json"
_FORBIDDEN = re.compile(r"[^\w\-. :/]")
_MOST_PARAMS = 100


class Sink(Protocol):
    """A service that takes numbers."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self, *, failed: bool) -> None: ...


class TensorBoard:
    def __init__(self, folder: Path, from_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=from_step + 1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self, *, failed: bool) -> None:
        self._writer.close()


class _WandB:
    def __init__(self, folder: Path, project: str, config: Config) -> None:
        import wandb

        self._run = wandb.init(
            project=project,
            name=os.environ.get("WANDB_NAME") or config.run.name,
            config=stored(config),
            dir=str(folder),
            id=kept(folder).get("wandb"),
            resume="allow",
            # It would catch what the progress display draws.
            settings=wandb.Settings(console="off"),
        )
        keep(folder, "wandb", self._run.id)
        self._supervised_steps = config.sft.steps
        self._defined: set[str] = set()

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Each phase has its own x-axis: `sft/step` counts the warm start from 0, `step` is that of metrics.jsonl.

        The service's own step is not used: it takes no negative number, which those of a warm start are.
        """
        axes: dict[str, float] = {"step": step}
        if step < 0:
            axes["sft/step"] = self._supervised_steps + step
        for name in metrics.keys() - self._defined:
            self._run.define_metric(name, step_metric="sft/step" if name.startswith("sft/") else "step")
            self._defined.add(name)
        self._run.log({**metrics, **axes})

    def close(self, *, failed: bool) -> None:
        self._run.finish(exit_code=int(failed))


class MLflow:
    def __init__(self, folder: Path, experiment: str, config: Config) -> None:
        import mlflow

        self._mlflow: Any = mlflow
        mlflow.set_experiment(experiment)
        known = kept(folder).get("mlflow")
        run = mlflow.start_run(run_id=known, run_name=os.environ.get("MLFLOW_RUN_NAME") or config.run.name)
        keep(folder, "mlflow", run.info.run_id)
        if known is None:
            shown = stored(config)
            keys = [key for key in leaves() if value_of(config, key) != default_of(config, key)]
            changed = {key: at(shown, key.split(".")) for key in keys}
            # The service takes few parameters at a time.
            for start in range(0, len(keys), _MOST_PARAMS):
                mlflow.log_params({key: changed[key] for key in keys[start : start + _MOST_PARAMS]})

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._mlflow.log_metrics({mlflow_name(name): value for name, value in metrics.items()}, step=step)

    def close(self, *, failed: bool) -> None:
        self._mlflow.end_run(status="FAILED" if failed else "FINISHED")


class Trackio:
    def __init__(self, folder: Path, project: str, config: Config) -> None:
        import trackio

        self._trackio: Any = trackio
        name = kept(folder).get("trackio") or f"{config.run.name}-{secrets.token_hex(4)}"
        trackio.init(
            project=project,
            name=name,
            config=stored(config),
            resume="allow",
            embed=False,  # in a notebook it would open a page of its own
        )
        keep(folder, "trackio", name)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._trackio.log(dict(metrics), step=step)

    def close(self, *, failed: bool) -> None:
        self._trackio.finish()


def mlflow_name(name: str) -> str:
    """Convert a metric's name for MLflow, which allows few characters.

    Its folders cannot hold `a/b` together with `a/b/c`.

    >>> mlflow_name("eval/pass@2/ci_low")
    'eval/pass_at_2_ci_low'
    """
    section, _, rest = name.partition("/")
    plain = f"{section}/{rest.replace('/', '_')}" if rest else section
    return _FORBIDDEN.sub("_", plain.replace("@", "_at_"))


def start_sinks(folder: Path, config: Config, from_step: int) -> list[Sink]:
    """Start those that `logging` requests.

    Raises UserError if a service does not take the run (no account, no server)."""
    requested = config.logging
    sinks: list[Sink] = []
    if installed("tensorboard") if requested.tensorboard is None else requested.tensorboard:
        sinks.append(TensorBoard(folder, from_step))
    if project := _project(requested.wandb_project, "WANDB_PROJECT", "wandb"):
        sinks.append(_started("logging.wandb_project", functools.partial(_WandB, folder, project, config)))
    if experiment := _project(requested.mlflow_experiment, "MLFLOW_EXPERIMENT_NAME", "mlflow"):
        sinks.append(_started("logging.mlflow_experiment", functools.partial(MLflow, folder, experiment, config)))
    if requested.trackio_project is not None:
        project = requested.trackio_project
        sinks.append(_started("logging.trackio_project", lambda: Trackio(folder, project, config)))
    for name, options in requested.sinks.items():
        sinks.append(_started(f"logging.sinks {name}", functools.partial(_own, name, options, folder, config)))
    return sinks


def _project(key: str | None, variable: str, package: str) -> str:
    """Return the project of a service; without the key that of its own variable, if the package is installed."""
    if key is not None:
        return key
    project = os.environ.get(variable, "")
    return project if project and installed(package) else ""


def _own(name: str, options: object, folder: Path, config: Config) -> Sink:
    """Build a user's own tracker: ``name(folder, config, **options)`` is a :class:`Sink`."""
    made: Sink = imported(name)(folder, config, **(options if isinstance(options, dict) else {}))
    return made


def _started(key: str, start: Callable[[], Sink]) -> Sink:
    try:
        return start()
    except Exception as error:  # each service has errors of its own
        words = missing_package(error) or own_account(error) or error
        raise UserError(f"{key}: the service did not start: {words}") from error


def kept(folder: Path) -> dict[str, str]:
    """Service -> its name for this run; empty before the first start."""
    return read_json_file(folder / _KEPT) or {}


def keep(folder: Path, service: str, name: str) -> None:
    write_atomically(folder / _KEPT, json.dumps({**kept(folder), service: name}))
