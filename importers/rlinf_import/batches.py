"""Arithmetic that several frameworks share: minibatches and lengths of runs."""

from __future__ import annotations

import math
from typing import Literal

from rlinf_import.sheet import Sheet

MEASURED_KL = "the controller's KL is the mean over all tokens here, and there the mean over rows of each row's mean"
"""Of adaptive coefficients, in verl and ROLL."""
Unit = Literal["iterations", "updates"]
"""What a number of steps counts: training iterations, or optimiser steps."""


def minibatches(sheet: Sheet, whole: int, part: int, *keys: str) -> int:
    """Set ``algorithm.num_minibatches`` so that each holds ``part`` of ``whole``; return it.

    A remainder is reported: here every minibatch has the same share of the batch.
    """
    number = max(1, round(whole / part)) if part else 1
    if number > 1 or keys:
        sheet.put("algorithm.num_minibatches", number, *keys)
    if part and number * part != whole:
        sheet.differ(keys[0], f"{whole} is not a multiple of {part}: {number} equal minibatches of {whole / number:g}")
    return number


def epochs(sheet: Sheet, key: str, prompts: int | None, whole: bool = False) -> None:
    """Set ``run.max_steps`` from a number of passes over the data, or request the number of rows.

    ``whole``: each pass leaves out the rows that do not fill a step.
    """
    number = sheet.number(key)
    if number is None:
        return
    rows = sheet.options.rows
    if rows is None or not prompts:
        each = f"rows / {prompts}" if prompts else "rows / prompts of a step"
        sheet.defer(f"run.max_steps counts training iterations: {number:g} x {each} (--rows N computes it)", key)
        return
    steps = number * (rows // prompts) if whole else number * rows / prompts
    sheet.put("run.max_steps", max(1, math.floor(steps)), key)
    sheet.differ(
        key, f"{rows} rows and {prompts} prompts a step: run.max_steps {sheet.settings['run.max_steps'].value}"
    )


def warmup(sheet: Sheet, steps: float, unit: Unit, *keys: str) -> None:
    """Set ``learner.optimizer.warmup_steps`` from a number of optimiser steps or of training iterations.

    Only this function decides which of the two our key counts: optimiser steps.
    """
    updates = updates_of(sheet)
    ours = steps * updates if unit == "iterations" else steps
    if ours > 0:
        sheet.put("learner.optimizer.warmup_steps", max(1, round(ours)), *keys)
    if unit == "iterations" and updates > 1 and keys:
        sheet.differ(keys[0], f"it counts training iterations there, and here optimiser steps, {updates} in each")


def updates_of(sheet: Sheet) -> int:
    """Optimiser steps of one training iteration, as far as they were set."""
    counts = [sheet.value(f"algorithm.{name}") for name in ("update_epochs", "num_minibatches")]
    return math.prod(count for count in counts if isinstance(count, int)) or 1


def share_of_run(sheet: Sheet, key: str, ours: str = "learner.optimizer.warmup_steps") -> None:
    """Set a warm-up that is given as a share of the run, if the run's length is known."""
    share = sheet.number(key)
    if not share:
        return
    steps = sheet.value("run.max_steps")
    if isinstance(steps, int):
        warmup(sheet, share * steps, "iterations", key)
    else:
        sheet.defer(f"{ours}: {share:g} of the run, whose length is unknown", key)


def every(sheet: Sheet, key: str, ours: str) -> None:
    """Set a period in steps, for which others write -1 to mean never."""
    number = sheet.count(key)
    if number is not None:
        sheet.put(ours, max(0, number), key)
