"""Rows of data sets whose instructions have published names, and the checks that they require.

The forms are those of IFEval (``instruction_id_list`` and ``kwargs``), of IF-RLVR (a list with one mapping of
``instruction_id`` and ``kwargs``) and of RLVR-IFeval (``func_name`` with its arguments). Arguments that are null belong
to other instructions of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlinf.base.json_text import written_value
from rlinf_envs.errors import SettingError
from rlinf_envs.reward_terms.function_constraints import FUNCTIONS
from rlinf_envs.reward_terms.published_constraints import INSTRUCTIONS, Check
from rlinf_envs.reward_terms.training_constraints import TRAINING_INSTRUCTIONS
from rlinf_envs.suggest import unknown

NAMES, ARGUMENTS, FUNCTION = ("instruction_id_list", "instruction_id"), "kwargs", "func_name"
"""Fields of rows."""
_LISTS = frozenset({"keywords", "forbidden_words", "keyword_list", "options"})
"""Arguments that are lists. Others may come as lists of one."""
_BY_NAME = {**INSTRUCTIONS, **TRAINING_INSTRUCTIONS}


def contents(value: Any) -> Any:
    """Return the contents of a row's field, which a table may hold as text.

    Raises:
        SettingError: a text that is neither JSON nor a value of Python.
    """
    if not isinstance(value, str):
        return value
    try:
        return written_value(value)
    except ValueError:
        raise SettingError(f"reward.constraints: the field holds neither a mapping nor JSON: {value!r:.80}") from None


def are_published(value: Any) -> bool:
    """Whether the contents of a field are instructions by their published names, in one of the forms of data sets."""
    return isinstance(value, Sequence) or (
        isinstance(value, Mapping) and any(name in value for name in (*NAMES, FUNCTION))
    )


def published(value: Any, row: Mapping[str, Any]) -> list[Check]:
    """Return the checks of a row.

    Args:
        value: names, whose arguments are in the row's ``kwargs``; or a mapping with both, or of a function with its
            arguments. A list of one may hold such a mapping, also as text.

    Raises:
        SettingError: an instruction or argument that is unknown, or a value of another form.
    """
    if isinstance(value, list) and len(value) == 1 and str(value[0]).lstrip()[:1] in ("[", "{"):
        return published(contents(value[0]), row)
    if isinstance(value, Mapping) and FUNCTION in value:
        own = {key: each for key, each in value.items() if key != FUNCTION}
        return [_check("function", FUNCTIONS, value[FUNCTION], own)]
    if isinstance(value, Mapping):
        row = value
        value = next((row[name] for name in NAMES if name in row), None)
    arguments = contents(row.get(ARGUMENTS))
    if not isinstance(value, Sequence) or not isinstance(arguments, Sequence) or len(value) != len(arguments):
        raise SettingError(
            f"reward.constraints: a row needs as many {ARGUMENTS} as instructions, got {value!r:.80} and "
            f"{arguments!r:.80}"
        )
    return [_check("instruction", _BY_NAME, name, own) for name, own in zip(value, arguments, strict=True)]


def _check(kind: str, builders: Mapping[str, Callable[..., Check]], name: Any, arguments: Any) -> Check:
    if name not in builders:
        raise SettingError(f"reward.constraints: {unknown(kind, str(name), builders)}")
    listed = contents(arguments) or {}
    if not isinstance(listed, Mapping):
        raise SettingError(f"reward.constraints: {name} needs a mapping of arguments, got {listed!r:.80}")
    own = {key: _argument(key, value) for key, value in listed.items() if value is not None}
    try:
        return builders[name](**own)
    except SettingError:
        raise
    except (TypeError, ValueError) as error:
        reason = str(error).rpartition("() ")[2]
        raise SettingError(f"reward.constraints: {name}: {reason} (it has {', '.join(own) or 'none'})") from None


def _argument(key: str, value: Any) -> Any:
    if key in _LISTS:
        return [str(each) for each in value] if isinstance(value, list) else [str(value)]
    return value[0] if isinstance(value, list) and len(value) == 1 else value
