"""Graded samples for people: whole groups, with what the algorithm made of them."""

from __future__ import annotations

import json
from pathlib import Path

from rlinf.types import Batch


def write_samples(folder: Path, step: int, batch: Batch, *, groups: int) -> None:
    """`samples/step_000010.jsonl`: one response (or episode) a line, for the first ``groups`` groups of the batch."""
    path = folder / "samples" / f"step_{step:06d}.jsonl"
    path.parent.mkdir(exist_ok=True)
    chosen = set(batch.group_ids.unique()[:groups].tolist())
    rows = [row for row, group in enumerate(batch.group_ids.tolist()) if group in chosen]
    path.write_text("".join(json.dumps(_line(batch, row)) + "\n" for row in rows))


def _line(batch: Batch, row: int) -> dict[str, object]:
    acted = batch.mask[row]
    reward = batch.rewards[row] if batch.rewards.ndim == 1 else batch.rewards[row].sum()
    line: dict[str, object] = {
        "group": int(batch.group_ids[row]),
        "reward": float(reward),
        "slots": int(acted.sum()),
        **{name: values[row] for name, values in batch.metadata.items()},
    }
    if batch.actions.ndim == 2 and "prompt_ids" in batch.inputs:
        line["tokens"] = batch.actions[row][acted].tolist()
        line["logprobs"] = [round(value, 5) for value in batch.logprobs[row][acted].tolist()]
    if batch.advantages is not None:
        advantages = batch.advantages[row][acted]
        line["advantage"] = float(advantages.mean()) if len(advantages) else 0.0
    return line
