"""From an environment's texts to tokens: chat templates if the tokenizer has one, plain text otherwise."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlinf.base.errors import UserError
from rlinf.base.time_limit import TimeLimitError
from rlinf.data.messages import Completion
from rlinf.data.pictures import pictures_of, replaced
from rlinf.rollouts.text.tokens.chat_template import rendered_before, requires_system, template_to_name, text_start
from rlinf.rollouts.text.tokens.decoding import ResponseText
from rlinf.rollouts.text.tokens.first_prompt import first_messages
from rlinf.rollouts.text.tokens.picture_tokens import left_out, picture_tokens, rendered_with_pictures
from rlinf.rollouts.text.tokens.response_templates import form_for
from rlinf.rollouts.text.tokens.stop_texts import cut_at_stop
from rlinf.rollouts.text.tokens.thoughts import opened_thoughts
from rlinf.rollouts.text.tokens.tool_forms import (
    ANY_TOOL,
    HERMES,
    ToolForm,
    answered_turns,
    call_message,
    called_turns,
    described,
    tool_message,
    tool_messages,
)

if TYPE_CHECKING:
    from rlinf.models.vision.reading import PictureReader

_ANSWER, _OBSERVATION, _ROLE = "@@ANSWER@@", "@@OBSERVATION@@", "@@ROLE@@"
_PROBE = "question"
_PROMPTS, _PICTURE_PROMPTS = 4096, 64
"""Prompts that are kept, and of those with pictures: a group requests one several times."""
Message = dict[str, Any]
_QUESTION: Message = {"role": "user", "content": _PROBE}


class ChatTemplateError(UserError):
    """A chat template that is missing or can't render what the run needs; the message states what to change."""


class TemplateTooSlowError(UserError):
    """A chat template that does not finish; the message states what to change."""


