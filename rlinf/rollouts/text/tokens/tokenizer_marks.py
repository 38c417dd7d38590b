"""The marks that a tokenizer reads in texts: those behind an answer are its end, those inside are letters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from rlinf.base.published_end_marks import PUBLISHED, without_end_marks
from rlinf.rollouts.text.tokens.prompts import PromptRenderer


class TokenizerMarks:
    """The marks that a tokenizer reads in texts: those behind an answer are its end, those inside are letters."""

    def __init__(self, renderer: PromptRenderer) -> None:
        self._renderer = renderer

    def stripped(self, answer: str) -> str:
        """Return an answer without the end marks behind its last word; of nothing but marks as it is.

        What follows a mark may be blanks alone.
        """
        return without_end_marks(answer, self._own_ends) or answer

    def inside(self, text: str) -> str | None:
        """Return the first mark in ``text``; None if there is none."""
        result = self._marks.search(text)
        return result.group() if result else None

    def encode(self, answer: str) -> list[int]:
        """Return the tokens of an answer's words, in which ends are letters (``<s>no</s>``) where that is possible."""
        letters = self.spelled(answer)
        return list(self._renderer.encode(answer)) if letters is None else letters

    def spelled(self, answer: str) -> list[int] | None:
        """Return the tokens of an answer with the end marks inside as letters, as a policy writes them itself.

        None if there is no mark, if one opens a message, or if the tokenizer cannot leave its special tokens unread.
        """
        inside, renderer = set(self._marks.findall(answer)), self._renderer
        if not inside or not inside <= self._own_ends or answer.strip() in inside:
            return None
        special = set(renderer.tokenizer.all_special_ids)
        ends = {renderer.tokenizer.convert_tokens_to_ids(mark) for mark in inside}
        if not special.intersection(renderer.encode(answer)) <= ends:
            return None
        try:
            tokens = renderer.tokenizer.encode(answer, add_special_tokens=False, split_special_tokens=True)
        except ValueError:  # of Mistral's own tokenizer
            return None
        return None if special.intersection(tokens) else list(tokens)

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
        named = (token for token in self._renderer.tokenizer.special_tokens_map.values() if isinstance(token, str))
        return re.compile(_any_of({*self._own_ends, *self._written(between), *filter(self._is_token, named)}))

    @cached_property
    def _own_ends(self) -> set[str]:
        published = filter(self._is_token, PUBLISHED) if self._renderer.chat else ()
        return {*self._written(self._renderer.turn_ends), *published}

    def _written(self, tokens: Iterable[int]) -> list[str]:
        """Return how tokens are written, of those that texts can spell."""
        texts = map(self._renderer.tokenizer.convert_ids_to_tokens, tokens)
        return [text for text in texts if self._is_token(text)]

    def _is_token(self, text: str) -> bool:
        """Whether the tokenizer reads all of ``text`` as one token that stands for itself."""
        return text in self._renderer.tokenizer.get_added_vocab() and len(self._renderer.tokenizer.tokenize(text)) == 1


def _any_of(texts: Iterable[str]) -> str:
    """Return the expression of any of ``texts``, the longest first; of none, one that is nowhere."""
    return "|".join(map(re.escape, sorted(texts, key=len, reverse=True))) or r"(?!)"
