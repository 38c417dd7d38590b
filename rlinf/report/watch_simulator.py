"""Episodes of a simulator run, in a window or as a video."""

from __future__ import annotations

import os
from contextlib import nullcontext
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlinf.base.errors import UserError
from rlinf.base.terminal import printable
from rlinf.config import Config
from rlinf.config.derived import evaluation_env
from rlinf.config.extras import Extra
from rlinf.learners.stored_policy import load_policy
from rlinf.report.watch_options import WatchOptions
from rlinf.rollouts.simulator.episodes import EpisodeCollector
from rlinf.rollouts.simulator.evaluation_starts import evaluation_tasks
from rlinf.rollouts.simulator.records import EpisodeRecord, report_success
from rlinf.rollouts.vec_env.make_env import make_env
from rlinf.rollouts.vec_env.mixture import Mixture
from rlinf.rollouts.vec_env.offscreen import has_display, offscreen
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.rollouts.vec_env.vec_env import VecEnv
from rlinf.rollouts.video.filmable import try_filming
from rlinf.rollouts.video.filmed import FilmedVecEnv
from rlinf.schema import EnvConfig
from rlinf.train.assemble.simulator_policy import make_trained_policy
from rlinf.train.checkpoints import Checkpoint

_WINDOW_MODE = "human"


class SimulatorShow:
    """Fits `watch.Show`. The start states are those of the evaluation, unless a seed gives others."""

    def __init__(self, config: Config, options: WatchOptions) -> None:
        self.config, self.options, self.console = config, options, Console()
        env = evaluation_env(config)
        self.film: FilmedVecEnv | None = None
        if options.out is None and has_display() and _opens_windows(env):
            # One environment that draws itself into a window, at its own pace.
            self.vec_env: VecEnv = SyncVecEnv(env, 1, partial(make_env, render_mode=_WINDOW_MODE))
        else:
            self.film = self.vec_env = _film(env, options.episodes)
        policy: Any = make_trained_policy(
            config, self.vec_env.observation_space, self.vec_env.action_space, options.run / "tokenizer"
        )
        self.policy = policy.eval()
        self.collector = EpisodeCollector(
            self.vec_env,
            seed=config.run.seed,
            chunk=env.num_action_chunks,
            max_failures=env.max_failures,
            mixture=Mixture.of(env),
        )

    def show(self, checkpoint: Checkpoint) -> None:
        """Plays the episodes with the weights of ``checkpoint``."""
        load_policy(checkpoint.folder, self.policy)
        seed = self.options.start_seed(self.config)
        states = len(self.config.evaluation.reset_state_ids)
        tasks = evaluation_tasks(seed, Mixture.of(self.config.env), self.options.episodes, states)
        path = (self.options.out or self.options.run / "videos" / f"watch_step_{checkpoint.step:06d}.mp4").resolve()
        filming = nullcontext() if self.film is None else self.film.filming(path, [task.start_seed for task in tasks])
        with filming:
            run = self.collector.run(self.policy, tasks, checkpoint.step, greedy=self.options.greedy(self.config))
        self.console.print(_table(checkpoint.step, [episode.record for episode in run.episodes]))
        if self.film is not None:
            if self.film.problem is not None:
                raise UserError(f"no video: {self.film.problem}")
            self.console.print(Text(printable(f"Video: {path}")), soft_wrap=True)

    def close(self) -> None:
        self.vec_env.close()


def _opens_windows(env: EnvConfig) -> bool:
    if env.isolation == "process":
        return False
    probe = make_env(env)
    try:
        return _WINDOW_MODE in (probe.metadata.get("render_modes") or [])
    finally:
        probe.close()


def _film(env: EnvConfig, episodes: int) -> FilmedVecEnv:
    os.environ.update(offscreen())
    extra = Extra("video", "a video")
    if not extra.installed:
        raise UserError(f"a video needs {extra.fix}")
    problem = try_filming(env).problem
    if problem is not None:
        raise UserError(problem)
    return FilmedVecEnv(env, episodes)


def _table(step: int, records: list[EpisodeRecord]) -> Table:
    reported = report_success(records)
    table = Table(title=f"step {step}")
    for name in ("episode", "steps", "return", *(["success"] if reported else [])):
        table.add_column(name, justify="right")
    for record in records:
        success = "at the end" if record.success_at_end else "on the way" if record.success_once else "no"
        table.add_row(str(record.key), str(record.length), f"{record.total:.4g}", *([success] if reported else []))
    return table
