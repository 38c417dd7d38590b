"""The simulated services of bfcl-eval: files, a car, shares, travel, messages, posts, tickets and mathematics."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import json
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf_envs.tools.calls import ToolCall

_SOURCE = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code"
MODULES: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
}
"""Service -> its module, which is also the name of the file that describes its functions."""
_LONGEST: Mapping[str, int] = {"precision": 1000, "exponent": 1000}
"""Largest values of arguments whose size is what a call computes: whole numbers have no largest one in Python."""
_ONE_AT_A_TIME = threading.Lock()
"""A service sets the precision of a library, which is that of the whole process."""


class Services:
    """The services of one conversation and their state."""

    def __init__(self, names: Sequence[str], start: Mapping[str, Any], *, long_context: bool = False) -> None:
        """
        Args:
            names: keys of :data:`MODULES`.
            start: the first state of each, as the tasks have it.
            long_context: answers hold much more than what is wanted.
        """
        self._objects = {name: getattr(importlib.import_module(f"{_SOURCE}.{MODULES[name]}"), name)() for name in names}
        for name, service in self._objects.items():
            if hasattr(service, "_load_scenario"):  # mathematics has no state
                service._load_scenario(copy.deepcopy(start.get(name, {})), long_context=long_context)
        self._methods = {
            method: bound
            for service in self._objects.values()
            for method, bound in inspect.getmembers(service, predicate=inspect.ismethod)
            if not method.startswith("_")
        }

    @property
    def state(self) -> dict[str, dict[str, Any]]:
        """Attributes that calls can change, service by service: the services' own objects."""
        return {
            name: {key: value for key, value in vars(service).items() if not key.startswith("_")}
            for name, service in self._objects.items()
        }

    def answer(self, call: ToolCall) -> str:
        """Return the result of a call, or its error, as text."""
        if call.problem:
            return f"Error during execution: {call.problem}"
        if call.name not in self._methods:
            return f"Error during execution: name {call.name!r} is not defined"
        for name, value in call.arguments.items():
            if isinstance(value, (int, float)) and abs(value) > _LONGEST.get(name, abs(value)):
                return f"Error during execution: {name} must be at most {_LONGEST[name]}"
        try:
            with _ONE_AT_A_TIME:
                return _text(self._methods[call.name](**call.arguments))
        except Exception as error:  # services raise what they like at arguments that make no sense
            return f"Error during execution: {error}"

    def read(self, expression: str) -> ToolCall:
        """Read an accepted call, which the tasks write as Python; arguments without a name get theirs.

        Raises:
            ValueError: it is no call of a service with plain values.
        """
        call = ast.parse(expression, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in self._methods:
            raise ValueError(f"no call of {', '.join(self._objects)}: {expression}")
        values = [ast.literal_eval(value) for value in call.args]
        named = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
        names = list(inspect.signature(self._methods[call.func.id]).parameters)
        return ToolCall(call.func.id, {**dict(zip(names, values, strict=False)), **named})


def _text(returned: Any) -> str:
    if isinstance(returned, dict):
        try:
            return json.dumps(returned)
        except TypeError:
            return str(returned)
    return str(returned)
