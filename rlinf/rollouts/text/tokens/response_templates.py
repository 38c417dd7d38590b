"""Calls of tools as a tokenizer's own response template describes them, read by transformers.

A tokenizer that has a ``response_template`` states how its model writes thoughts, content and calls;
``parse_response`` of transformers reads a response by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlinf.rollouts.text.tokens.tool_forms import FORMS, HERMES, Calls, ToolForm


def has_response_template(tokenizer: Any) -> bool:
    """Return whether ``tokenizer`` states how its model writes responses."""
    return getattr(tokenizer, "response_template", None) is not None


def form_for(written: str, tokenizer: Any, *, tools: Sequence[Mapping[str, Any]] = (), opened: str = "") -> ToolForm:
    """Return the form that the tokenizer's response template describes, else that of its family.

    Calls that are in the form of environments as they are keep it: the words around them are read too.

    Args:
        written: what the chat template writes for a call. Its family reads the responses that the response template
            refuses.
        tools: whose schemas give arguments their types, where a family writes all of them as text.
        opened: the end of the prompt, if it opens the policy's thoughts.
    """
    # The most common family if the template writes in the form of none.
    family = replace(next((form for form in FORMS if form.mark in written), HERMES), tools=tuple(tools))
    if not has_response_template(tokenizer) or HERMES.mark in written:
        return family
    find = _TemplateCalls(tokenizer, family, opened)
    return ToolForm("of the response template", "", find, reads_thoughts=True, tools=family.tools)


@dataclass(frozen=True)
class _TemplateCalls:
    tokenizer: Any
    otherwise: ToolForm
    opened: str

    def __call__(self, text: str) -> Calls:
        try:
            message = self.tokenizer.parse_response(text, prefix=self.opened, tools=list(self.otherwise.tools))
        except (ValueError, KeyError, TypeError, RecursionError):  # a call that is cut, or no JSON
            return self.otherwise.calls(text)
        calls = [call.get("function", call) for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
        return [(str(call["name"]), call.get("arguments", {})) for call in calls if "name" in call]
