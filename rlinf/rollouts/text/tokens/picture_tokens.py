"""Pictures in messages: from the marks of an observation to a template's content parts, and to token ids."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlinf.base.errors import UserError
from rlinf.base.time_limit import TimeLimitError
from rlinf.data.pictures import marked, pictures_of, pieces, replaced
from rlinf.rollouts.text.tokens.chat_template import rendered

if TYPE_CHECKING:
    from rlinf.models.vision.reading import PictureReader

_WORDS = re.compile(r"[^\W_](?:[\w ]*[^\W_])?")
_SPELLED = "\ufffa"
"""Stands in names of marks that a text spells while a template is rendered."""


def rendered_with_pictures(
    reader: PictureReader | None,
    tokenizer: Any,
    messages: Sequence[Mapping[str, Any]],
    *,
    prompt: bool,
    variables: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Render the conversation as :func:`rlinf.rollouts.text.tokens.chat_template.rendered` writes it, pictures as
    marks.

    A template that leaves out words is given contents as lists of parts, which some templates take alone.

    ``reader``: None for a model of text.

    Raises:
        ValueError: the template leaves pictures out.
    """

    def write(messages: Sequence[Mapping[str, Any]]) -> str:
        return rendered(tokenizer, messages, prompt=prompt, variables=variables, tools=tools)

    if reader is None:
        return _words_or_parts(write, messages)
    try:
        text = write([_with_parts(one, lists=False) for one in messages])
    except TimeLimitError:
        raise
    except Exception:  # some templates take contents that are lists alone
        text = ""
    if not text or left_out(text.replace(_SPELLED, ""), messages) is not None:
        text = write([_with_parts(one, lists=True) for one in messages])
    return _with_marks(text, messages, reader.family.placeholder)


def _words_or_parts(write: Callable[[Sequence[Mapping[str, Any]]], str], messages: Sequence[Mapping[str, Any]]) -> str:
    """Render messages of text: with contents as texts, or as lists of parts if the template takes those alone."""
    text, refusal = "", None
    try:
        text = write(messages)
    except TimeLimitError:
        raise
    except Exception as error:  # a template is a program of its author's, and raises what it likes
        refusal = error
    if refusal is None and left_out(text, messages) is None:
        return text
    with contextlib.suppress(Exception):
        in_parts = write([_with_parts(one, lists=True) for one in messages]).replace(_SPELLED, "")
        if left_out(in_parts, messages) is None:
            return in_parts
    if refusal is not None:
        raise refusal
    return text


def left_out(text: str, messages: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first message of the system or the user whose words a rendered conversation does not have.

    The longest run of words of each message is searched for: templates may strip a content, or escape marks in it.
    """
    for message in messages:
        if message["role"] in ("system", "user") and isinstance(message.get("content"), str):
            runs = _WORDS.findall(replaced(message["content"], "\n"))
            if max(runs, key=len, default="") not in text:
                return message
    return None


def _with_parts(message: Mapping[str, Any], *, lists: bool) -> Mapping[str, Any]:
    """Return a message as the template of a vision-language model takes it: its content a list if it has pictures.

    ``lists``: where it has none too.
    """
    content = message.get("content")
    if not isinstance(content, str) or not (lists or pictures_of(content)):
        return message
    parts: list[dict[str, str]] = []
    for index, piece in enumerate(pieces(content)):
        if index % 2:
            parts.append({"type": "image"})
        elif piece or len(content) == 0:
            # What spells a mark must not be taken for one that the template writes.
            parts.append({"type": "text", "text": piece.replace("<", "<" + _SPELLED)})
    return {**message, "content": parts}


def _with_marks(text: str, messages: Sequence[Mapping[str, Any]], placeholder: str) -> str:
    """Return a rendered conversation with the marks of its pictures where the template has put placeholders.

    Raises:
        ValueError: the template has left pictures out.
    """
    contents = [str(message.get("content") or "") for message in messages]
    pictures = [uri for content in contents for uri in pictures_of(content)]
    if pictures:
        around = text.split(placeholder)
        if len(around) != len(pictures) + 1:
            raise ValueError(f"it writes {len(around) - 1} of {len(pictures)} pictures as {placeholder!r}")
        text = around[0] + "".join(marked(uri) + rest for uri, rest in zip(pictures, around[1:], strict=True))
    return text.replace(_SPELLED, "")


def picture_tokens(text: str, reader: PictureReader | None, tokenizer: Any) -> list[int]:
    """Token ids of a text with pictures; names of marks that it spells are encoded as ordinary text.

    Raises:
        UserError: the policy reads text alone.
    """
    if reader is None:
        raise UserError(
            "the environment shows pictures, and the policy reads text alone. Take a vision-language model, for "
            "example policy.architecture.model_type: qwen2_vl, or policy.path: Qwen/Qwen2.5-VL-3B-Instruct."
        )
    names = [re.escape(name) for name in reader.mark_ids(tokenizer)]
    results: list[int] = []
    for index, piece in enumerate(pieces(text)):
        if index % 2:
            results += reader.tokens(piece, tokenizer)
            continue
        words = re.split(f"({'|'.join(names)})", piece) if names else [piece]
        for number, part in enumerate(words):
            # Cut in two, a name is found in no vocabulary.
            for half in (part[:1], part[1:]) if number % 2 else (part,):
                results += tokenizer.encode(half, add_special_tokens=False) if half else []
    return results
