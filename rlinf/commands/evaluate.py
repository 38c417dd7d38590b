"""``rlinf eval``: a run's checkpoint again, or any model on any data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlinf.base.arguments import Parser, positive
from rlinf.base.errors import UserError
from rlinf.base.run_folders import no_run

if TYPE_CHECKING:
    from rlinf.train.evaluation.responses import ResponseFiles


def main(arguments: Sequence[str]) -> int:
    """Evaluate and return the exit code."""
    parser = Parser(
        prog="rlinf eval",
        description="Evaluate a run's checkpoint on its own held-out tasks, or a run or a Hugging Face model on other "
        "data, with pass@k, avg@k, maj@k and 95% intervals. docs/evaluation.md shows how each is computed.",
    )
    parser.add_argument("model", metavar="MODEL_OR_RUN", help="a run directory, a Hugging Face folder, or a hub name")
    parser.add_argument("--data", metavar="FILE", help="tasks: JSONL, JSON, Parquet, or a folder of such files")
    parser.add_argument("--suite", metavar="NAME", help="gsm8k, math500 or aime, from --data or from data/NAME")
    parser.add_argument("--step", type=int, metavar="N", help="of a run: the checkpoint of this step, not the newest")
    parser.add_argument("--samples", type=positive, metavar="K", help="responses per task (default 1)")
    parser.add_argument("--temperature", type=float, metavar="T", help="default 0 for one response a task, else 0.6")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N tasks")
    parser.add_argument("--out", metavar="DIR", help="of a bare model: where results go (default runs/eval_NAME)")
    parser.add_argument("--responses", type=Path, metavar="FILE", help="JSONL for all responses, with their verdicts")
    parser.add_argument("--correct", type=Path, metavar="FILE", help="JSONL for the correct ones, for sft.data")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="replace its keys")
    parser.add_argument("--set", action="append", default=[], metavar="key=value", help="override a configuration key")
    options = parser.parse_intermixed_args(list(arguments))
    overrides = [*options.overrides, *options.set]
    from rlinf.train.evaluation.responses import ResponseFiles

    files = ResponseFiles(options.responses, options.correct)
    if options.data is None and options.suite is None:
        return _own_tasks(options, overrides, files)
    from rlinf.train.evaluate_model import evaluate_model
    from rlinf.train.evaluation.chosen_data import Choice

    choice = Choice(options.data, options.suite, options.samples, options.temperature, options.limit)
    choice.path()  # before anything is loaded
    evaluate_model(options.model, choice, overrides, step=options.step, out=options.out, files=files)
    return 0


def _own_tasks(options: argparse.Namespace, overrides: list[str], files: ResponseFiles) -> int:
    """Evaluate the held-out tasks that the run was evaluated on in training."""
    _require_run(options.model)
    named = {"samples": options.samples, "temperature": options.temperature, "size": options.limit}
    if options.samples is not None and options.samples > 1 and options.temperature is None:
        named["temperature"] = 0.6
    overrides += [f"evaluation.{name}={value}" for name, value in named.items() if value is not None]
    from rlinf.train import evaluate_run

    print(f"Run directory: {evaluate_run(options.model, overrides, step=options.step, files=files).run_dir}")
    return 0


def _require_run(named: str) -> None:
    """Raise a UserError that describes what else was named, and what would be valid."""
    path = Path(named)
    if (path / "config.yaml").exists():
        return
    if (path / "config.json").exists():
        raise UserError(f"{named} is a model without tasks of its own: name some with --data or --suite")
    from rlinf.train.stored_run import run_of_checkpoint

    location = run_of_checkpoint(path)
    if location is not None:
        raise UserError(f"{named} is a checkpoint: write rlinf eval {location[0]} --step {location[1]}")
    raise UserError(f"{no_run(path)}. Name one (runs/NAME), or a Hugging Face folder or name with --data or --suite")
