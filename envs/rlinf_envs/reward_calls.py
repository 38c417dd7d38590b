"""The calls of custom reward functions: ours, and those that other projects make.

The parameters of a function decide which call is made:

- ``completions`` (TRL): lists of one, ``prompts``, ``completions`` and the row's columns; a list of one number or None.
- ``completions`` with ``prompt``, or ``completions: str`` (AReaL): a text and the row's columns; a number.
- ``solution_str`` (verl): ``data_source, solution_str, ground_truth, extra_info``; a number or a mapping with `score`.
- ``solution_strs`` (verl's batch manager): the same names with an s, in lists of one; a list of one such result.
- ``queries`` (OpenRLHF): lists of one, ``queries, prompts, labels``; one number in a list or tensor, or a mapping with
  `rewards`.
- ``reward_inputs`` or ``reward_input`` (EasyR1): a list of one mapping, or a mapping, with ``response`` and
  ``ground_truth``; a mapping with `overall`, in a list of one or alone.
- none of them (our own form): ``prompt, response, answer, row``; a number.

Functions may be ``async``, and parameters positional-only.

Sources: `GRPOTrainer` of TRL, `reward_api` of AReaL, `NaiveRewardManager` and `BatchRewardManager` of verl,
`remote_rm_url` of OpenRLHF, `FunctionRewardManager` of EasyR1.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import Parameter
from types import CodeType, FunctionType
from typing import Any

from rlinf.base.json_text import json_or_text
from rlinf.base.user_code import Signature
from rlinf_envs.chat_rows import part_of

_OWN = Signature(names=("prompt", "response", "answer", "row"))
_OF_TRL = ("completions", "completion_ids")
_OF_THE_TRAINER = ("completion_ids", "trainer_state", "log_extra", "log_metric", "environments")
"""Arguments of TRL that exist in its trainer alone."""
_MARK = re.compile(r"<\\?\|(?:im_start|start_header_id)\\?\|>\s*assistant|<｜Assistant｜>|\bAssistant:$")
"""What templates write before a response, in a text or an expression that finds it."""


@dataclass(frozen=True)
class Scored:
    """What a reward function is called about: one response."""

    prompt: str
    response: str
    answer: str
    row: Mapping[str, Any]


@dataclass(frozen=True)
class _Form:
    """A call by fixed names, and where the number is in what a function returns."""

    names: tuple[str, ...]
    optional: tuple[str, ...]
    """Those of the names that a function need not take."""
    arguments: Callable[[Scored], Mapping[str, Any]]
    key: str
    """The entry of a mapping that is the reward."""

    def signature(self, parameters: Mapping[str, Parameter]) -> Signature:
        """Return the call that is made of a function with these parameters."""
        anything = _takes_any_name(parameters)
        return Signature(
            names=tuple(name for name in self.names if name not in self.optional or anything or name in parameters)
        )

    def call(self, function: Callable[..., Any], parameters: Mapping[str, Parameter], scored: Scored) -> Any:
        """Return the number that ``function`` gives."""
        arguments = self.arguments(scored)
        result = _value(function(**{name: arguments[name] for name in self.signature(parameters).names}))
        result = self._entry(result)
        return self._entry(_only(result)) if isinstance(arguments[self.names[0]], list) else result

    def _entry(self, result: Any) -> Any:
        if not isinstance(result, Mapping):
            return result
        if self.key not in result:
            raise TypeError(f"must return a number, or a mapping with {self.key!r}, got {dict(result)!r:.200}")
        return result[self.key]


def _verl(scored: Scored) -> dict[str, Any]:
    truth = part_of(scored.row.get("reward_model"), "ground_truth")
    return {
        "solution_str": scored.response,
        "ground_truth": scored.answer if truth is None else truth,
        "data_source": scored.row.get("data_source", ""),
        "extra_info": json_or_text(scored.row.get("extra_info")) or {},
    }


def _verl_batch(scored: Scored) -> dict[str, Any]:
    return {f"{name}s": [value] for name, value in _verl(scored).items()}


def _openrlhf(scored: Scored) -> dict[str, Any]:
    return {"queries": [scored.prompt + scored.response], "prompts": [scored.prompt], "labels": [scored.answer]}


def _easyr1(scored: Scored) -> dict[str, Any]:
    return {"response": scored.response, "ground_truth": scored.answer}


_FORMS: Mapping[str, _Form] = {
    form.names[0]: form
    for form in (
        _Form(
            ("solution_str", "ground_truth", "data_source", "extra_info"), ("data_source", "extra_info"), _verl, "score"
        ),
        _Form(
            ("solution_strs", "ground_truths", "data_sources", "extra_infos"),
            ("data_sources", "extra_infos"),
            _verl_batch,
            "score",
        ),
        _Form(("queries", "prompts", "labels"), (), _openrlhf, "rewards"),
        _Form(("reward_inputs",), (), lambda scored: {"reward_inputs": [_easyr1(scored)]}, "overall"),
        _Form(("reward_input",), (), lambda scored: {"reward_input": _easyr1(scored)}, "overall"),
    )
}
"""By the parameter that tells the form."""


def misfit(function: Any, name: str) -> str:
    """Return the reason why ``function`` cannot be called, as the end of a sentence that begins with its path, or "".

    >>> misfit(lambda completions, completion_ids: [0.0], "f")
    'requires completion_ids, which only the trainer of TRL has'
    """
    function = _by_name(function)
    parameters = _parameters(function)
    if _of_one_text(parameters):
        return ""
    if parameters.keys() & _OF_TRL:
        lost = [name for name in _OF_THE_TRAINER if name in parameters and _is_required(parameters[name])]
        return f"requires {' and '.join(lost)}, which only the trainer of TRL has" if lost else ""
    if form := _form(parameters):
        return form.signature(parameters).misfit(function)
    result = _OWN.misfit(function)
    if result and _makes_one(function):
        return f"makes a reward function: write `reward = {name}(...)` in a module of your own, and name that"
    return f"{result}. Write def {name}(*, {', '.join(_OWN.names)}), which may call another" if result else ""


def doubt_about(function: Any, example: Scored) -> str:
    """Return what a function would hardly expect of a call like ``example``, as a sentence, or ""."""
    parameters = _parameters(function)
    marks = _template_marks(function) if "solution_str" in parameters else ()
    if marks and not any(mark in example.prompt for mark in marks):
        return (
            f"its module searches for {' and '.join(map(repr, marks))}, which prompts do not have: if it needs one, "
            "call it from a function of your own that adds it"
        )
    column = example.row.get("answer")
    if {"completions", "answer"} <= parameters.keys() and isinstance(column, str) and column.strip() != example.answer:
        return (
            f"`answer` is the row's column, {column.strip()!r:.60}, and not the final answer {example.answer!r:.60}: "
            "if it compares them, call it from a function of your own"
        )
    return ""


def _template_marks(function: Any) -> tuple[str, ...]:
    """Return the marks before a response that the module of a function searches for."""
    matches = (_MARK.search(text) for text in _texts_of(getattr(function, "__globals__", {})))
    return tuple(dict.fromkeys(match.group().replace("\\", "") for match in matches if match))


def _with_marks(scored: Scored, function: Any, parameters: Mapping[str, Parameter]) -> Scored:
    """Return what a function of one text for prompt and response is called about: earlier versions of verl made one."""
    if not parameters.keys() & {"solution_str", "queries"}:
        return scored
    marks = _template_marks(function)
    in_prompt = any(mark in scored.prompt for mark in marks)
    if "solution_str" in parameters and in_prompt:
        return replace(scored, response=scored.prompt + scored.response)
    if "queries" in parameters and marks and not in_prompt:  # OpenRLHF's prompts are written by a chat template
        return replace(scored, prompt=f"{scored.prompt}\n{marks[0]}\n")
    return scored


def _texts_of(module: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts and expressions that are a module's variables or in its functions, docstrings excepted."""
    for value in module.values():
        if isinstance(value, FunctionType):
            yield from (each for each in value.__code__.co_consts if isinstance(each, str) and each != value.__doc__)
        text = value.pattern if isinstance(value, re.Pattern) else value
        if isinstance(text, str) and text != module.get("__doc__"):
            yield text


