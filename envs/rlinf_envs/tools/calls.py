"""Calls in a response, for environments: see :mod:`rlinf.base.tool_calls`."""

from rlinf.base.tool_calls import CALL_FORM, ToolCall, calls_in, written

__all__ = ["CALL_FORM", "ToolCall", "calls_in", "written"]
