"""End marks in the words of conversations: a tokenizer reads them as the end of a message, not as letters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from rlinf.base.end_marks import PUBLISHED, without_end_marks
from rlinf.datasets.conversation_files import Conversation, ConversationError, Message
from rlinf.rollouts.text.tokens.prompts import PromptRenderer


class EndMarks:
    """The marks that a tokenizer reads in texts, and what remains of an answer without the one that it ends with."""

    def __init__(self, renderer: PromptRenderer) -> None:
        self._renderer, self._tokenizer = renderer, renderer.tokenizer

    def stripped(self, answer: str) -> str:
        """Return an answer without the end marks behind its last word; of nothing but marks as it is.

        What follows a mark may be blanks alone.
        """
        return without_end_marks(answer, self._own_ends) or answer

    def inside(self, text: str) -> str | None:
        """Return the first mark in ``text``; None if there is none."""
        result = self._marks.search(text)
        return result.group() if result else None

    def foreign(self, answer: str) -> str | None:
        """Return the end mark of another tokenizer that ``answer`` ends with; None for all else."""
        text = answer.rstrip()
        return next((mark for mark in PUBLISHED if text.endswith(mark) and not self._is_token(mark)), None)

    @cached_property
    def _marks(self) -> re.Pattern[str]:
        """The ends, and with a chat template all marks between two messages: plain prompts may have a template's."""
        made = self._renderer
        if not made.chat:
            return re.compile(_any_of(self._own_ends))
        between = (token for token in made.encode(made.generation_prompt) if token in made.marks)
        named = (token for token in self._tokenizer.special_tokens_map.values() if isinstance(token, str))
        return re.compile(_any_of({*self._own_ends, *self._written(between), *filter(self._is_token, named)}))

    @cached_property
    def _own_ends(self) -> set[str]:
        published = filter(self._is_token, PUBLISHED) if self._renderer.chat else ()
        return {*self._written(self._renderer.turn_ends), *published}

    def _written(self, tokens: Iterable[int]) -> list[str]:
        """Return how tokens are written, of those that texts can spell."""
        texts = map(self._tokenizer.convert_ids_to_tokens, tokens)
        return [text for text in texts if self._is_token(text)]

    def _is_token(self, text: str) -> bool:
        """Whether the tokenizer reads all of ``text`` as one token that stands for itself."""
        return text in self._tokenizer.get_added_vocab() and len(self._tokenizer.tokenize(text)) == 1


def _any_of(texts: Iterable[str]) -> str:
    """Return the expression of any of ``texts``, the longest first; of none, one that is nowhere."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or r"(?!)"


@dataclass
class _Kind:
    """Texts of a kind: how many, and where the first is."""

    count: int = 0
    first: str = ""

    def add(self, location: str) -> None:
        self.count += 1
        self.first = self.first or location

    def __str__(self) -> str:
        return f"{self.count:,}, the first in {self.first}"


@dataclass
class WrittenMarks:
    """What the words of conversations have of end marks."""

    ended: dict[str, _Kind] = field(default_factory=dict)
    """The tokenizer's own mark -> answers that end with it."""
    foreign: dict[str, _Kind] = field(default_factory=dict)
    """The mark of another tokenizer -> answers that end with it."""
    prompts: dict[str, _Kind] = field(default_factory=dict)
    """A mark -> messages that are not imitated and have it in them."""

    def remarks(self) -> list[tuple[str, str]]:
        """Return for each kind what there is, and what it means."""
        once = "It is taken as the end that every answer gets, and is not doubled."
        letters = "The tokenizer has no such mark, and its letters would be taught: take it out."
        closes = "The policy reads it as a mark between messages: take it out of the words."
        return [
            *((f"answers that end with {mark}: {kind}", once) for mark, kind in self.ended.items()),
            *((f"answers that end with {mark}: {kind}", letters) for mark, kind in self.foreign.items()),
            *((f"prompts with {mark} in their words: {kind}", closes) for mark, kind in self.prompts.items()),
        ]


def written_marks(conversations: Iterable[Conversation], marks: EndMarks) -> WrittenMarks:
    """Count the end marks in conversations. Raises ConversationError if an imitated answer has one inside."""
    result, refused = WrittenMarks(), dict[str, _Kind]()
    for conversation in conversations:
        for number, message in enumerate(conversation.messages, start=1):
            location = f"{conversation.location}, message {number} ({message.role})"
            words = _words(message)
            if message.role != "assistant":
                _count(result.prompts, marks.inside(words), location)
                continue
            bare = marks.stripped(words)
            _count(refused if message.imitated else result.prompts, marks.inside(bare), location)
            if message.imitated:
                _count(result.foreign, marks.foreign(words), location)
                _count(result.ended, marks.inside(words[len(bare) :]), location)
    if refused:
        mark, kind = next(iter(refused.items()))
        more = f" (of {kind.count:,} such answers the first)" if kind.count > 1 else ""
        raise ConversationError(
            f"{kind.first}: the answer has {mark} inside{more}. The tokenizer reads it as a mark that ends or begins "
            "messages, not as letters: take it out of the words, or take such rows out"
        )
    return result


def _words(message: Message) -> str:
    return f"{message.thoughts}\n{message.content}" if message.thoughts else message.content


def _count(kinds: dict[str, _Kind], mark: str | None, location: str) -> None:
    if mark is not None:
        kinds.setdefault(mark, _Kind()).add(location)
