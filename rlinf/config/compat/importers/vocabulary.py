"""The vocabularies that configurations of ours may be written in (ROLL's and RLinf's), written out in our names."""

from __future__ import annotations

import copy

from rlinf.config.compat.aliases import FLAT, NOT_NEEDED, UNDER_ALGORITHM, rename, translate_values
from rlinf.config.compat.combined import combine
from rlinf.config.compat.importers.sheet import Setting, Sheet
from rlinf.config.compat.importers.written import Code
from rlinf.config.compat.semantics import adopt, roll_origin
from rlinf.config.names import leaves
from rlinf.config.problems import ConfigProblem
from rlinf.config.tree import drop, get


def adopt_vocabulary(sheet: Sheet) -> None:
    """Put every key that `rlinf train` would read in this file as ours; the others stay for the caller's rules."""
    notes: list[str] = []
    problems: list[ConfigProblem] = []
    tree = copy.deepcopy(sheet.source.tree)
    roll = roll_origin([tree])
    causes = _causes(sheet)
    rename(tree, notes, problems)
    combine(tree, notes, problems)
    adopt(tree, roll, notes)
    translate_values(tree, notes)
    sheet.decide += [str(found) for found in problems]
    for key in leaves():
        located = get(tree, key)
        if located is None or isinstance(located.value, Code):
            continue
        cause = causes.get(key) or f"{key}: {located.plain()}"
        sheet.settings[key] = Setting(located.plain(), cause)
        sheet.used.add(key)
    for name in (*FLAT, *_under_algorithm()):
        sheet.used.add(name)
    for name, why in NOT_NEEDED.items():
        sheet.ignore(name, why)
    for name in ("use_kl_loss", "kl_loss_coef", "dual_clip_loss", "init_kl_coef"):
        sheet.used.update((name, f"algorithm.{name}"))
    for note in notes:
        if " is set: " in note:
            sheet.differs.append(note)


def unset(sheet: Sheet, *keys: str) -> None:
    """Take keys of the same name, but of another meaning, out of what was adopted."""
    for key in keys:
        sheet.settings.pop(key, None)
        drop(sheet.source.tree, key)


def _under_algorithm() -> list[str]:
    return [f"algorithm.{name}" for name in (*UNDER_ALGORITHM, *(name for name in FLAT if "." not in name))]


def _causes(sheet: Sheet) -> dict[str, str]:
    """Our key -> what was written for it."""
    written = {**FLAT, **{f"algorithm.{name}": key for name, key in UNDER_ALGORITHM.items()}}
    return {key: sheet.said(name) for name, key in written.items() if get(sheet.source.tree, name) is not None}
