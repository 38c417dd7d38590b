"""Answers of a language model to held-out tasks, as they are given and graded."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import cast

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlinf.cluster import connect
from rlinf.config import Config
from rlinf.report.watch_options import WatchOptions
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


class TextShow:
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
        """Asks the held-out tasks one after the other, so that each answer is there as soon as it is given."""
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