def call(function: Callable[..., Any], scored: Scored) -> Any:
    """Return the value that ``function`` gives for one response, in the form in which it is written.

    Raises:
        KeyError: a function of TRL's form requires a column that the row does not have.
        TypeError: it returned another number of values than 1, or a mapping without its reward.
    """
    parameters = _parameters(function)
    scored = _with_marks(scored, function, parameters)
    function = _by_name(function)
    if _of_one_text(parameters):
        ids = {"prompt_ids": None, "completion_ids": None}  # counting them ends the run: there are none here
        texts = {"prompt": scored.prompt, "completions": scored.response}
        return _value(function(**_taken({**_columns(scored), **texts, **ids}, parameters)))
    if parameters.keys() & _OF_TRL:
        return _call_as_trl(function, parameters, scored)
    if form := _form(parameters):
        return form.call(function, parameters, scored)
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
    batch = {name: [value] for name, value in _columns(scored).items()}
    batch |= {"prompts": [prompt if is_chat else scored.prompt], "completions": [completion]}
    try:
        values = _value(function(**_taken(batch, parameters)))
    except (TypeError, AttributeError) as error:
        form = "lists of one message, as the row's prompt is" if is_chat else "texts: the row has no prompt of messages"
        error.add_note(f"completions are {form}; a function of your own can call it with the other form")
        raise
    value = _only(values)
    return 0.0 if value is None else value  # None excludes a response from the sum of TRL's rewards


def _columns(scored: Scored) -> dict[str, Any]:
    return {"answer": scored.answer, **scored.row}


def _taken(arguments: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the arguments that a function takes; raise KeyError if it requires more."""
    for name, parameter in parameters.items():
        if _is_required(parameter) and name not in arguments:
            columns = ", ".join(name for name in arguments if name not in ("prompts", "completions"))
            raise KeyError(f"the row has no column {name!r}, which the function requires; it has {columns}")
    return {name: value for name, value in arguments.items() if name in parameters or _takes_any_name(parameters)}


def _only(values: Any) -> Any:
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__") or len(values) != 1:
        raise TypeError(f"must return a list of one number for one completion, got {values!r:.200}")
    return values[0]


def _form(parameters: Mapping[str, Parameter]) -> _Form | None:
    return next((form for name, form in _FORMS.items() if name in parameters), None)


def _of_one_text(parameters: Mapping[str, Parameter]) -> bool:
    """Whether ``completions`` is one text: TRL gives no ``prompt``."""
    if "completions" not in parameters:
        return False
    return "prompt" in parameters or parameters["completions"].annotation in (str, "str")


def _makes_one(maker: Any) -> bool:
    """Whether a class has the call of a reward function, or a function defines one inside."""
    marks = {*_OF_TRL, *_FORMS}
    if inspect.isclass(maker):
        return bool(marks & _parameters(maker.__call__).keys())
    inside = getattr(getattr(maker, "__code__", None), "co_consts", ())
    return any(marks & set(each.co_varnames[: each.co_argcount]) for each in inside if isinstance(each, CodeType))


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