class PromptRenderer:
    """Turns observations into token ids, once per distinct text."""

    def __init__(
        self,
        tokenizer: Any,
        *,
        chat_template: str = "auto",
        system_prompt: str | None = None,
        system_key: str = "data.system_prompt",
        instruction: str = "never",
        instructions: Mapping[str, str] | None = None,
        tools: Sequence[Mapping[str, Any]] = (),
        example: str = "",
        template_kwargs: Mapping[str, Any] | None = None,
        end_token_ids: Collection[int] = (),
        stop: Sequence[str] = (),
        reader: PictureReader | None = None,
    ) -> None:
        """
        Args:
            chat_template: auto, always or never.
            system_key: the setting that ``system_prompt`` is from, for error messages.
            instruction: auto (where a chat template is applied), always or never.
            instructions: mark -> a sentence that closes first prompts in which the mark does not stand.
            tools: what the policy may call; described in the first prompt by the chat template, or in words if it
                does not describe tools (as ``instruction`` sets).
            example: an observation that begins and ends as all of them do (see :attr:`opened_thoughts`).
            template_kwargs: further variables of the chat template.
            end_token_ids: tokens that end a response, besides the tokenizer's end of sequence.
            stop: texts that end a response (see :meth:`until_stop`).
            reader: of a vision-language model.

        Raises:
            ChatTemplateError: it is ``always`` and the tokenizer has none.
        """
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if chat_template == "always" and not has_template:
            raise ChatTemplateError(
                "data.chat_template is always, and the tokenizer has no chat template. Set it to auto, or take the "
                "tokenizer of a chat model (policy.tokenizer.path)."
            )
        self.tokenizer = tokenizer
        self.chat = has_template and chat_template != "never"
        self.system_prompt, self._system_key = system_prompt, system_key
        instructs = instruction == "always" or (instruction == "auto" and self.chat)
        self._instructions = dict(instructions or {}) if instructs else {}
        self._tools, self._instructs, self._example = list(tools), instructs, example
        self._template_kwargs = dict(template_kwargs or {})
        self._end_token_ids = frozenset(end_token_ids)
        self._stop = tuple(stop)
        self._reader = reader
        self._of_text = functools.lru_cache(_PROMPTS)(self._first_tokens)
        self._of_pictures = functools.lru_cache(_PICTURE_PROMPTS)(self._first_tokens)
        self.decodes_responses = True
        """Whether responses become text here; otherwise where they are graded."""

    def prompt(self, observation: str) -> tuple[int, ...]:
        """Token ids of a conversation's first prompt."""
        return (self._of_pictures if pictures_of(observation) else self._of_text)(observation)

    def _first_tokens(self, observation: str) -> tuple[int, ...]:
        return self.begun(self.opening(observation))

    def opening_messages(self, observation: str) -> tuple[list[Message], Sequence[Mapping[str, Any]]]:
        """Return the messages of a conversation's first prompt, and the tools that the chat template adds to them."""
        words = described(self._tools) if self._tools and self._instructs and not self._takes_tools else ""
        system, added = self.system_prompt, self._instructions
        messages = first_messages(observation, system_prompt=system, instructions=added, tools=words, chat=self.chat)
        return messages, self._tools if self._takes_tools else ()

    def opening(self, observation: str) -> str:
        """Return the text of a conversation's first prompt."""
        messages, _ = self.opening_messages(observation)
        if not self.chat:
            return str(messages[0]["content"])
        text = self._apply(messages, prompt=True, tools=self._tools)
        if (lost := left_out(text, messages)) is not None:
            fix = f"{self._system_key}: null" if lost["role"] == "system" else "data.chat_template: never"
            raise ChatTemplateError(
                f"data.chat_template: the tokenizer's template leaves the words of the {lost['role']} out "
                f"({replaced(lost['content'], '')[:60]!r}). Set {fix}, or take a model with another template."
            )
        if (wrong := rendered_before(messages[-1]["content"], self.generation_prompt)) is not None:
            raise ChatTemplateError(f"data.chat_template: {wrong}")
        return text

    @functools.cached_property
    def generation_prompt(self) -> str:
        """The template's words between the user's and the policy's answer; empty if they hold no mark."""
        text = ""
        with contextlib.suppress(ChatTemplateError):
            text = self._apply([_QUESTION], prompt=True) if self.chat else ""
        generation_prompt = text.rpartition(_PROBE)[2].removesuffix(opened_thoughts(text)).strip()
        return generation_prompt if self._marks_in(generation_prompt) else ""

    def continuation(
        self, observation: str, role: str = "user", *, after: int | None = None, response: str = ""
    ) -> tuple[int, ...]:
        """Return token ids of the environment's text in between, up to the start of the policy's next turn.

        ``role``: user, or tool if a tool answers a call in ``response``, the policy's turn as the environment read it.
        ``after``: its last token; if that is an end mark, the template's own is left out.

        Raises:
            ChatTemplateError: the template can't render a second turn.
        """
        messages = [_message(role, observation)]
        if role == "tool":
            # A template that insists on the call has one; to others several answers are the end of any turn.
            several = self.chat and self._tool_turn == "answered"
            messages = tool_messages(observation, response, several=several)
        return self.continuation_of(messages, after=after)

    def continuation_of(self, messages: Sequence[Mapping[str, Any]], *, after: int | None = None) -> tuple[int, ...]:
        """Return the same for any messages that follow the policy's turn; those of tools name the tool."""
        if not self.chat:
            words = "\n".join(str(message["content"]) for message in messages)
            tokens = self.encode(f"\n{words}\n")
        else:
            known = self.known_roles(messages)
            role = "tool" if known[0]["role"] == "tool" else "user"
            tokens = self._behind_call(self.encode(self._following(known)), role)
            closing, end_marks = self._turn_end_for(role)
            if after in end_marks:
                return tokens[closing:]
        return tokens[1:] if tokens and tokens[0] == after else tokens

    def conversation(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[int, ...]:
        """Return token ids of a whole conversation, up to the start of the policy's turn.

        ``tools`` are described by the template, or in words before the first answer (as ``instruction`` sets).

        Raises:
            ChatTemplateError: the template can't render these messages.
        """
        if tools and self._instructs and not self._takes_tools:
            position = next((at for at, one in enumerate(messages) if one["role"] == "assistant"), len(messages)) - 1
            extended = {**messages[position], "content": f"{messages[position]['content']}\n\n{described(tools)}"}
            messages = [*messages[:position], extended, *messages[position + 1 :]]
        if not self.chat:
            return self.begun("\n".join(str(message["content"]) for message in messages))
        return self.begun(self._apply(self.known_roles(messages), prompt=True, tools=tools))

    def require_turns(self) -> None:
        """Raise ChatTemplateError if the template can't render a second turn."""
        self.continuation(_OBSERVATION)

    def role(self, speaker: str, role: str = "user") -> str | None:
        """Return the chat role of ``speaker`` (policy, or environment as ``role``); None in plain text."""
        if not self.chat:
            return None
        return "assistant" if speaker == "policy" else self._role_of(role)

    def env_text(self, tokens: Sequence[int]) -> str:
        """Return a response as the environment reads it: its calls of tools are put into the one form that it reads.

        Thoughts that the chat template has opened begin with the mark that opens them.
        """
        return ResponseText(self.tokenizer, self._form_of_calls(), self.opened_thoughts).env_text(tokens)

    def answered(self, tokens: Sequence[int], *, tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """Return a response as an agent reads it: what a server returns, without any words of the prompt.

        ``tools``: those of the agent, which are not the environment's.
        """
        return ResponseText(self.tokenizer, self._form_of_calls(tools)).env_text(tokens)

    @functools.cached_property
    def opened_thoughts(self) -> str:
        """The end of the prompts that opens the policy's thoughts; empty if they open none.

        Written by the chat template, or in plain text by the environment's own prompt (``<think>`` as its last word).
        """
        try:
            return opened_thoughts(self.opening(self._example or _PROBE))
        except ChatTemplateError:  # which is reported where the first prompt is made
            return ""

    def about_tools(self) -> str:
        """How tools are described to the policy, in which form it calls them, and in which role they answer."""
        if self._takes_tools:
            described_by = "the chat template describes them"
        elif self._instructs:
            described_by = "described in words at the end of the first prompt"
        else:
            described_by = "not described (data.instruction: always does so in words), so a warm start has to show them"
        role = self.role("environment", "tool")
        answers = "in plain text" if role is None else f"in the role {role}"
        return f"{described_by}; calls in the form {self.tool_form.name}; answers {answers}"

    @property
    def tool_form(self) -> ToolForm:
        """How the template's models write calls."""
        return self._tool_form(self._tools)

    def _tool_form(self, tools: Sequence[Mapping[str, Any]]) -> ToolForm:
        if not self.chat:
            return replace(HERMES, tools=tuple(tools))
        return form_for(self._written_call, self.tokenizer, tools=tools, opened=self.opened_thoughts)

    @functools.cached_property
    def _written_call(self) -> str:
        """What the template writes for a call; empty if it cannot."""
        for as_text in (False, True):
            with contextlib.suppress(ChatTemplateError):
                return self._apply([_QUESTION, call_message(_ANSWER, as_text=as_text)], prompt=False)
        return ""

    def response_text(self) -> ResponseText | None:
        """Return what decodes responses as :meth:`env_text`, for workers without transformers; None if nothing can.

        Transformers reads responses by the tokenizer's own response template.
        """
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        cleans_up = getattr(self.tokenizer, "clean_up_tokenization_spaces", False)
        if backend is None or (cleans_up and type(backend.model).__name__ != "BPE"):
            return None
        form = self._form_of_calls()
        if form is not None and form.reads_thoughts:
            return None
        return ResponseText(backend, form, self.opened_thoughts)

    def _form_of_calls(self, tools: Sequence[Mapping[str, Any]] = ()) -> ToolForm | None:
        """Return the form of the policy's calls; None if it has no tools.

        ``tools``: those that it has besides the environment's.
        """
        return self._tool_form([*self._tools, *tools]) if self._tools or tools else None

    def text(self, tokens: Sequence[int]) -> str:
        """Return a response's text, without special tokens."""
        words = tokens if self._reader is None else [token for token in tokens if token >= 0]
        return self.tokenizer.decode(list(words), skip_special_tokens=True)

    def until_stop(self, completion: Completion, stop: Sequence[str] = ()) -> Completion:
        """Cut a response behind the token that completes a stop text, also of ``stop``; as it is if none occurs."""
        return cut_at_stop(completion, (*self._stop, *stop), self.text)

    def known_roles(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the messages, each in a role that the template has."""
        return [{**message, "role": self._role_of(message["role"])} for message in messages]

    def _role_of(self, role: str) -> str:
        """Return ``role``, or user if the template has no such role."""
        return role if role != "tool" or self._tool_turn is not None else "user"

    @functools.cached_property
    def _tool_turn(self) -> str | None:
        """The turn before a tool's answer: "answered" (any) or "called" (a call, which some templates insist on).

        None if the template has no role for tools: it leaves their answers out, or writes them as it would write any
        unknown role.
        """
        with contextlib.suppress(ChatTemplateError):
            made_up = self._apply(answered_turns(_ANSWER, [_message(_ROLE, _OBSERVATION)]), prompt=True)
            tool = self._apply(answered_turns(_ANSWER, [_message("tool", _OBSERVATION)]), prompt=True)
            if not self._takes_tools and made_up.replace(_ROLE, "tool") == tool:
                return None
        for kind, turns in (("answered", answered_turns), ("called", called_turns)):
            with contextlib.suppress(ChatTemplateError):
                written = self._apply(turns(_ANSWER, [tool_message(_OBSERVATION)]), prompt=True)
                if 0 <= written.find(_ANSWER) < written.rfind(_OBSERVATION):
                    return kind
        return None

    @functools.cached_property
    def _takes_tools(self) -> bool:
        """Whether the chat template describes tools by itself."""
        if not self.chat:
            return False
        messages = [_QUESTION]
        try:
            with_tools = self._apply(messages, prompt=True, tools=self._tools or [ANY_TOOL])
            return with_tools != self._apply(messages, prompt=True)
        except ChatTemplateError:
            return False

    def _second_turn(self, role: str) -> str:
        """Return what the template writes between the policy's answer and its next one, about some observation."""
        return self._following([tool_message(_OBSERVATION) if role == "tool" else _message(role, _OBSERVATION)])

    def _following(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Return the text that a template writes between the policy's answer and its next one.

        The whole conversation is rendered and the part before cut off: most templates insist on a user's message
        first. The system prompt is left out, since some templates repeat it in the newest message.
        """
        called = messages[0]["role"] == "tool" and self._tool_turn == "called"
        return self._after_answer((called_turns if called else answered_turns)(_ANSWER, messages), prompt=True)

    def _behind_call(self, tokens: tuple[int, ...], role: str) -> tuple[int, ...]:
        """Drop the end of a call that the template wrote and the policy has sampled: up to the mark that closes it.

        That mark is the last one that the template also writes if nothing follows the call.
        """
        if role != "tool" or self._tool_turn != "called":
            return tokens
        last = 0
        for index, (token, alone) in enumerate(zip(tokens, self._after_call, strict=False)):
            if token != alone:
                break
            last = index if token in self.marks else last
        return tokens[last:]

    @functools.cached_property
    def _after_call(self) -> tuple[int, ...]:
        """The text that the template writes behind the argument of a call that is the conversation's last message."""
        return self.encode(self._after_answer([_QUESTION, call_message(_ANSWER)], prompt=False))

    def _after_answer(self, messages: Sequence[Mapping[str, Any]], *, prompt: bool) -> str:
        _, result, rest = self._apply(messages, prompt=prompt).rpartition(_ANSWER)
        if not result:
            raise ChatTemplateError(
                "data.chat_template: the tokenizer's template leaves the policy's earlier answers out "
                f"({rest[-80:]!r}), so that a second turn can't be rendered. Set env.max_turns: 1, or "
                "data.chat_template: never."
            )
        return rest

    @functools.cache  # noqa: B019  (as long as the renderer lives)
    def _turn_end_for(self, role: str) -> tuple[int, frozenset[int]]:
        """(how many of a continuation's tokens close the policy's turn, tokens that end it, sampled or written).

        The first ones count up to and with the end mark. What follows an answer that is the conversation's last message
        tells closing from what opens the next turn. The mark itself may differ: gpt-oss writes <|return|> there and
        <|end|> in the middle of a conversation.
        """
        whole = self._behind_call(self.encode(self._second_turn(role)), role)
        marks = [index for index, token in enumerate(whole) if token in self.marks]
        closing = 0
        if marks and role == "tool" and self._tool_turn == "called":
            closing = marks[0] + 1
        elif marks and self._last_mark is not None:
            opened = self.encode(self._second_turn(role).partition(_OBSERVATION)[0])
            own_and_header = marks[0] == 0 and sum(token in self.marks for token in opened) > 1
            if opened[marks[0]] == self._last_mark or own_and_header:
                closing = marks[0] + 1
        written = {self._last_mark, *whole[max(0, closing - 1) : closing]}
        ends = self._end_token_ids | {self.tokenizer.eos_token_id} | {mark for mark in written if mark is not None}
        return closing, ends

    @property
    def turn_end(self) -> int:
        """The token that a taught answer ends with: the chat template's mark, or the tokenizer's end of sequence.

        Both are among :attr:`turn_ends`.
        """
        mark = self._mark_of_last_answer
        return int(self.tokenizer.eos_token_id) if mark is None else mark

    @functools.cached_property
    def turn_ends(self) -> frozenset[int]:
        """Tokens that end the policy's turn: what samplers stop at, and what an exported model declares.

        A template that writes nothing behind the last answer tells its end by the mark that opens the next turn. Behind
        a call of a tool some templates write a mark of their own.
        """
        last, result = self._mark_of_last_answer, {int(self.tokenizer.eos_token_id)}
        if not self.chat:
            return frozenset(result)
        result |= {last} if last is not None else set()
        with contextlib.suppress(ChatTemplateError):
            if last is None:
                result |= set(self._marks_in(self._after_answer(answered_turns(_ANSWER, [_QUESTION]), prompt=True))[:1])
        with contextlib.suppress(ChatTemplateError):
            written = self._after_call
            result |= set(written[self.end_of_call(written) - 1 : self.end_of_call(written)])
        return frozenset(result)

    def end_of_call(self, written: Sequence[int]) -> int:
        """Count the tokens of what the template writes for a message with calls that belong to the policy's turn.

        Up to the last special token; 0 if there is none. Marks of the calls themselves are no special tokens.
        """
        named, added = self.tokenizer.all_special_ids, self.tokenizer.added_tokens_decoder
        special = {*named, *(token for token, one in added.items() if one.special)}
        return max((index + 1 for index, token in enumerate(written) if token in special), default=0)

    @functools.cached_property
    def _mark_of_last_answer(self) -> int | None:
        """:attr:`_last_mark`; None also without a template, and if it can't render an answer."""
        with contextlib.suppress(ChatTemplateError):
            return self._last_mark if self.chat else None
        return None

    def _marks_in(self, text: str) -> list[int]:
        return [token for token in self.encode(text) if token in self.marks]

    @functools.cached_property
    def _last_mark(self) -> int | None:
        """The mark behind an answer that is the conversation's last message."""
        rest = self._after_answer([_QUESTION, _message("assistant", _ANSWER)], prompt=False)
        return next(iter(self._marks_in(rest)), None)

    @functools.cached_property
    def marks(self) -> frozenset[int]:
        """Tokens that stand for themselves, outside the vocabulary of words."""
        return frozenset({*self.tokenizer.all_special_ids, *self.tokenizer.added_tokens_decoder})

    def _apply(
        self, messages: Sequence[Mapping[str, Any]], *, prompt: bool, tools: Sequence[Mapping[str, Any]] = ()
    ) -> str:
        try:
            return rendered_with_pictures(
                self._reader, self.tokenizer, messages, prompt=prompt, variables=self._template_kwargs, tools=tools
            )
        except TimeLimitError as error:  # no one tries again, or another way: each attempt takes as long
            raise TemplateTooSlowError(
                f"data.chat_template: the tokenizer's template can't be rendered: {error}. Set data.chat_template: "
                "never, or take a model with another template."
            ) from error
        except Exception as error:  # a template is a program of its author's, and raises what it likes
            roles = ", ".join(message["role"] for message in messages)
            fix = template_to_name(self.tokenizer) or ("env.max_turns: 1, or " if "assistant" in roles else "")
            if not fix and "system" in roles:
                fix = f"{self._system_key}: null, with its words before {{question}} in env.kwargs.prompt_template, or "
            elif not fix and requires_system(self.tokenizer, messages, self._template_kwargs):
                fix = f"{self._system_key} to the system prompt that the template requires, or "
            raise ChatTemplateError(
                f"data.chat_template: the tokenizer's template can't render the messages {roles} ({error}). "
                f"Set {fix}data.chat_template: never."
            ) from error

    def begun(self, text: str) -> tuple[int, ...]:
        """Token ids of the text that a conversation begins with.

        Without a chat template it gets what the tokenizer puts in front of every text, such as <bos>; a template writes
        that itself.
        """
        tokens, first = self.encode(text), () if self.chat else text_start(self.tokenizer)
        return tokens if tokens[: len(first)] == first else (*first, *tokens)

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of a text; marks in it become their tokens, and pictures the tokens that stand for them.

        A text that spells a token of pictures is ordinary text. Raises UserError for pictures if the policy reads text
        alone.
        """
        if self._reader is not None or pictures_of(text):
            return tuple(picture_tokens(text, self._reader, self.tokenizer))
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
