"""``rlinf try FILE``: what the policy answers and earns as it is, before anybody trains."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rlinf.base.arguments import Parser
from rlinf.base.errors import UserError
from rlinf.base.redaction import redacted
from rlinf.base.terminal import printable
from rlinf.config import resolve
from rlinf.data.pictures import described
from rlinf.train.picture_costs import token_count
from rlinf.train.tracking.transcript import transcript
from rlinf.train.try_policy import TrialOptions, trial


def main(arguments: Sequence[str]) -> int:
    """Show the graded responses one by one, then how many were correct. Raises UserError as training would."""
    options = _parser().parse_intermixed_args(list(arguments))
    if options.tasks < 1 or options.samples < 0:
        raise UserError("rlinf try: --tasks must be at least 1, --samples at least 0")
    resolved = resolve(options.file, options.overrides)
    for note in (*resolved.notes, *resolved.warnings):
        print(redacted(note), file=sys.stderr)
    requested = TrialOptions(tasks=options.tasks, samples=options.samples, split=options.split)
    console = Console()
    shown: list[Mapping[str, Any]] = []
    for graded in trial(resolved.config, requested):
        shown.append(graded)
        if options.json:
            print(json.dumps(graded), flush=True)
        else:
            console.print(_panel(graded))
    if not options.json:
        console.print(_summary(shown, sampled=options.samples > 0))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="rlinf try",
        description="Answer a handful of tasks with the policy as it is: prompt, response, the answer found in it, the "
        "verdict, and every term of the reward. Nothing is trained and nothing is written.",
    )
    parser.add_argument("file", metavar="FILE", help="a YAML file")
    parser.add_argument("overrides", nargs="*", default=[], metavar="key=value", help="replace keys of the file")
    parser.add_argument("--tasks", type=int, default=4, metavar="N", help="the first N tasks (default: 4)")
    parser.add_argument(
        "--samples",
        type=int,
        default=0,
        metavar="N",
        help="N responses to each task at rollout.temperature (default: one, the likeliest token each time)",
    )
    parser.add_argument("--split", choices=("train", "eval"), default="train", help="whose tasks (default: train)")
    parser.add_argument("--json", action="store_true", help="one object a line instead")
    return parser


def _panel(graded: Mapping[str, Any]) -> Panel:
    correct = graded["verdict"] == "correct"
    grid = Table.grid(padding=(0, 2))
    extracted = "no answer" if graded["extracted"] is None else printable(str(graded["extracted"]))
    terms = ", ".join(f"{printable(name)} {value:g}" for name, value in graded["terms"].items())
    rows: list[tuple[str, Text]] = [
        ("prompt", Text(printable(described(graded["rendered"])))),
        ("response", transcript(graded)),
        ("found", Text(f"{extracted} (right: {printable(str(graded['answer']))})")),
        ("verdict", Text(printable(graded["verdict"]), style="green" if correct else "red")),
        ("reward", Text(f"{graded['reward']:g}" + (f" (before weights: {terms})" if terms else ""))),
    ]
    rows += [("pictures", Text("\n".join(graded["picture_costs"])))] if graded["picture_costs"] else []
    for label, text in rows:
        grid.add_row(Text(label, style="dim"), text)
    ended = "" if graded["finish"] == "stop" else f", ended by: {graded['finish']}"
    seen = f", {token_count(graded['picture_tokens'])} of pictures" if graded["picture_tokens"] else ""
    title = f"task {graded['task']}, {token_count(graded['tokens'])}{seen}{ended}"
    return Panel(Group(grid), title=title, title_align="left", border_style="green" if correct else "red")


def _summary(shown: Sequence[Mapping[str, Any]], *, sampled: bool) -> str:
    """Explain the figures for training: responses that all earn the same reward teach nothing."""
    if not shown:
        return "Every prompt is longer than data.max_prompt_length."
    rewards = [graded["reward"] for graded in shown]
    correct = sum(graded["verdict"] == "correct" for graded in shown)
    cut = sum(graded["finish"] in ("length", "conversation_length") for graded in shown)
    line = f"{correct} of {len(shown)} correct, mean reward {sum(rewards) / len(rewards):.3g}."
    if cut:
        line += f" {cut} cut by the length limit (rollout.max_new_tokens)."
    if sampled and len(set(rewards)) == 1:
        line += " Every response earned the same: there is nothing to learn from. Take easier tasks, or teach first."
    elif not sampled:
        line += " --samples 8 shows what training samples."
    return line
