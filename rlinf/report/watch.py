"""`rlinf watch RUN`: what the policy does now. Episodes in a window or a video; answers of language models as text."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from rlinf.base.arguments import Parser
from rlinf.base.errors import UserError
from rlinf.base.run_folders import no_run
from rlinf.config import Config
from rlinf.config.derived import is_text
from rlinf.config.stored import load_stored
from rlinf.report.runs import is_run
from rlinf.report.watch_options import WatchOptions

if TYPE_CHECKING:
    from rlinf.train.checkpoints import Checkpoint
    from rlinf.train.run_dir import RunDirectory


from contextlib import ExitStack
from dataclasses import replace
from typing import cast

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlinf.cluster import connect
from rlinf.rollouts.text.conversation import Row
from rlinf.rollouts.text.rollout import TextRollout
from rlinf.train.assemble.setup import ResolvedRun
from rlinf.train.checkpoints import Checkpoint
from rlinf.train.evaluation.text import sample
from rlinf.train.loop import Trainer
from rlinf.train.run import build_graph
from rlinf.train.run_dir import RunDirectory
from rlinf.train.tracking.progress import ProgressDisplay
from rlinf.train.tracking.transcript import graded


# Answers of a language model to held-out tasks, as they are given and graded.
class _TextShow:
    """Fits `watch.Show`, with the processes of the run inside this one."""

    def __init__(self, config: Config, options: WatchOptions) -> None:
        self.config, self.options, self.console = config, options, Console()
        self._open = ExitStack()
        setup = ResolvedRun.of(config)
        cluster = self._open.enter_context(connect(setup.cluster))
        display = ProgressDisplay(name=config.run.name, mode="none", total=config.run.max_steps, done=0)
        graph = build_graph(setup, cluster, options.run)
        self.trainer = Trainer(config, graph, RunDirectory(options.run), display)
        self.rollout = cast(TextRollout, graph.rollout)

    def show(self, checkpoint: Checkpoint) -> None:
        """Sample the held-out tasks one after the other, so that each answer is there as soon as it is given."""
        self.trainer.run.folder = RunDirectory(self.options.run, only=checkpoint.step)
        self.trainer.run.resume()
        graph, step = self.trainer.graph, self.trainer.run.progress.step
        graph.send_weights(step)
        self.console.rule(f"step {checkpoint.step}")
        params = self.rollout.params
        params = params.greedy() if self.options.greedy(self.config) else replace(params, temperature=1.0)
        key = (self.options.start_seed(self.config), 0)
        for task in range(self.options.episodes):
            done = self.rollout.converse("eval", [task], samples=1, params=params, key=key)
            rows = [*done.branches, *done.rows]
            for number, row in enumerate(rows):
                read = self.rollout.rendered(row.task_id, row.prompt_text)
                self.console.print(_panel(row, read, number, len(rows)))

    def close(self) -> None:
        self._open.close()


def _panel(row: Row, rendered: str, number: int, branches: int) -> Panel:
    """One of the ``branches`` of an episode; an environment's conversation is one alone."""
    colour = "green" if row.verdict == "correct" else "red"
    grid = Table.grid(padding=(0, 2))
    for label, text in graded({**sample(row, rendered), "branch": number, "branches": branches}):
        grid.add_row(Text(label, style="dim"), text)
    title = f"task {row.task_id}, {sum(row.mask)} tokens of the policy"
    return Panel(grid, title=title, title_align="left", border_style=colour)


_POLL_S = 1.0


class Show(Protocol):
    """Shows a policy; ready when it is made, so that newer weights cost nothing but themselves."""

    def show(self, checkpoint: Checkpoint) -> None: ...

    def close(self) -> None: ...


