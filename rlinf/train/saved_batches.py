"""Batches on disk: kept by one run, and trained on by others without samplers or environments."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rlinf.base.durable import write_atomically
from rlinf.base.errors import UserError
from rlinf.base.json_files import read_json_file
from rlinf.config import Config
from rlinf.config.stored import load_stored
from rlinf.data.batch import Batch
from rlinf.data.messages import Metrics
from rlinf.data.remote_rows import RemoteRows
from rlinf.train.checkpoints import Checkpoints
from rlinf.train.graph import Graph
from rlinf.train.plain_state import load_plain, save_plain
from rlinf.train.prefetch import BatchSource
from rlinf.train.run_state import RunState
from rlinf.train.tracking.summary import fingerprint

FOLDER = "batches"
"""In a run directory: the batches that ``--save-batches`` keeps, and the state that the first one was collected in."""
_WEIGHTS = "weights.json"
_POLICY = "policy"
_ELSEWHERE = (
    *("policy.path", "policy.dtype", "run.", "rollout.", "learner.", "cluster."),
    *("logging.", "checkpoint.", "evaluation.", "env.", "sft."),
)
"""Sections whose settings do not change what a batch means to an update."""


class BatchRecorder:
    """Keeps the first batches of a run as they were collected, and the sha256 of the weights after each update.

    Rows whose tokens are elsewhere are fetched for it: a batch file is complete.
    """

    def __init__(self, run_folder: Path, count: int) -> None:
        """``count``: how many batches are kept, from the first one that this process trains on."""
        self.folder, self._count = run_folder / FOLDER, count
        self._steps: range = range(0)

    def begin(self, run: RunState, config: Config) -> None:
        """Keep the state of the run before its first batch: configuration, tokenizer or spaces, checkpoint, policy."""
        first = run.progress.step
        self._steps = range(first, min(first + self._count, config.run.max_steps))
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        write_atomically(self.folder / "config.yaml", config.record.text)
        tokenizer = run.folder.path / "tokenizer"
        if tokenizer.exists():
            shutil.copytree(tokenizer, self.folder / "tokenizer")
        run.save_into(Checkpoints(self.folder / "checkpoints"))
        run.graph.learner.export(self.folder / _POLICY)

    def add(self, step: int, rows: Batch | RemoteRows, metrics: Metrics) -> None:
        """Write the batch of ``step`` finished iterations, if it is one of those to keep."""
        if step in self._steps:
            save_plain({"rows": rows, "metrics": dict(metrics)}, self.folder / _name(step))

    def updated(self, graph: Graph, step: int) -> None:
        """Write the sha256 of the weights after ``step`` finished iterations."""
        if step - 1 in self._steps:
            known = read_json_file(self.folder / _WEIGHTS) or {}
            known[str(step)] = fingerprint(graph.learner.weights_in_parts(version=step))
            write_atomically(self.folder / _WEIGHTS, json.dumps(known, indent=2))


@dataclass(frozen=True)
class BatchFolder:
    """A folder of :class:`BatchRecorder`, opened."""

    path: Path
    config: Config
    """Of the run that kept the batches."""
    steps: Sequence[int]
    """The finished iterations before each batch, ascending."""
    weights: Mapping[int, str]
    """The sha256 of the weights after a number of iterations."""

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open ``path``, the folder itself or the run directory around it.

        :raises UserError: there are no batches, or one between the first and the last is missing.
        """
        result = path if (path / _WEIGHTS).exists() or not (path / FOLDER).is_dir() else path / FOLDER
        steps = sorted(int(file.stem.removeprefix("batch_")) for file in result.glob("batch_*.pt"))
        if not steps or not (result / "config.yaml").exists():
            raise UserError(
                f"{path} has no saved batches: rlinf train FILE --save-batches 5 keeps some in RUN/{FOLDER}"
            )
        missing = sorted(set(range(steps[0], steps[-1] + 1)) - set(steps))
        if missing:
            raise UserError(f"{result / _name(missing[0])} is missing: batches follow each other without a gap")
        weights = read_json_file(result / _WEIGHTS) or {}
        config = load_stored(result / "config.yaml")
        return cls(result, config, steps, {int(step): sha for step, sha in weights.items()})

    def load(self, step: int) -> tuple[Batch, Metrics]:
        """Load the batch of ``step`` finished iterations, and the metrics of its collection."""
        saved = load_plain(self.path / _name(step))
        return saved["rows"], saved["metrics"]

    @property
    def tokenizer(self) -> Path:
        """The policy's tokenizer."""
        return self.path / "tokenizer"

    @property
    def policy(self) -> Path:
        """The exported policy before the first batch; of simulators also the spaces."""
        return self.path / _POLICY

    def same_learner(self, config: Config) -> bool:
        """Whether the checkpoint before the first batch can be loaded by a learner of ``config`` as it is."""
        return config.learner.backend == self.config.learner.backend

    def begin(self, config: Config, run_folder: Path) -> None:
        """Put what the learner begins with into a new run directory."""
        if self.tokenizer.exists() and not (run_folder / "tokenizer").exists():
            shutil.copytree(self.tokenizer, run_folder / "tokenizer")
        if self.same_learner(config) and not (run_folder / "checkpoints").exists():
            shutil.copytree(self.path / "checkpoints", run_folder / "checkpoints")

    def adapted(self, config: Config) -> Config:
        """Give the configuration of a run on these batches: no warm start, and no evaluation.

        Another backend begins with the exported policy.
        """
        sft, evaluation = config.sft, config.evaluation
        config = dataclasses.replace(
            config,
            sft=dataclasses.replace(sft, steps=0, epochs=None),
            evaluation=dataclasses.replace(evaluation, size=0, video_every=0),
        )
        if self.same_learner(config):
            return config
        policy = dataclasses.replace(config.policy, path=str(self.path / _POLICY))
        return dataclasses.replace(config, policy=policy)

    def verdict(self, steps: int, digest: str) -> str:
        """State whether weights after ``steps`` iterations are those of the run that kept the batches."""
        recorded = self.weights.get(steps)
        if recorded is None:
            return f"the weights after step {steps} were not recorded by the run that kept the batches"
        same = "the same weights" if recorded == digest else "other weights"
        return f"{same} after step {steps} as the run that kept the batches (sha256 {digest[:8]}, {recorded[:8]})"

    def notes(self, config: Config) -> dict[str, str]:
        """Remarks for the start of the run: other settings, and what another backend does not carry over."""
        changed = [
            line for line in self.config.record.changes(config.record) if not line.startswith(_ELSEWHERE)
        ]  # fmt: skip
        results = {"batches": f"{len(self.steps)} from {self.path}"}
        if changed:
            results["batches, other settings than when they were collected"] = "; ".join(changed)
        if not self.same_learner(config) and self.steps[0]:
            results["batches, optimiser"] = (
                f"the moments of the optimiser are not carried from {self.config.learner.backend} to "
                f"{config.learner.backend}"
            )
        return results


class ReplayedBatches(BatchSource):
    """The batches of a folder, in the order in which they were collected."""

    def __init__(self, folder: BatchFolder) -> None:
        self._folder = folder

    def ready(self, step: int) -> tuple[Batch | RemoteRows, Metrics] | None:
        return self._folder.load(step)


class NoRollout:
    """The rollout of a run on saved batches: it collects none, and keeps the state that the checkpoint holds."""

    def __init__(self) -> None:
        self._state: Any = {}

    def collect(self, step: int, *, round: int = 0) -> tuple[Batch, Metrics]:
        raise UserError(f"there is no saved batch of step {step}, and this run has no samplers to collect one")

    def state_dict(self) -> Any:
        return self._state

    def load_state_dict(self, state: Any) -> None:
        self._state = state


def _name(step: int) -> str:
    return f"batch_{step:06d}.pt"
