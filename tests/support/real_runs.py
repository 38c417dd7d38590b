"""Runs of a few seconds, trained as `rlinf train` trains them, for the pages that they end in."""

from __future__ import annotations

from pathlib import Path

from simulator_runs import overrides, recipe
from tiny_runs import config, mapping
from vision_models import ARCHITECTURES

from rlinf.config import load, load_mapping
from rlinf.report import write_report
from rlinf.sweep.cli import checked_sweep
from rlinf.sweep.export import write_tables
from rlinf.sweep.records import TrialRecord, open_sweep, read_sweep
from rlinf.sweep.summary import summarise
from rlinf.sweep.validate import trial_config
from rlinf.train import run

SWEEP = """
base: ppo.yaml
dir: {folder}/out
set: {{run.max_steps: 2, evaluation.every: 1, evaluation.size: 4, logging.progress: none, logging.tensorboard: false}}
space: {{learner.optimizer.lr: {{grid: [0.001, 0.01]}}}}
seeds: [0, 1]
metric: eval/return
budget: {{steps: 2}}
"""


def text_run(folder: Path) -> Path:
    """Arithmetic with a warm start and evaluations; returns the run directory."""
    run(config(folder, logging={"samples_every": 1}, evaluation={"every": 2}))
    return folder


def conversation_run(folder: Path) -> Path:
    """Three turns each."""
    game = {"id": "guessing:guessing/Guess-v0", "kwargs": {}, "max_turns": 3}
    sections = {
        "run": {"max_steps": 1, "name": "guess [red]x[bold] the number"},
        "sft": {"steps": 40, "batch_size": 8, "lr": 1e-2},
        "rollout": {"batch_size": 2, "max_new_tokens": 40},
        "evaluation": {"size": 4, "env_kwargs": {}},
    }
    run(config(folder, env=game, logging={"samples_every": 1, "trace_every": 1}, **sections))
    return folder


def picture_run(folder: Path) -> Path:
    """A question with a picture, and a tool that shows a part of it."""
    given = mapping(
        folder,
        run={"max_steps": 1, "name": "pictures"},
        sft={"steps": 30, "batch_size": 8},
        rollout={"batch_size": 2, "max_new_tokens": 12},
        logging={"samples_every": 1},
    )
    given["env"] = {"id": "picture_envs:Closer", "max_turns": 2}
    given["policy"]["architecture"] = {"model_type": "qwen2_vl", **ARCHITECTURES["qwen2_vl"]}
    given["evaluation"] = {"size": 2}
    run(load_mapping(given, source="test"))
    return folder


def agent_run(folder: Path) -> Path:
    """Episodes of three branches each."""
    agent = {"id": "agent:agents_for_tests:fork", "kwargs": {"tasks": "agents_for_tests:tasks"}, "max_turns": 8}
    sections = {
        "run": {"max_steps": 1, "name": "an agent that forks"},
        "rollout": {"batch_size": 2, "max_new_tokens": 6, "max_conversation_tokens": 120},
        "evaluation": {"size": 2, "env_kwargs": None},
    }
    run(config(folder, env=agent, logging={"samples_every": 1}, **sections))
    return folder


def simulator_run(folder: Path) -> Path:
    """CartPole, evaluated and filmed."""
    more = ["evaluation.every=2", "evaluation.video_every=2", "env.max_episode_steps=200"]
    run(load(recipe(folder, "ppo"), [*overrides(folder, 4), *more]))
    return folder


def sweep_folder(folder: Path) -> Path:
    """Two settings, two seeds; in this process and without Ray, which only decides where a trial runs."""
    recipe(folder / "run", "ppo")
    (folder / "sweep.yaml").write_text(SWEEP.format(folder=folder))
    sweep, plans = checked_sweep(folder / "sweep.yaml", ["set.cluster.backend=local"])
    open_sweep(sweep)
    for plan in plans:
        record = TrialRecord(plan.number, plan.setting, plan.seed, folder=sweep.folder / "trials" / plan.folder_name)
        record.write()
        run(trial_config(sweep, plan.setting, seed=plan.seed, run_dir=record.run_dir), report=False)
        record.status = "finished"
        record.write()
    write_tables(summarise(read_sweep(sweep.folder)), sweep.folder)
    write_report([sweep.folder])
    return sweep.folder