def main(arguments: Sequence[str]) -> int:
    """Return 0 when there is nothing more to show. Raises :class:`UserError` if there is nothing at all."""
    options, overrides = _parse(arguments)
    if not is_run(options.run):
        raise UserError(no_run(options.run))
    config = load_stored(options.run / "config.yaml", ["cluster.backend=local", *overrides])
    show: Show | None = None
    try:
        for checkpoint in checkpoints(options, config):
            show = show or _show(config, options)
            show.show(checkpoint)
    finally:
        if show is not None:
            show.close()
    return 0


def _parse(arguments: Sequence[str]) -> tuple[WatchOptions, list[str]]:
    parser = Parser(
        prog="rlinf watch",
        description="Show what a run's newest policy does: simulators in a window, or in a video where there is no "
        "display; language models as prompts, responses and rewards.",
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run directory, finished or not")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="replace keys of the run's file")
    parser.add_argument("--step", type=int, help="the checkpoint of this step (default: the newest)")
    parser.add_argument("--episodes", type=int, default=4, help="episodes, or tasks of a text run (default: 4)")
    parser.add_argument("--seed", type=int, help="other start states than those of the evaluation")
    parser.add_argument(
        "--deterministic",
        action=argparse.BooleanOptionalAction,
        help="the most likely action, or one that is drawn (default: as the evaluation does)",
    )
    parser.add_argument("--out", type=Path, help="write a video (.mp4) here, even where there is a display")
    parser.add_argument("--follow", action="store_true", help="show every newer checkpoint while training goes on")
    parser.add_argument(
        "--patience", type=float, default=3600.0, metavar="SECONDS", help="how long to wait for one (default: 3600)"
    )
    result = parser.parse_intermixed_args(arguments)
    if result.episodes < 1:
        parser.error("--episodes must be 1 or more")
    if result.out is not None and result.out.suffix != ".mp4":
        parser.error(f"--out {result.out}: the file must end in .mp4")
    if result.follow and result.step is not None:
        parser.error("--follow shows the newest checkpoints: leave --step out")
    options = WatchOptions(
        run=result.run,
        step=result.step,
        episodes=result.episodes,
        seed=result.seed,
        deterministic=result.deterministic,
        out=result.out,
        follow=result.follow,
        patience_s=result.patience,
    )
    return options, result.overrides


def checkpoints(options: WatchOptions, config: Config) -> Iterator[Checkpoint]:
    """Yield the checkpoint that was requested; with ``follow`` every newer one, to the end of the run."""
    from rlinf.train.run_dir import RunDirectory

    directory = RunDirectory(options.run, only=options.step)
    survey = directory.checkpoints.survey()
    newest = survey.newest
    if newest is None and survey.damaged and not options.follow:
        raise directory.nothing_whole(survey)
    if newest is None and not options.follow:
        raise UserError(_nothing(directory, options, config))
    waited = time.monotonic()
    shown: int | None = None
    while True:
        if newest is not None and newest.step != shown:
            yield newest
            shown, waited = newest.step, time.monotonic()
        if not options.follow or (directory.summary() is not None and _caught_up(directory, shown)):
            return
        if time.monotonic() - waited > options.patience_s:
            raise UserError(f"{options.run} wrote no newer checkpoint in {options.patience_s:.0f} s: is it training?")
        time.sleep(_POLL_S)
        newest = directory.latest()


def _caught_up(directory: RunDirectory, shown: int | None) -> bool:
    newest = directory.latest()
    return newest is None or newest.step == shown


def _nothing(directory: RunDirectory, options: WatchOptions, config: Config) -> str:
    steps = ", ".join(str(step) for step in directory.steps())
    if steps:
        return f"{options.run} has no checkpoint of step {options.step}; there are those of {steps}"
    every = config.checkpoint.every
    when = f"each {every} steps" if every else "at the end"
    return f"{options.run} has no checkpoint yet: one is written {when} (checkpoint.every). --follow waits for it."


def _show(config: Config, options: WatchOptions) -> Show:
    if is_text(config):
        return _TextShow(config, options)
    from rlinf.report.watch_simulator import SimulatorShow

    return SimulatorShow(config, options)
