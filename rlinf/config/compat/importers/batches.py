"""Arithmetic that several frameworks share: minibatches and lengths of runs."""

from __future__ import annotations

import math

from rlinf.config.compat.importers.sheet import Sheet
from rlinf.config.defaults import schema_default


def minibatches(sheet: Sheet, whole: int, part: int, *keys: str) -> int:
    """Set ``algorithm.num_minibatches`` so that each holds ``part`` of ``whole``; returns it.

    A remainder is said: there every minibatch has the same share of the batch.
    """
    number = max(1, round(whole / part)) if part else 1
    if number > 1 or keys:
        sheet.put("algorithm.num_minibatches", number, *keys)
    if part and number * part != whole:
        sheet.differ(keys[0], f"{whole} is not a multiple of {part}: {number} equal minibatches of {whole / number:g}")
    return number


def epochs(sheet: Sheet, key: str, prompts: int | None) -> None:
    """Set ``run.max_steps`` from a number of passes over the data, or ask for the number of rows."""
    number = sheet.number(key)
    if number is None:
        return
    rows = sheet.options.rows
    if rows is None or not prompts:
        each = f"rows / {prompts}" if prompts else "rows / prompts of a step"
        sheet.ask(f"run.max_steps counts training iterations: {number:g} x {each} (--rows N computes it)", key)
        return
    sheet.put("run.max_steps", max(1, math.floor(number * rows / prompts)), key)
    sheet.differ(
        key, f"{rows} rows and {prompts} prompts a step: run.max_steps {sheet.settings['run.max_steps'].value}"
    )


def every(sheet: Sheet, key: str, ours: str) -> None:
    """A period in steps where others write -1 for never."""
    number = sheet.count(key)
    if number is not None:
        sheet.put(ours, max(0, number), key)


def rows_fit(sheet: Sheet) -> None:
    """Raise ``learner.micro_batch_tokens`` where one row would not fit into its default."""
    limits = [sheet.settings.get(key) for key in ("data.max_prompt_length", "rollout.max_new_tokens")]
    row = sum(limit.value for limit in limits if limit is not None and isinstance(limit.value, int))
    tokens = sheet.settings.get("learner.micro_batch_tokens")
    held = schema_default("learner.micro_batch_tokens") if tokens is None else tokens.value
    if isinstance(held, int) and held < row:
        sheet.put("learner.micro_batch_tokens", row)
        sheet.differs.append(f"{sheet.source.path}: learner.micro_batch_tokens: {row} holds the longest row")
