"""Conversations as token rows for supervised training: every token of an answer counts, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlinf.errors import UserError
from rlinf.rollouts.text.chat_template import rendered
from rlinf.rollouts.text.conversation_files import Conversation, ConversationError, Message
from rlinf.rollouts.text.rollout import imitation_batch
from rlinf.rollouts.text.rows import Row
from rlinf.rollouts.text.task_order import TaskOrder
from rlinf.types import Batch


@dataclass(frozen=True)
class Encoded:
    """A conversation in tokens: the prompt, then everything after it with a mask of what is imitated."""

    prompt: tuple[int, ...]
    tokens: list[int]
    mask: list[bool]
    conversation: Conversation

    def __len__(self) -> int:
        return len(self.prompt) + len(self.tokens)


@dataclass
class _Parts:
    """Text pieces in order, each with whether it is imitated."""

    pieces: list[tuple[list[int], bool]] = field(default_factory=list)

    def add(self, tokens: list[int], imitated: bool) -> None:
        if tokens:
            self.pieces.append((tokens, imitated))


class ConversationEncoder:
    """Renders conversations with the tokenizer's chat template, or as plain text where it has none.

    Each answer is encoded by itself, as a sampler would have produced it behind the prompt before it, and ends with the
    end mark. Its words are those of the file: a template that strips spaces does not change them.
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        chat_template: str = "auto",
        system_prompt: str | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            chat_template: auto, always or never.
            system_prompt: for conversations that have none.
            template_kwargs: further variables of the chat template.
        """
        self.tokenizer, self.system_prompt = tokenizer, system_prompt
        self._template_kwargs = dict(template_kwargs or {})
        self.chat = getattr(tokenizer, "chat_template", None) is not None and chat_template != "never"
        self._marks = frozenset({*tokenizer.all_special_ids, *tokenizer.added_tokens_decoder})

    def encode(self, conversation: Conversation) -> Encoded:
        """Raises ConversationError where the template cannot render it, or leaves an answer out."""
        messages = list(conversation.messages)
        if self.system_prompt is not None and messages[0].role != "system":
            messages.insert(0, Message("system", self.system_prompt, False))
        parts = self._templated(conversation, messages) if self.chat else self._plain(messages)
        prompt: list[int] = []
        tokens: list[int] = []
        mask: list[bool] = []
        for piece, imitated in parts.pieces:
            if not imitated and not tokens:
                prompt += piece
            else:
                tokens += piece
                mask += [imitated] * len(piece)
        if not prompt:
            raise ConversationError(f"{conversation.place}: the prompt is empty")
        return Encoded(tuple(prompt), tokens, mask, conversation)

    def _plain(self, messages: Sequence[Message]) -> _Parts:
        """As conversations of reinforcement learning without a template: system prompt, blank line, turns by line."""
        parts = _Parts()
        asked: list[str] = []
        for place, message in enumerate(messages):
            if message.role != "assistant":
                asked.append(message.content + ("\n" if message.role == "system" else ""))
                continue
            text = "\n".join(asked)
            parts.add(self._ids(f"\n{text}\n" if parts.pieces else text), False)
            parts.add([*self._ids(message.content), self.tokenizer.eos_token_id], message.imitated)
            asked = []
            if not any(later.imitated for later in messages[place + 1 :]):
                break
        return parts

    def _templated(self, conversation: Conversation, messages: Sequence[Message]) -> _Parts:
        parts = _Parts()
        answers = [place for place, message in enumerate(messages) if message.role == "assistant"]
        last = max(place for place, message in enumerate(messages) if message.imitated)
        answers = [place for place in answers if place <= last]
        opening = self._render(conversation, messages[: answers[0]], prompt=True)
        parts.add(self._ids(opening), False)
        for place, following in zip(answers, [*answers[1:], None], strict=True):
            if following is None:
                rest = self._after(conversation, opening, self._render(conversation, messages[: place + 1]))
            else:
                closed = self._render(conversation, messages[:following], prompt=True)
                rest, opening = self._after(conversation, opening, closed), closed
            message = messages[place]
            before, found, after = rest.partition(message.content.strip())
            if not found:
                raise ConversationError(
                    f"{conversation.place}: the chat template leaves this answer out, or rewrites it: "
                    f"{message.content[:60]!r}"
                )
            closing, between = self._closing(after)
            written = before.strip()
            said = before + message.content if written else message.content
            parts.add([*self._ids(said), *closing], message.imitated)
            if following is not None:
                parts.add(between, False)
        return parts

    def _closing(self, after: str) -> tuple[list[int], list[int]]:
        """(the end mark, what the template writes behind it); the tokenizer's end where the template writes none."""
        tokens = self._ids(after)
        place = next((i for i, token in enumerate(tokens) if token in self._marks), None)
        if place is None:
            return [self.tokenizer.eos_token_id], tokens
        return [tokens[place]], tokens[place + 1 :]

    def _after(self, conversation: Conversation, opening: str, whole: str) -> str:
        if not whole.startswith(opening):
            raise ConversationError(
                f"{conversation.place}: the chat template renders earlier turns otherwise once there are later ones, "
                "so that no row holds all answers as they were prompted: write one row for each answer, with weight 0 "
                "on the answers before it"
            )
        return whole[len(opening) :]

    def _render(self, conversation: Conversation, messages: Sequence[Message], *, prompt: bool = False) -> str:
        plain = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return rendered(self.tokenizer, plain, prompt=prompt, variables=self._template_kwargs)
        except Exception as error:  # a template is a program of its author's, and raises what it likes
            roles = ", ".join(message.role for message in messages)
            message = f"{conversation.place}: the chat template refuses the roles {roles}: {error}"
            raise ConversationError(message) from error

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False))


class ImitationData:
    """Batches of encoded conversations: each epoch visits every row of the file once, in an order of its own."""

    def __init__(self, rows: Sequence[Sequence[Encoded]], *, batch_size: int, pad_token_id: int, seed: int) -> None:
        """``rows``: one conversation each, or a chosen and a rejected one, which stand together in their batch.

        Raises UserError where there are no rows."""
        if not rows:
            raise UserError("sft.data: no conversation is short enough for sft.max_tokens")
        self.rows, self.batch_size, self.pad_token_id = rows, batch_size, pad_token_id
        self._order = TaskOrder(len(rows), seed=seed, shuffle=True)

    def batch(self, step: int) -> Batch:
        """The batch of warm-start step ``step``: a function of the seed and the step."""
        return self._batch(self._order.tasks(step * self.batch_size, self.batch_size))

    def parts(self) -> list[Batch]:
        """All conversations in their order, in batches."""
        places = range(len(self.rows))
        return [self._batch(places[i : i + self.batch_size]) for i in places[:: self.batch_size]]

    def _batch(self, places: Sequence[int]) -> Batch:
        rows = [self._row(group, one, place) for group, place in enumerate(places) for one in self.rows[place]]
        return imitation_batch(rows, pad_token_id=self.pad_token_id)

    @staticmethod
    def _row(group: int, one: Encoded, task: int) -> Row:
        first, last = one.conversation.messages[0].content, one.conversation.messages[-1].content
        return Row.imitated(group, task, (first, last), prompt_ids=one.prompt, tokens=one.tokens, mask=one.mask)
