"""The end of a run: `summary.json`, and what a person sees."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlinf.types import Metrics, WeightUpdate


def fingerprint(updates: Iterable[WeightUpdate]) -> str:
    """The sha256 of all parameters: names, shapes and float32 bytes, in order of name within each part."""
    digest = sha256()
    for update in updates:
        for name in sorted(update.tensors):
            tensor = update.tensors[name].detach().float().contiguous()
            digest.update(f"{name}{tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


def show(
    console: Console, *, initial: Metrics, final: Metrics, samples: list[dict[str, Any]], folder: str, wall_s: float
) -> None:
    """Before and after with 95% intervals, three graded samples, and where everything is."""
    if final:
        console.print(_table(initial, final))
    for sample in samples[:3]:
        colour = "green" if sample.get("verdict") == "correct" else "red"
        console.print(f"\n[dim]prompt[/]    {escape(str(sample.get('prompt', '')))}")
        console.print(f"[dim]response[/]  {escape(str(sample.get('response', '')))}")
        console.print(
            f"[dim]graded[/]    [{colour}]{sample.get('verdict', '')}[/]  "
            f"answer {escape(str(sample.get('answer', '')))}  reward {sample.get('reward', 0.0):.2f}"
        )
    console.print(
        f"\n{wall_s:.0f} s in all. Everything is in [bold]{folder}[/]: summary.json, metrics.jsonl, samples, policy"
    )


def _table(initial: Metrics, final: Metrics) -> Table:
    table = Table(title="evaluation")
    for name in ("metric", "before", "after"):
        table.add_column(name, justify="left" if name == "metric" else "right")
    for name in final:
        if name.startswith("eval/") and "/ci_" not in name and not name.endswith("/n"):
            table.add_row(name.removeprefix("eval/"), _cell(name, initial), _cell(name, final))
    return table


def _cell(name: str, metrics: Metrics) -> str:
    if name not in metrics:
        return "-"
    if f"{name}/ci_low" not in metrics:
        return f"{metrics[name]:.3f}"
    return f"{metrics[name]:.3f} [{metrics[f'{name}/ci_low']:.3f}, {metrics[f'{name}/ci_high']:.3f}]"
