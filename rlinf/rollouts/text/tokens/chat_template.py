"""Chat templates as runs apply them: with the variables of `data.chat_template_kwargs`, and always on the same day."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from rlinf.base.time_limit import TimeLimitError, time_limit

DEADLINE_S = 10.0
"""Of one rendering: a template comes with a model, and a loop in it may have no end."""
_DAY = datetime.date(2025, 1, 1)
"""The day that templates which name it (gpt-oss, Llama 3.2) get: a run that goes on tomorrow keeps its prompts."""
_FUNCTION = "strftime_now"
"""The function of templates for the time: a macro takes its name, as transformers lets no variable be a function."""
_CONSTANTS = "".join(
    f" | replace('%{dash}{code}', {_DAY.strftime(f'%{dash}{code}')!r})"
    for code in "aAbBdHIjmMpSyY"
    for dash in ("", "-")
)
_MACRO = f"{{%- macro {_FUNCTION}(format) -%}}{{{{ format{_CONSTANTS} }}}}{{%- endmacro -%}}"


def rendered(
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    prompt: bool,
    variables: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Render the conversation with the tokenizer's template; with ``prompt`` up to the start of the policy's turn.

    Raises any exception of the template, which is a program of its author's, and TimeLimitError after
    :data:`DEADLINE_S`.
    """
    context = {**variables, **({"tools": list(tools)} if tools else {})}
    template = tokenizer.get_chat_template(context.get("chat_template"), context.get("tools"))
    if _FUNCTION in template:
        context["chat_template"] = _MACRO + template
    try:
        with time_limit(DEADLINE_S):
            return str(
                tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=prompt, **context)
            )
    except TimeLimitError:
        raise TimeLimitError(f"one rendering takes more than {DEADLINE_S:g} s") from None


def requires_system(tokenizer: Any, messages: Sequence[Mapping[str, Any]], variables: Mapping[str, Any]) -> bool:
    """Whether the template, which does not render ``messages``, renders them behind a system message."""
    try:
        rendered(tokenizer, [{"role": "system", "content": "system"}, *messages], prompt=True, variables=variables)
    except Exception:  # a template is a program of its author's
        return False
    return True


def template_to_name(tokenizer: Any) -> str:
    """Return how one of several templates is chosen, none of which is the default; empty for all else."""
    templates = tokenizer.chat_template
    if not isinstance(templates, dict) or "default" in templates:
        return ""
    return f"data.chat_template_kwargs: {{chat_template: {next(iter(templates))}}}, or "


def unwritten_opening(tokenizer: Any, variables: Mapping[str, Any]) -> str:
    """Return the words that the template writes before an answer and at the end of no prompt; empty for most.

    A template that changes with ``add_generation_prompt`` has none.
    """
    question, mark = {"role": "user", "content": "question"}, "@@ANSWER@@"
    try:
        prompt, plain = (rendered(tokenizer, [question], prompt=end, variables=variables) for end in (True, False))
        answered = [question, {"role": "assistant", "content": mark}]
        opening = rendered(tokenizer, answered, prompt=False, variables=variables).partition(mark)[0]
    except Exception:  # the author's program; rendering the real prompts reports it
        return ""
    return opening.removeprefix(prompt).strip() if prompt == plain and opening.startswith(prompt) else ""


def text_start(tokenizer: Any) -> tuple[int, ...]:
    """Token ids that ``tokenizer`` puts in front of a text by itself (<bos>); none for many tokenizers."""
    plain = tokenizer.encode("question", add_special_tokens=False)
    whole = tokenizer.encode("question", add_special_tokens=True)
    count = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)
    return tuple(whole[:count])


def rendered_before(words: str, generation_prompt: str) -> str | None:
    """Describe in a sentence words that a chat template has rendered before; None for all else.

    ``generation_prompt``: what the template writes between the user's words and an answer, empty if that tells nothing.

    >>> rendered_before("1 + 1?<end><assistant>", "<end><assistant>")[:48]
    'a prompt has been through a chat template before'
    >>> rendered_before("1 + 1?", "<end><assistant>")
    """
    if not generation_prompt or generation_prompt not in words:
        return None
    return (
        f"a prompt has been through a chat template before: it holds {generation_prompt!r} ({words[:60]!r}). "
        "Give its bare words, or set data.chat_template: never."
    )
