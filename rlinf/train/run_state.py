"""The state of a run: marked when it can be saved, written to checkpoints, and continued from them bit for bit."""

from __future__ import annotations

import copy
import logging
import time
from pathlib import Path
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.signals import Stopped
from rlinf.config import Config
from rlinf.train.checkpoints import Checkpoint, Checkpoints
from rlinf.train.graph import Graph
from rlinf.train.init_from import Source
from rlinf.train.plain_state import load_plain, save_plain
from rlinf.train.prefetch import BatchSource
from rlinf.train.progress import Progress
from rlinf.train.run_dir import RunDirectory, RunDirectoryError
from rlinf.train.tracking.progress import ProgressDisplay

_DRIVER = "driver.pt"
_REWARD = "reward_model"
_log = logging.getLogger(__name__)


class RunState:
    """The progress of a run. Learner and driver are saved together, so both must stand at the same point: a mark."""

    def __init__(
        self,
        config: Config,
        graph: Graph,
        batches: BatchSource,
        folder: RunDirectory,
        display: ProgressDisplay,
        source: Source | None = None,
    ) -> None:
        """``source``: what a run without checkpoints begins with."""
        self.source = source
        self.config, self.graph, self.batches, self.folder, self.display = config, graph, batches, folder, display
        self.progress = Progress("sft" if config.sft.steps and graph.warm_start_batch else "train")
        self._began = time.perf_counter()
        self._marked: dict[str, Any] = {}
        self._saved: dict[str, Any] | None = None

    @property
    def order(self) -> int:
        """The step that a checkpoint of now is named after; those of a warm start are negative."""
        state = self.progress
        return state.step if state.stage == "train" else state.step - self.config.sft.steps

    @property
    def where(self) -> str:
        """The position of the run in words."""
        state = self.progress
        if state.stage == "sft":
            return f"step {state.step} of the warm start"
        warmed = not state.step and self.config.sft.steps and self.graph.warm_start_batch is not None
        return "the end of the warm start" if warmed else f"step {state.step}"

    @property
    def at_work(self) -> str:
        """Describe the step that is being computed."""
        state = self.progress
        if state.stage == "sft":
            return f"step {state.step + 1} of the warm start"
        number = state.step + (state.unfinished is None)
        return f"step {min(number, self.config.run.max_steps)} of {self.config.run.max_steps}"

    @property
    def wall_s(self) -> float:
        """Seconds of training so far, over all sessions."""
        return self.progress.wall_s + time.perf_counter() - self._began

    @property
    def logged_until(self) -> int:
        """The last step whose line of metrics stays when the run goes on from here; what follows is written again."""
        state = self.progress
        if state.stage == "train" and state.unfinished is None and (state.step or state.initial):
            return state.step
        return self.order - 1

    def due(self, every: int, *, of: int | None = None, step: int | None = None) -> bool:
        """Whether something that happens every ``every`` steps, and after the last one, happens now (at ``step``)."""
        now = self.progress.step if step is None else step
        return now == (of or self.config.run.max_steps) or (every > 0 and now % every == 0)

    def begin_training(self) -> None:
        """End the warm start: reinforcement learning begins at step 0."""
        self.progress = Progress("train", wall_s=self.wall_s, untrained=self.progress.untrained)
        self._began = time.perf_counter()

    def mark(self) -> None:
        """Record what the driver holds in addition to the learner, which is now in a state that can be saved."""
        rollout, algorithm = self.graph.rollout.state_dict(), self.graph.preparation.state_dict()
        # Copies: they change while the next batch is collected. A batch that waits does not.
        self._marked = {
            "rollout": copy.deepcopy(rollout),
            "algorithm": copy.deepcopy(algorithm),
            "batches": self.batches.state_dict(),
            **({} if self.graph.counting is None else {"failures": self.graph.counting.state_dict()}),
        }

    def save(self) -> None:
        """Write a checkpoint of what was marked last to a temporary folder, then rename it.

        A kill leaves the one before."""
        state = self.progress
        state.wall_s, self._began = self.wall_s, time.perf_counter()
        _log.info("step %d: checkpoint", self.order)
        self.save_into(self.folder.checkpoints)
        self.folder.checkpoints.prune(self.config.checkpoint.keep, state.best[1] if state.best else None)
        self._saved = self._marked

    def save_into(self, checkpoints: Checkpoints) -> None:
        """Write a checkpoint of what was marked last into another folder of checkpoints."""
        state = self.progress
        checkpoints.write(self.order, {**vars(state), "stage_step": state.step}, self._fill)

    def save_stopped(self, stop: Stopped) -> None:
        """Save what was marked last, if it is not saved yet; at a second signal the checkpoint before has to do."""
        if self._marked is not self._saved:
            self.display.print_line("saving a checkpoint")
            self.save()
        stop.outlook = f"the same command continues from {self.where}"

    def resume(self, *, verb: str = "continuing from") -> None:
        """Continue from the newest whole checkpoint, bit for bit; without any, begin with the source.

        ``verb``: what is done with the checkpoint, in the line about it.

        Raises UserError if checkpoints are there and none of them can be used: starting again would lose the run.
        """
        survey = self.folder.checkpoints.survey()
        for note in survey.damaged:
            self.display.print_line(f"passed over a damaged checkpoint: {note}", style="yellow")
        if survey.newest is not None:
            self._restore(survey.newest)
            self.display.print_line(
                f"{verb} {survey.newest.folder.name}" + (" of the warm start" if self.progress.stage == "sft" else "")
            )
        elif survey.damaged:
            raise self.folder.nothing_whole(survey)
        elif self.source is not None:
            # Saved at once: from here on the other run is not needed.
            self.graph.learner.init_from(self.source.checkpoint.folder, optimizer=self.config.run.init_optimizer)
            self.source.record(self.folder.path, self.config)
            self.mark()
            self.save()
            for line in self.source.lines(self.config):
                self.display.print_line(line)

    def _fill(self, folder: Path) -> None:
        """Write learner, driver and reward into the folder of a checkpoint."""
        self.graph.learner.save(folder)
        save_plain(self._marked, folder / _DRIVER)
        for model in self.graph.reward_models:
            model.save(folder / _REWARD)

    def _restore(self, result: Checkpoint) -> None:
        try:
            self._load(result)
        except UserError:
            raise
        except Exception as error:
            # Its files are as they were written, or from a version that kept no checksums.
            reason = str(error).strip().splitlines()
            raise RunDirectoryError(
                f"{result.folder} cannot be loaded ({type(error).__name__}: {reason[-1] if reason else ''}): remove it "
                "to go on from the one before, or choose another run.dir"
            ) from error

    def _load(self, result: Checkpoint) -> None:
        saved = dict(result.state)
        if saved["stage"] == "train" and self.progress.stage == "sft":
            self.graph.learner.start("train")
        self.graph.learner.load(result.folder)
        driver = load_plain(result.folder / _DRIVER)
        missing = {"rollout", "algorithm", "batches"} - set(driver)
        if missing:
            raise UserError(
                f"{result.folder} was written by another version of rlinf: it has no {', '.join(sorted(missing))}"
            )
        self.graph.rollout.load_state_dict(driver["rollout"])
        self.graph.preparation.load_state_dict(driver["algorithm"])
        self.batches.load_state_dict(driver["batches"])
        if self.graph.counting is not None and "failures" in driver:  # earlier versions did not keep them
            self.graph.counting.load_state_dict(driver["failures"])
        for model in self.graph.reward_models:
            model.load(result.folder / _REWARD)
        self.progress = Progress(
            stage=saved["stage"],
            step=saved["stage_step"],
            wall_s=saved["wall_s"],
            initial=saved["initial"],
            evaluation=saved["evaluation"],
            evaluated=saved.get("evaluated", saved["stage_step"]),
            best=tuple(saved["best"]) if saved["best"] else None,
            unfinished=saved.get("unfinished"),
            untrained=saved.get("untrained", {}),
            lr_scale=saved.get("lr_scale", 1.0),
        )
        if self.progress.lr_scale != 1.0:
            self.graph.learner.scale_lr(self.progress.lr_scale)
