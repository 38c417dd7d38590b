"""Last step of an import: what was written passes `rlinf check`, or the import is refused.

Settings that the chosen functions do not read are left out, with the check's own reason, and so are single values that
mean nothing here. What a run is about (its task, estimator, loss, policy) is never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlinf.config.problems import ConfigProblem
from rlinf_import.page import problems
from rlinf_import.refusal import UnsettledError
from rlinf_import.sheet import Sheet

_ESSENTIAL = (
    "algorithm.adv_type",
    "algorithm.loss_type",
    "algorithm.loss_agg_func",
    "algorithm.group_size",
    "algorithm.num_minibatches",
    "algorithm.kl_beta",
    "env.id",
    "env.tasks",
    "policy.lora.rank",
    "policy.lora.target_modules",
    "policy.name",
    "policy.path",
    "policy.value_head",
    "rollout.batch_size",
    "rollout.num_steps",
)
"""Keys that decide what is trained: without them it would be another run."""
_ROUNDS = 12
_ABSENT = re.compile(
    r"does not exist|is not installed here|there is no module|no program that can be started|has no weights"
)


def settle(sheet: Sheet) -> None:
    """Leave out what the check refuses; raise UnsettledError if that does not help."""
    for _ in range(_ROUNDS):
        left = [result for result in problems(sheet) if not about_files(result)]
        if not left:
            return
        if not [key for result in left for key in _leave_out(sheet, result)]:
            break
    raise UnsettledError(sheet.source.path, [_account(sheet, result) for result in left])


def _account(sheet: Sheet, result: ConfigProblem) -> str:
    """Return a problem in words, with the line and the keys of the file that it comes from."""
    setting = sheet.settings.get(result.key)
    words = f"{result.message} {result.fix}".strip()
    return words if setting is None or not setting.cause else f"{words} ({setting.origin}: {setting.cause})"


def about_files(problem: ConfigProblem) -> bool:
    """Whether a problem is one of models, data or packages that are not on this machine."""
    return _ABSENT.search(problem.message) is not None and "algorithm." not in problem.key


def _leave_out(sheet: Sheet, result: ConfigProblem) -> Iterator[str]:
    """Take the setting of a problem out, and report why; yield its key."""
    key = next((name for name in _candidates(result.key) if name in sheet.settings), None)
    names = [key] if key is not None else [name for name in sheet.settings if name.startswith(f"{result.key}.")]
    for name in names:
        if name in _ESSENTIAL and not result.unread:
            continue
        setting = sheet.settings.pop(name)
        why = result.message.removeprefix(f"{name} ").rstrip(".")
        line = f"{setting.origin}: {setting.cause or name}: left out: {name} {why}"
        (sheet.ignored if result.unread else sheet.differs).append(line)
        yield name


def _candidates(key: str) -> Iterator[str]:
    while key:
        yield key
        key = key.rpartition(".")[0]
