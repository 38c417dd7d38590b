"""Conversations as token rows for supervised training: every token of an answer counts, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rlinf.base.errors import UserError
from rlinf.data.batch import Batch
from rlinf.data.pictures import pictures_of
from rlinf.datasets.conversation_files import Conversation, ConversationError, Message
from rlinf.models.vision.reading import PictureReader
from rlinf.rollouts.text.conversation import Row
from rlinf.rollouts.text.tasks.order import TaskOrder
from rlinf.rollouts.text.to_batch import imitation_batch
from rlinf.rollouts.text.tokens.chat_template import rendered_before
from rlinf.rollouts.text.tokens.picture_tokens import left_out, rendered_with_pictures
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.rollouts.text.tokens.stop_texts import ended
from rlinf.rollouts.text.tokens.thoughts import OPENING, closing_of, opened_thoughts
from rlinf.rollouts.text.tokens.tokenizer_marks import TokenizerMarks

_THOUGHTS = "these thoughts"
_NAMES = ("name", "tool_call_id")
"""Fields of messages that carry no words of a conversation."""


Pieces = list[tuple[list[int], bool]]
"""Tokens in order, each piece with whether it is imitated."""


class _RenderedOtherwiseError(ConversationError):
    """Earlier turns read otherwise once later ones follow."""

    def __init__(self, location: str) -> None:
        super().__init__(
            f"{location}: the chat template renders earlier turns otherwise once there are later ones, so that no row "
            "holds all answers as they were prompted: write one row for each answer, with weight 0 on the answers "
            "before it"
        )


@dataclass(frozen=True)
class Encoded:
    """A conversation in tokens: the prompt, then everything after it with a mask of what is imitated."""

    prompt: tuple[int, ...]
    tokens: list[int]
    mask: list[bool]
    conversation: Conversation

    @property
    def pictures(self) -> list[str]:
        """The addresses of the pictures in it, in their order."""
        messages = self.conversation.messages
        last = max(index for index, message in enumerate(messages) if message.imitated)
        return [uri for message in messages[: last + 1] for uri in pictures_of(message.content)]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.tokens)


class ConversationEncoder:
    """Renders conversations with the tokenizer's chat template, or as plain text if it has none.

    Each answer is encoded by itself, as a sampler would have produced it behind the prompt before it, and ends
    with the end mark. Its words are those of the file: a template that strips spaces does not change them. A
    message with calls of tools is the template's, which alone has their form.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        chat_template: str = "auto",
        system_prompt: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        reader: PictureReader | None = None,
    ) -> None:
        """
        Args:
            chat_template: auto, always or never.
            system_prompt: for conversations that have none.
            template_kwargs: further variables of the chat template.
            reader: of a vision-language model.
        """
        self.tokenizer, self.system_prompt = tokenizer, system_prompt
        self._template_kwargs, self._reader = dict(template_kwargs or {}), reader
        self._renderer = PromptRenderer(
            tokenizer, chat_template=chat_template, template_kwargs=template_kwargs, reader=reader
        )
        self.chat, self.marks = self._renderer.chat, TokenizerMarks(self._renderer)

    def encode(self, conversation: Conversation) -> Encoded:
        """Encode a conversation; raise ConversationError if the template cannot render it, or leaves out a part of
        it."""
        messages = [self._bare(message) for message in conversation.messages]
        if self.system_prompt is not None and messages[0].role != "system":
            messages.insert(0, Message("system", self.system_prompt, False))
        parts = self._templated(conversation, messages) if self.chat else self._plain(conversation, messages)
        prompt: list[int] = []
        tokens: list[int] = []
        mask: list[bool] = []
        for piece, imitated in parts:
            if not imitated and not tokens:
                prompt += piece
            else:
                tokens += piece
                mask += [imitated] * len(piece)
        if not prompt:
            raise ConversationError(f"{conversation.location}: the prompt is empty")
        return Encoded(tuple(prompt), tokens, mask, conversation)

    def _bare(self, message: Message) -> Message:
        """Return an answer without the end mark that its words may have; it gets one, once."""
        if message.role != "assistant" or not message.content:
            return message
        return replace(message, content=self.marks.stripped(message.content))

    def _plain(self, conversation: Conversation, messages: Sequence[Message]) -> Pieces:
        """As conversations of reinforcement learning without a template: system prompt, blank line, turns by line."""
        for name in ("tools",) * bool(conversation.tools) + tuple(name for one in messages for name in one.fields):
            if name not in _NAMES:
                raise ConversationError(
                    f"{conversation.location}: plain text has no form for {name}: take a tokenizer with a chat "
                    f"template, or write them into the content of a message and take {name} out"
                )
        parts: Pieces = []
        prompt_lines: list[str] = []
        for index, message in enumerate(messages):
            if message.role != "assistant":
                prompt_lines.append(message.content + ("\n" if message.role == "system" else ""))
                continue
            text = "\n".join(prompt_lines)
            begun = any(tokens for tokens, _ in parts)
            parts.append((self._ids(f"\n{text}\n") if begun else list(self._renderer.begun(text)), False))
            parts.append((ended(self.marks.encode(message.content), self._renderer.turn_end), message.imitated))
            prompt_lines = []
            if not any(later.imitated for later in messages[index + 1 :]):
                break
        return parts

    def _templated(self, conversation: Conversation, messages: Sequence[Message]) -> Pieces:
        answers = [index for index, message in enumerate(messages) if message.role == "assistant"]
        imitated = [index for index in answers if messages[index].imitated]
        answers = [index for index in answers if index <= imitated[-1]]
        try:
            return self._from_answer(conversation, messages, answers)
        except _RenderedOtherwiseError:
            if answers[0] == imitated[0]:
                raise
            # Answers that do not count may be rendered as the template likes: they are part of the prompt.
            return self._from_answer(conversation, messages, [index for index in answers if index >= imitated[0]])

    def _from_answer(self, conversation: Conversation, messages: Sequence[Message], answers: list[int]) -> Pieces:
        """Encode the conversation, with everything before the first of ``answers`` (positions) as the prompt."""
        parts: Pieces = []
        opening = self._render(conversation, messages[: answers[0]], prompt=True)
        missing = [tool["function"]["name"] for tool in conversation.tools if tool["function"]["name"] not in opening]
        if missing:
            raise ConversationError(
                f"{conversation.location}: the chat template does not describe tools ({', '.join(missing)}): describe "
                "them in a system message and take the column out, or take a tokenizer whose template describes tools"
            )
        lost = left_out(opening, [message.for_template() for message in messages[: answers[0]]])
        if lost is not None:
            raise _left_out(conversation, f"the words of the {lost['role']}", lost["content"])
        for message in messages[: answers[0]]:
            if (wrong := rendered_before(message.content, self._renderer.generation_prompt)) is not None:
                raise ConversationError(f"{conversation.location}: {wrong}")
        parts.append((self._ids(opening), False))
        for position, following in zip(answers, [*answers[1:], None], strict=True):
            message, whole = messages[position], messages[: position + 1]
            closed = opening if following is None else self._render(conversation, messages[:following], prompt=True)
            rest = self._after(conversation, opening, closed)
            if message.calls:
                response, between = self._called(conversation, opening, whole, rest)
            elif opened_thoughts(opening):
                response, between = self._continued(conversation, message, rest, opened_thoughts(opening))
            else:
                rest = rest or self._behind_prompt(conversation, opening, self._render(conversation, whole))
                response, between = self._answer_ids(conversation, message, rest)
            parts.append((response, message.imitated))
            if following is not None:
                parts.append((between, False))
            opening = closed
        return parts

    def _answer_ids(self, conversation: Conversation, message: Message, rest: str) -> tuple[list[int], list[int]]:
        """Return (an answer with its end mark, what the template writes behind it)."""
        thoughts = message.thoughts.strip()
        if thoughts not in rest:
            raise _left_out(conversation, _THOUGHTS, thoughts)
        content = message.content.strip()
        result = rest.find(content, rest.find(thoughts) + len(thoughts))  # thoughts may have the answer's words too
        if result < 0:
            raise _left_out(conversation, "this answer", message.content)
        before, after = rest[:result], rest[result + len(content) :]
        closing, between = self._closing(after)
        before = before if before.strip() else ""
        letters = self.marks.spelled(message.content)
        tokens = self._ids(before + message.content) if letters is None else [*self._ids(before), *letters]
        return ended(tokens, closing), between

    def _continued(
        self, conversation: Conversation, message: Message, rest: str, opened: str
    ) -> tuple[list[int], list[int]]:
        """Return the same behind a prompt that has opened the thoughts: the answer begins inside of them.

        ``rest``: what the template writes of it before a later turn; empty for the last answer.
        """
        words, mark = _behind_opening(message, opened), opened.strip()
        if words is None:
            raise ConversationError(
                f"{conversation.location}: the chat template opens the thoughts of each answer ({mark}), and this "
                f"answer has none: {message.content[:60]!r}. Write it as {mark}thoughts{closing_of(mark)}answer, or "
                "the thoughts as reasoning_content; some templates leave thoughts out with data.chat_template_kwargs: "
                "{enable_thinking: false}"
            )
        _, result, after = rest.partition(words.strip())
        if rest and not result:
            raise _left_out(conversation, "this answer", message.content)
        closing, between = self._closing(after)
        return ended(self.marks.encode(words), closing), between

    def _called(
        self, conversation: Conversation, opening: str, whole: Sequence[Message], rest: str
    ) -> tuple[list[int], list[int]]:
        """Return (a message with calls as the template writes it, up to its end; what the template writes behind
        it)."""
        written = self._behind_prompt(conversation, opening, self._render(conversation, whole))
        tokens = self._ids(written)
        size = self._renderer.end_of_call(tokens)
        response = tokens[:size] if size else [*tokens, self._renderer.turn_end]
        size = size or len(tokens)
        missing = [one["function"]["name"] for one in whole[-1].calls if one["function"]["name"] not in written]
        if missing or whole[-1].content.strip() not in written:
            raise ConversationError(
                f"{conversation.location}: the chat template leaves tool_calls out ({', '.join(missing) or 'words'}): "
                'write the call into the content (<tool_call>{"name": ..., "arguments": {...}}</tool_call>), or take a '
                "tokenizer whose template writes calls"
            )
        following = self._ids(rest) if rest else response
        if following[:size] != tokens[:size]:
            raise _RenderedOtherwiseError(conversation.location)
        return response, following[size:]

    def _closing(self, after: str) -> tuple[int, list[int]]:
        """Return (the end mark, what the template writes behind it); the tokenizer's end if the template writes none.

        The mark is the one that stands behind a last answer, also if the template writes another one in between.
        """
        tokens = self._ids(after)
        position = next((at for at, token in enumerate(tokens) if token in self._renderer.marks), None)
        if position is None:
            return self._renderer.turn_end, tokens
        ends = self._renderer.turn_ends
        return tokens[position] if tokens[position] in ends else self._renderer.turn_end, tokens[position + 1 :]

    def _after(self, conversation: Conversation, opening: str, whole: str) -> str:
        if not whole.startswith(opening):
            raise _RenderedOtherwiseError(conversation.location)
        return whole[len(opening) :]

    def _behind_prompt(self, conversation: Conversation, opening: str, whole: str) -> str:
        """Return the last answer, as the template writes it behind the prompt for it."""
        if not whole.startswith(opening):
            shared = next(at for at in range(len(opening)) if whole[at : at + 1] != opening[at])
            raise ConversationError(
                f"{conversation.location}: the chat template ends the prompt of this answer with "
                f"{opening[shared:][:60]!r}, and later writes {whole[shared:][:60]!r} instead: begin the answer so "
                "that it continues the former, or change the end of the prompt by data.chat_template_kwargs"
            )
        return whole[len(opening) :]

    def _render(self, conversation: Conversation, messages: Sequence[Message], *, prompt: bool = False) -> str:
        plain = self._renderer.known_roles([message.for_template() for message in messages])
        try:
            return rendered_with_pictures(
                self._reader,
                self.tokenizer,
                plain,
                prompt=prompt,
                variables=self._template_kwargs,
                tools=conversation.tools,
            )
        except Exception as error:  # a template is a program of its author's, and raises what it likes
            roles = ", ".join(message.role for message in messages)
            message = f"{conversation.location}: the chat template refuses the roles {roles}: {error}"
            raise ConversationError(message) from error

    def _ids(self, text: str) -> list[int]:
        return list(self._renderer.encode(text))


