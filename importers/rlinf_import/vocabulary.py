"""The vocabularies that configurations of ours may be written in (ROLL's and RLinf's), written out in our names."""

from __future__ import annotations

import copy

from rlinf.config.compat.aliases import FLAT, NOT_NEEDED, UNDER_ALGORITHM, rename, translate_values
from rlinf.config.compat.combined import combine
from rlinf.config.compat.semantics import adopt, roll_origin
from rlinf.config.names import leaves
from rlinf.config.problems import ConfigProblem
from rlinf.config.tree import drop, get
from rlinf_import.sheet import Setting, Sheet
from rlinf_import.written import Code

_COMBINED = {
    "algorithm.kl_beta": ("use_kl_loss", "kl_loss_coef"),
    "algorithm.clip_ratio_c": ("dual_clip_loss", "pg_clip"),
    "algorithm.kl_coef": ("init_kl_coef",),
    "algorithm.token_kl_type": ("kl_penalty",),
    "rollout.temperature": ("algorithm.sampling_params.do_sample",),
}
"""Our keys that several names make together."""
_SWITCHED = ("init_kl_coef", "kl_loss_coef", "kl_penalty", "target_kl", "kl_horizon")
"""Names that another setting switches on."""


def adopt_vocabulary(sheet: Sheet, *own: str) -> None:
    """Put every key that `rlinf train` would read in this file as ours; the others stay for the caller's rules.

    ``own``: names without meaning for `rlinf train` that the caller has rules for.
    """
    notes: list[str] = []
    problems: list[ConfigProblem] = []
    tree = copy.deepcopy(sheet.source.tree)
    roll = roll_origin([tree])
    written = _written(sheet)
    rename(tree, notes, problems)
    combine(tree, notes, problems)
    adopt(tree, roll, notes)
    translate_values(tree, notes)
    sheet.decide += [str(result) for result in problems]
    for key in leaves():
        located = get(tree, key)
        if located is None or isinstance(located.value, Code) or located.plain() is None:
            continue
        names = written.get(key) or (key,)
        held = tuple(name for name in names if get(sheet.source.tree, name) is not None)
        cause = " and ".join(sheet.as_written(name) for name in held) or f"{sheet.peer}'s meaning"
        sheet.settings[key] = Setting(located.plain(), cause, held, str(sheet.origin(held[0])) if held else "")
        sheet.used.update(held)
    sheet.used.update(name for names in written.values() for name in names)
    for name, why in NOT_NEEDED.items():
        if name not in own:
            sheet.ignore(name, why)
    _report(sheet, notes)


def _report(sheet: Sheet, notes: list[str]) -> None:
    """Report the vocabulary's notes on names that lead to nothing, and on values that it sets."""
    for note in notes:
        if " is set: " in note:
            sheet.differs.append(note)
        elif " is not read without " in note:
            short = next((name for name in _SWITCHED if f" {name} " in note), "")
            written = next((name for name in (f"algorithm.{short}", short) if get(sheet.source.tree, name)), short)
            sheet.ignored.append(note.rstrip(".").replace(f" {short} ", f" {written} ") if short else note.rstrip("."))
            sheet.named.update((short, f"algorithm.{short}") if short else ())


def unset(sheet: Sheet, *keys: str) -> None:
    """Take keys of the same name, but of another meaning, out of what was adopted."""
    for key in keys:
        sheet.settings.pop(key, None)
        drop(sheet.source.tree, key)


def _written(sheet: Sheet) -> dict[str, tuple[str, ...]]:
    """Our key -> the names that were written for it."""
    results: dict[str, tuple[str, ...]] = {}
    pairs = [*FLAT.items(), *((f"algorithm.{name}", key) for name, key in FLAT.items() if "." not in name)]
    pairs += [(f"algorithm.{name}", key) for name, key in UNDER_ALGORITHM.items()]
    for name, key in pairs:
        if get(sheet.source.tree, name) is not None:
            results[key] = (*results.get(key, ()), name)
    for key, names in _COMBINED.items():
        held = [found_name for name in names for found_name in (name, f"algorithm.{name}")]
        more = tuple(name for name in held if get(sheet.source.tree, name) is not None)
        if more and key not in results:
            results[key] = more
    return results
