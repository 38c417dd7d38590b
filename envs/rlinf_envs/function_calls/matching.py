"""Whether calls are those that a task accepts, by the rules of the Berkeley Function-Calling Leaderboard.

The right functions with the right arguments, in any order; each argument has values to choose from (Patil et al., The
Berkeley Function Calling Leaderboard, ICML 2025).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf_envs.tools.calls import ToolCall

OPTIONAL = ""
"""Among the accepted values of an argument: it may be left out."""
_PUNCTUATION = re.compile(r"[ ,./\-_*^]")
_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "number": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "object": dict,
}
Accepted = Mapping[str, Mapping[str, Sequence[Any]]]
"""One call: the function's name -> each argument -> its accepted values."""


def matches(calls: Sequence[ToolCall], accepted: Sequence[Accepted], functions: Sequence[Mapping[str, Any]]) -> bool:
    """Whether ``calls`` are the ``accepted`` ones, each once. Without any, no call is right."""
    if len(calls) != len(accepted) or any(call.problem for call in calls):
        return False
    described = {function["name"]: function["parameters"] for function in functions}
    left = list(calls)
    for one in accepted:
        # By index: calls that Python calls equal (3 and 3.0) need not both fit.
        result = next((index for index, call in enumerate(left) if _fits(call, one, described)), None)
        if result is None:
            return False
        del left[result]
    return True


def example(accepted: Accepted, functions: Sequence[Mapping[str, Any]] = ()) -> ToolCall:
    """Return an accepted call: the first value of each argument that is required by the task or by its function.

    >>> example({"area": {"base": [10, 10.0], "unit": ["", "cm"]}})
    ToolCall(name='area', arguments={'base': 10}, problem='')
    """
    ((name, arguments),) = accepted.items()
    required = {key for one in functions if one["name"] == name for key in one["parameters"].get("required", ())}
    named = {key: values for key, values in arguments.items() if values and (key in required or OPTIONAL not in values)}
    return ToolCall(name, {key: _plain(_first(values)) for key, values in named.items()})


def _first(values: Sequence[Any]) -> Any:
    """Return the first value that is not the mark of an optional argument; if all are, the mark (an empty text)."""
    return next((value for value in values if value != OPTIONAL), OPTIONAL)


def _plain(value: Any) -> Any:
    """Convert an accepted value to an argument: a mapping, or a list of them, holds values to choose from."""
    if isinstance(value, Mapping):
        return {key: values[0] for key, values in value.items() if values[0] != OPTIONAL}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _fits(call: ToolCall, accepted: Accepted, described: Mapping[str, Mapping[str, Any]]) -> bool:
    ((name, values),) = accepted.items()
    if call.name != name or name not in described:
        return False
    properties = described[name].get("properties", {})
    if any(key not in call.arguments for key in described[name].get("required", ())):
        return False
    if any(key not in call.arguments and OPTIONAL not in choices for key, choices in values.items()):
        return False
    return all(
        key in values and key in properties and _accepts(value, values[key], properties[key])
        for key, value in call.arguments.items()
    )


def _accepts(value: Any, choices: Sequence[Any], described: Mapping[str, Any]) -> bool:
    """Whether an argument has the type that is described and one of the accepted values."""
    kind = _TYPES.get(str(described.get("type")))
    if kind is float and type(value) is int:
        value = float(value)
    if kind is not None and type(value) is not kind:
        # A name that stands for a value, or null, is accepted where the task accepts just that instead.
        return any(type(value) is type(choice) and value == choice for choice in choices if choice != OPTIONAL)
    if isinstance(value, dict):
        return any(_same_mapping(value, choice) for choice in choices if isinstance(choice, Mapping))
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        return any(
            len(value) == len(choice)
            and all(isinstance(one, dict) and _same_mapping(one, each) for one, each in zip(value, choice, strict=True))
            for choice in choices
            if isinstance(choice, list)
        )
    return any(_standard(value) == _standard(choice) for choice in choices)


def _same_mapping(value: Mapping[str, Any], choice: Mapping[str, Sequence[Any]]) -> bool:
    present = all(OPTIONAL in values for key, values in choice.items() if key not in value)
    return present and all(
        key in choice and any(_standard(one) == _standard(other) for other in choice[key]) for key, one in value.items()
    )


def _standard(value: Any) -> Any:
    """Text without case, blanks and punctuation that people write in different ways; a truth value is no number."""
    if isinstance(value, str):
        return _PUNCTUATION.sub("", value).lower().replace("'", '"')
    if isinstance(value, list):
        return [_standard(one) for one in value]
    return (type(value), value) if isinstance(value, bool) else value
