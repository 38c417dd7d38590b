"""Counts of end marks in the words of conversations, and the refusal of answers that cannot be taught with them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rlinf.datasets.conversation_files import Conversation, ConversationError, Message
from rlinf.rollouts.text.tokens.tokenizer_marks import TokenizerMarks


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
    """Counts of end marks in the words of conversations."""

    ended: dict[str, _Kind] = field(default_factory=dict)
    """The tokenizer's own mark -> answers that end with it."""
    foreign: dict[str, _Kind] = field(default_factory=dict)
    """The mark of another tokenizer -> answers that end with it."""
    spelled: dict[str, _Kind] = field(default_factory=dict)
    """A mark -> answers that have it inside, where it is taught as letters."""
    prompts: dict[str, _Kind] = field(default_factory=dict)
    """A mark -> messages that are not imitated and have it in them."""

    def remarks(self) -> list[tuple[str, str]]:
        """Return for each kind what there is, and what it means."""
        once = "It is taken as the end that every answer gets, and is not doubled."
        letters = "The tokenizer has no such mark, and its letters would be taught: take it out."
        text = "It is taught as these letters. If it separates answers, write a row for each."
        closes = "The policy reads it as a mark between messages: take it out of the words."
        return [
            *((f"answers that end with {mark}: {kind}", once) for mark, kind in self.ended.items()),
            *((f"answers that end with {mark}: {kind}", letters) for mark, kind in self.foreign.items()),
            *((f"answers with {mark} inside: {kind}", text) for mark, kind in self.spelled.items()),
            *((f"prompts with {mark} in their words: {kind}", closes) for mark, kind in self.prompts.items()),
        ]


def written_marks(conversations: Iterable[Conversation], marks: TokenizerMarks) -> WrittenMarks:
    """Count the end marks in conversations.

    Raises ConversationError if an imitated answer has one inside that cannot be letters.
    """
    result, refused = WrittenMarks(), dict[str, _Kind]()
    for conversation in conversations:
        for number, message in enumerate(conversation.messages, start=1):
            location = f"{conversation.location}, message {number} ({message.role})"
            words = _words(message)
            if message.role != "assistant":
                _count(result.prompts, marks.inside(words), location)
                continue
            bare = marks.stripped(words)
            if (mark := marks.inside(bare)) is not None:
                is_letters = not message.calls and marks.spelled(bare) is not None
                within = result.spelled if is_letters else refused
                _count(within if message.imitated else result.prompts, mark, location)
            if message.imitated:
                _count(result.foreign, marks.foreign(words), location)
                _count(result.ended, marks.inside(words[len(bare) :]), location)
    if refused:
        mark, kind = next(iter(refused.items()))
        more = f" (of {kind.count:,} such answers the first)" if kind.count > 1 else ""
        raise ConversationError(
            f"{kind.first}: the answer has {mark} inside{more}. The tokenizer reads it as a mark that ends or begins "
            "messages, and it cannot be taught as letters: take it out of the words, or take such rows out"
        )
    return result


def _words(message: Message) -> str:
    return f"{message.thoughts}\n{message.content}" if message.thoughts else message.content


def _count(kinds: dict[str, _Kind], mark: str | None, location: str) -> None:
    if mark is not None:
        kinds.setdefault(mark, _Kind()).add(location)
