"""The calls of custom reward functions: ours, and those that TRL and verl make.

The parameters of a function decide which call is made:

- ``completions`` (TRL): lists of one, ``prompts``, ``completions`` and the row's columns; a list of one number or None.
- ``solution_str`` (verl): ``data_source, solution_str, ground_truth, extra_info``; a number or a mapping with `score`.
- neither (our own form): ``prompt, response, answer, row``; a number.

Functions may be ``async``, and parameters positional-only.

Sources: `GRPOTrainer` of TRL (reward functions) and `default_compute_score` of verl.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from rlinf.base.user_code import Signature

_OWN = Signature(names=("prompt", "response", "answer", "row"))
_OF_THE_TRAINER = ("completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
"""Arguments of TRL that exist in its trainer alone."""


@dataclass(frozen=True)
class Scored:
    """What a reward function is called about: one response."""

    prompt: str
    response: str
    answer: str
    row: Mapping[str, Any]


def misfit(function: Any, name: str) -> str:
    """Return the reason why ``function`` cannot be called, as the end of a sentence that begins with its path, or "".

    >>> misfit(lambda completions, completion_ids: [0.0], "f")
    'requires completion_ids, which only the trainer of TRL has'
    """
    function = _by_name(function)
    parameters = _parameters(function)
    if "completions" in parameters:
        lost = [name for name in _OF_THE_TRAINER if name in parameters and _is_required(parameters[name])]
        return f"requires {' and '.join(lost)}, which only the trainer of TRL has" if lost else ""
    if "solution_str" in parameters:
        return _verl_call(parameters).misfit(function)
    result = _OWN.misfit(function)
    return f"{result}. Write def {name}(*, {', '.join(_OWN.names)})" if result else ""


def call(function: Callable[..., Any], scored: Scored) -> Any:
    """Return the value that ``function`` gives for one response, in the form in which it is written.

    Raises:
        KeyError: a function of TRL's form requires a column that the row does not have.
        TypeError: it returned another number of values than 1, or a mapping without ``score``.
    """
    function = _by_name(function)
    parameters = _parameters(function)
    if "completions" in parameters:
        return _call_as_trl(function, parameters, scored)
    if "solution_str" in parameters:
        return _call_as_verl(function, parameters, scored)
    arguments = {"prompt": scored.prompt, "response": scored.response, "answer": scored.answer, "row": scored.row}
    return _value(function(**arguments))


def _value(result: Any) -> Any:
    """Return what a function gave, of an ``async`` one what it returns in the end."""
    return _loop().run_until_complete(result) if inspect.iscoroutine(result) else result


@functools.cache
def _loop() -> Any:
    """Return the process's event loop: clients that a module keeps belong to the loop of their first call."""
    import asyncio  # environment workers, which import this module, start without it

    return asyncio.new_event_loop()


def _call_as_trl(function: Callable[..., Any], parameters: Mapping[str, Parameter], scored: Scored) -> float:
    """Chats are recognised by the row: its ``prompt`` is then a list of messages, and a completion is one too."""
    prompt = scored.row.get("prompt")
    is_chat = isinstance(prompt, Sequence) and not isinstance(prompt, str)
    completion = [{"role": "assistant", "content": scored.response}] if is_chat else scored.response
    columns = {"answer": scored.answer, **scored.row}
    batch = {name: [value] for name, value in columns.items()}
    batch |= {"prompts": [prompt if is_chat else scored.prompt], "completions": [completion]}
    if not _takes_any_name(parameters):
        batch = {name: value for name, value in batch.items() if name in parameters}
    for name, parameter in parameters.items():
        if _is_required(parameter) and name not in batch:
            raise KeyError(f"the row has no column {name!r}, which the function requires; it has {', '.join(columns)}")
    values = _value(function(**batch))
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) != 1:
        raise TypeError(f"must return a list of one number for one completion, got {values!r:.200}")
    # None excludes a response from the sum of TRL's rewards.
    return 0.0 if values[0] is None else values[0]


def _call_as_verl(function: Callable[..., Any], parameters: Mapping[str, Parameter], scored: Scored) -> Any:
    model = scored.row.get("reward_model")
    truth = model.get("ground_truth", scored.answer) if isinstance(model, Mapping) else scored.answer
    arguments = {
        "data_source": scored.row.get("data_source", ""),
        "solution_str": scored.response,
        "ground_truth": truth,
        "extra_info": scored.row.get("extra_info") or {},
    }
    value = _value(function(**{name: arguments[name] for name in _verl_call(parameters).names}))
    if not isinstance(value, Mapping):
        return value
    if "score" not in value:
        raise TypeError(f"must return a number, or a mapping with 'score', got {dict(value)!r:.200}")
    return value["score"]


def _verl_call(parameters: Mapping[str, Parameter]) -> Signature:
    optional = [name for name in ("data_source", "extra_info") if _takes_any_name(parameters) or name in parameters]
    return Signature(names=(*optional, "solution_str", "ground_truth"))


def _parameters(function: Any) -> Mapping[str, Parameter]:
    """Return what a function takes by name; nothing of a class, or of a function without a signature."""
    if inspect.isclass(function) or not callable(function):
        return {}
    try:
        return inspect.signature(function).parameters
    except ValueError:  # a function in C
        return {}


def _by_name(function: Any) -> Any:
    """Return a function that takes by name what ``function`` takes by position only."""
    parameters = _parameters(function)
    placed = [each for each in parameters.values() if each.kind is Parameter.POSITIONAL_ONLY]
    if not placed:
        return function

    def named(**arguments: Any) -> Any:
        first = [arguments.pop(each.name, each.default) for each in placed]
        return function(*first, **arguments)

    free = [
        each.replace(kind=Parameter.POSITIONAL_OR_KEYWORD) if each in placed else each for each in parameters.values()
    ]
    named.__signature__ = inspect.Signature(free)  # type: ignore[attr-defined]
    return named


def _takes_any_name(parameters: Mapping[str, Parameter]) -> bool:
    return any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())


def _is_required(parameter: Parameter) -> bool:
    variable = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    return parameter.default is Parameter.empty and parameter.kind not in variable