def _behind_opening(message: Message, opened: str) -> str | None:
    """Return an answer without the mark that ``opened`` its thoughts; None if it has no thoughts."""
    mark, closing = opened.strip(), closing_of(opened)
    if message.thoughts:
        return f"{message.thoughts}\n{closing}\n\n{message.content}"
    text = message.content.lstrip()
    if text.startswith(mark) and closing in text:
        return text.removeprefix(mark).removeprefix("\n")
    return message.content if closing in text and mark not in text else None


def _left_out(conversation: Conversation, what: str, words: str) -> ConversationError:
    fix = ""
    if what == _THOUGHTS:
        fix = f": write them into the content, between {OPENING} and {closing_of(OPENING)}"
    elif OPENING in words:
        fix = ": write its thoughts as reasoning_content"
    return ConversationError(
        f"{conversation.location}: the chat template leaves {what} out, or rewrites it: {words[:60]!r}{fix}"
    )


class ImitationData:
    """Batches of encoded conversations: each epoch visits every row of the file once, in an order of its own."""

    def __init__(self, rows: Sequence[Sequence[Encoded]], *, batch_size: int, pad_token_id: int, seed: int) -> None:
        """``rows``: one conversation each, or a chosen and a rejected one, which stand together in their batch.

        Raises UserError if there are no rows."""
        if not rows:
            raise UserError("sft.data: no conversation is short enough for sft.max_tokens")
        self.rows, self.batch_size, self.pad_token_id = rows, batch_size, pad_token_id
        self._order = TaskOrder(len(rows), seed=seed, shuffle=True)

    def batch(self, step: int) -> Batch:
        """Build the batch of warm-start step ``step``: a function of the seed and the step."""
        return self._batch(self._order.tasks(step * self.batch_size, self.batch_size))

    def parts(self) -> list[Batch]:
        """All conversations in their order, in batches."""
        indices = range(len(self.rows))
        return [self._batch(indices[i : i + self.batch_size]) for i in indices[:: self.batch_size]]

    def _batch(self, indices: Sequence[int]) -> Batch:
        rows = [
            Row.imitated(
                group,
                index,
                (one.conversation.messages[0].content, one.conversation.messages[-1].content),
                prompt_ids=one.prompt,
                tokens=one.tokens,
                mask=one.mask,
                pictures=one.pictures,
            )
            for group, index in enumerate(indices)
            for one in self.rows[index]
        ]
        return imitation_batch(rows, pad_token_id=self.pad_token_id)
