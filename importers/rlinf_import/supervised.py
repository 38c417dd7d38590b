"""Supervised and preference training as files for `rlinf sft`: what several frameworks have in common."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rlinf_import.fitting import DATA
from rlinf_import.models import schedule
from rlinf_import.names.meaning import nothing
from rlinf_import.sheet import Sheet

ROWS = nothing("docs/sft.md describes how rows are read")
_PROMPTS = ("prompt", "question", "instruction", "problem", "query", "input")
_RESPONSES = ("response", "completion", "output", "answer", "solution")
COLUMNS: Mapping[str, tuple[str, ...]] = {
    "messages": ("messages", "conversations", "conversation"),
    "prompts": _PROMPTS,
    "what follows a prompt": ("input", "context", "query"),
    "responses": _RESPONSES,
    "system prompts": ("system", "system_prompt"),
    "tools": ("tools", "functions"),
    "chosen answers": ("chosen",),
    "rejected answers": ("rejected",),
}
"""Names of columns that `rlinf sft` reads (docs/sft.md)."""


def data(sheet: Sheet, train: str, held_out: str) -> None:
    """Set the files that are imitated and that measure."""
    for key, ours in ((train, "sft.data"), (held_out, "sft.eval_data")):
        names = _files(sheet.take(key))
        if names:
            sheet.put(ours, names[0], key)
        if len(names) > 1:
            sheet.defer(f"{ours} is one file or folder: put these into one folder, or one file", key)
    if "sft.data" in sheet.settings and sheet.value("sft.data") == sheet.value("sft.eval_data"):
        sheet.drop("sft.eval_data", "the rows of training: held-out rows would be left out of it (sft.eval_fraction)")
    if "sft.data" not in sheet.settings:
        sheet.put("sft.data", DATA)
        sheet.defer(f"sft.data: the training data ({DATA} stands for them)")


def _files(value: object) -> list[str]:
    if isinstance(value, str) and value.startswith("["):
        value = [part.strip(" '\"") for part in value.strip("[]").split(",")]
    names = value if isinstance(value, list) else [value] if value else []
    return [name for name in names if isinstance(name, str)]


def column(sheet: Sheet, key: str, kind: str) -> None:
    """Account for the name of a column: read under that name, or to be renamed in the file."""
    given = sheet.take(key)
    if given is None:
        return
    if str(given) in COLUMNS[kind]:
        sheet.ignore(key, f"columns of that name are read as {kind}")
    else:
        sheet.defer(f"rename this column to {COLUMNS[kind][0]}: `rlinf sft` reads {kind} there", key)


def batch(sheet: Sheet, rows: int, *keys: str) -> None:
    """Set the conversations, or pairs, of an optimiser step."""
    sheet.put("sft.batch_size", max(1, rows), *keys)


def length(sheet: Sheet, steps: str | None, epochs: str) -> None:
    """Set the length of the run: optimiser steps if the file has them, else passes over the data."""
    number = sheet.count(steps) if steps else None
    if steps and number and number > 0:
        sheet.put("sft.steps", number, steps)
        sheet.ignore(epochs, f"{steps} decides")
        return
    passes = sheet.number(epochs)
    if passes is None:
        usual = sheet.defaults.get(epochs)
        sheet.defer(f"sft.epochs: the passes over the data ({usual} stands for them)")
        sheet.put("sft.epochs", usual)
    elif passes:
        sheet.put("sft.epochs", passes, epochs)


def steps_of(sheet: Sheet) -> int | None:
    """Return the optimiser steps of the run, if they are known: of epochs with ``--rows``."""
    steps, passes, rows = sheet.value("sft.steps"), sheet.value("sft.epochs"), sheet.options.rows
    size = sheet.value("sft.batch_size")
    if isinstance(steps, int):
        return steps
    if isinstance(passes, int | float) and rows and isinstance(size, int):
        return max(1, math.ceil(passes * rows / size))
    return None


def warmup(sheet: Sheet, steps: str | None, share: str | None) -> None:
    """Set the warm-up, from optimiser steps or from a share of the run; without either there is none."""
    given = sheet.number(steps) if steps else None
    part = sheet.number(share) if share else None
    if steps and given is not None and 0 < given < 1:
        part, share, given = given, steps, None
    if steps and given and given > 0:
        sheet.put("sft.warmup_steps", round(given), steps)
        if share:
            sheet.ignore(share, f"{steps} decides")
        return
    whole = steps_of(sheet)
    if not part or not share:
        sheet.put("sft.warmup_steps", 0, *[key for key in (steps, share) if key and sheet.written(key) is not None])
    elif whole is not None:
        sheet.put("sft.warmup_steps", round(part * whole), share)
    else:
        sheet.put("sft.warmup_steps", 0, share)
        sheet.defer(f"sft.warmup_steps: {part:g} of the run's steps (--rows N computes it)", share)


def falling(sheet: Sheet, kind: str, *ends: str) -> None:
    """Set the schedule; ``ends`` are keys of a rate at its end, which is 0 here."""
    schedule(sheet, kind, "sft.schedule")
    for key in ends:
        located = sheet.written(key)
        if located is not None and located.value not in (None, 0, 0.0):
            sheet.differ(key, "sft.schedule linear and cosine reach 0 at the last step")


def evaluate(sheet: Sheet, key: str) -> None:
    """Set how often held-out rows are measured, in optimiser steps; -1 and 0 are never."""
    number = sheet.count(key)
    if number is None or number <= 0:
        sheet.ignore(key, "held-out rows are measured before and after the run")
    elif "sft.eval_data" in sheet.settings:
        sheet.put("sft.evaluate_every", number, key)
    else:
        sheet.ignore(key, "without sft.eval_data nothing is measured")
