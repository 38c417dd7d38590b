"""Graded samples for people: whole groups, with what the algorithm made of them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from rlinf.algorithms.advantages.distributed import complete
from rlinf.data.advantage_spec import Rows
from rlinf.data.batch import Batch
from rlinf.data.inputs import TextInputs
from rlinf.data.messages import PolicyOutput

# A simulator's row is kept as a trace of its first decisions, with its actions where they have few dimensions.
TRACE_POSITIONS, TRACE_ACTIONS = 512, 8


def write_samples(
    folder: Path,
    step: int,
    batch: Rows,
    *,
    groups: int,
    evaluate: Callable[[Batch], PolicyOutput] | None = None,
    rendered: Callable[[int, str], str] | None = None,
) -> None:
    """`samples/step_000010.jsonl`: one response (or episode) a line, for the first ``groups`` groups of the batch.

    ``evaluate`` is the learner after the update: its log-probabilities show which tokens the update moved, and which
    ones it moved past the clip range. ``rendered`` makes the prompt that the policy reads of a task's number and
    question.
    """
    path = folder / "samples" / f"step_{step:06d}.jsonl"
    chosen = set(batch.group_ids.unique()[:groups].tolist())
    rows = [row for row, group in enumerate(batch.group_ids.tolist()) if group in chosen]
    shown = complete(batch.select(rows))
    updated = evaluate(shown).logprobs if evaluate is not None and isinstance(shown.inputs, TextInputs) else None
    lines = sample_lines(shown, updated)
    if rendered is not None:
        lines = [{**line, "rendered": rendered(line["task_id"], line["prompt"])} for line in lines]
    _write_lines(path, lines)


def write_episodes(folder: Path, step: int, episodes: Sequence[Mapping[str, Any]]) -> None:
    """Write `episodes/step_000010.jsonl`: one evaluation episode a line; nothing if there are none (text)."""
    if episodes:
        _write_lines(folder / "episodes" / f"step_{step:06d}.jsonl", episodes)


def sample_lines(batch: Batch, updated: Tensor | None = None) -> list[dict[str, Any]]:
    """Every row as plain data; ``updated`` are the log-probabilities [B, T] after the update."""
    return [_line(batch, row, None if updated is None else updated[row]) for row in range(batch.num_rows)]


def _write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _line(batch: Batch, row: int, updated: Tensor | None) -> dict[str, Any]:
    acted = batch.mask[row]
    reward = batch.rewards[row] if batch.rewards.ndim == 1 else batch.rewards[row].sum()
    line: dict[str, Any] = {
        "group": int(batch.group_ids[row]),
        "reward": float(reward),
        "slots": int(acted.sum()),
        **{name: values[row] for name, values in batch.metadata.items()},
    }
    if batch.domains is not None:
        line["domain"] = batch.domains[row]
    if batch.reward_details.greedy_rewards is not None:
        line["greedy_reward"] = float(batch.reward_details.greedy_rewards[row])
    if batch.advantages is not None:
        advantages = batch.advantages[row][acted]
        line["advantage"] = float(advantages.mean()) if len(advantages) else 0.0
    if not isinstance(batch.inputs, TextInputs):
        return {**line, "trace": _trace(batch, row)}
    return {**line, **_tokens(batch, batch.inputs, row, updated)}


def _tokens(batch: Batch, inputs: TextInputs, row: int, updated: Tensor | None) -> dict[str, Any]:
    """Return all tokens of a conversation and the numbers of each: None where the mask is false.

    False are the tokens of the environment, and those of a response that nothing is learned from. ``mask`` is
    left out if it is true throughout.
    """
    acted = batch.mask[row][: int(inputs.response_lengths[row])]
    line: dict[str, Any] = {"tokens": batch.actions[row][: len(acted)].tolist()}
    if not bool(acted.all()):
        line["mask"] = acted.int().tolist()
    columns = {
        "logprobs": batch.rollout_logprobs,
        "old_logprobs": batch.old_logprobs,
        "ref_logprobs": batch.ref_logprobs,
        "teacher_logprobs": batch.teacher_logprobs,
    }
    per_token = {name: column[row] for name, column in columns.items() if column is not None}
    if updated is not None:
        per_token["updated_logprobs"] = updated
    if batch.advantages is not None and len(batch.advantages[row][batch.mask[row]].unique()) > 1:
        per_token["advantages"] = batch.advantages[row]
    for name, column in per_token.items():
        values = _rounded(column[: len(acted)])
        line[name] = [value if known else None for value, known in zip(values, acted.tolist(), strict=True)]
    return line


def _trace(batch: Batch, row: int) -> dict[str, list[float]]:
    """Return a simulator's row, decision by decision: rewards, values, advantages, and actions of few dimensions."""
    every = batch.positions_per_decision
    acted = batch.mask[row, ::every].nonzero()[:TRACE_POSITIONS, 0]
    columns = {
        "reward": batch.rewards.unflatten(1, (-1, every)).sum(dim=2) if batch.rewards.ndim == 2 else None,
        "advantage": None if batch.advantages is None else batch.advantages[:, ::every],
        "value": None if batch.old_values is None else batch.old_values[:, ::every],
    }
    trace = {name: _rounded(column[row][acted]) for name, column in columns.items() if column is not None}
    actions = batch.actions[row][acted].reshape(len(acted), math.prod(batch.actions.shape[2:]))
    if actions.shape[1] <= TRACE_ACTIONS:
        trace |= {f"action {index}": _rounded(actions[:, index]) for index in range(actions.shape[1])}
    return trace


def _rounded(column: Tensor) -> list[float]:
    return [round(value, 5) for value in column.tolist()]
