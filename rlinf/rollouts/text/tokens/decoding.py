"""From the tokens of a response to its text, in the process that grades it: this needs only `tokenizers`."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.data.token_array import TokenArray
from rlinf.rollouts.text.tokens.tool_forms import ToolForm, canonical

ToText = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class ResponseText:
    """A tokenizer's decoder on its way to the workers that grade."""

    tokenizer: Any
    """``tokenizers.Tokenizer``, or the tokenizer of transformers around it"""
    tool_form: ToolForm | None = None
    """How calls of tools are written, where they have to be put into the form that environments read."""
    opened: str = ""
    """The end of each prompt that opens the policy's thoughts: environments read a response behind it."""

    def text(self, tokens: Sequence[int]) -> str:
        """Without special tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))

    def env_text(self, tokens: Sequence[int]) -> str:
        """As an environment reads it: thoughts that the prompt has opened begin with the mark that opens them."""
        plain = self.opened + self.text(tokens)
        if self.tool_form is None:
            return plain
        return canonical(self.tool_form, self.tokenizer.decode(list(tokens), skip_special_tokens=False), plain)


def step_positions(
    tokens: TokenArray[int], ends: Sequence[int], to_text: ToText, *, opened: int = 0
) -> tuple[int, ...]:
    """For each step that ends before character ``ends[i]`` of a response, the token that completes its text.

    ``opened``: characters that the environment read in front of it (:attr:`ResponseText.opened`).

    The last step ends with the response: whether to stop there was its last decision.
    """
    if not len(tokens) or not len(ends):
        return ()
    # How many characters of the text are there after each token, decoded one by one. Tokens that share a
    # character, and what a decoder does between two, make it a little wrong.
    lengths = {token: len(to_text((token,))) for token in set(tokens)}
    whole, reached = to_text(tokens), list(itertools.accumulate(lengths[token] for token in tokens))

    def completing(end: int) -> int:
        prefix = whole[:end]
        guess = min(bisect.bisect_left(reached, end), len(tokens) - 1)
        return _first_true(lambda count: to_text(tokens[: count + 1]).startswith(prefix), guess, len(tokens) - 1)

    return (*(completing(max(0, int(end) - opened)) for end in ends[:-1]), len(tokens) - 1)


def _first_true(holds: Callable[[int], bool], guess: int, size: int) -> int:
    """Find the first of ``size`` numbers that ``holds``, or ``size``; all after it do too. Start near ``guess``.

    >>> [_first_true(lambda number: number >= 70, guess, 100) for guess in (0, 69, 70, 72, 99, 100)]
    [70, 70, 70, 70, 70, 70]
    """
    guess, step = min(guess, size - 1), 1
    if size and holds(guess):
        high = guess
        while high and holds(max(0, high - step)):
            high, step = max(0, high - step), 2 * step
        low = max(0, high - step) + 1 if high else 0
    else:
        low = guess + 1
        while low + step - 1 < size and not holds(low + step - 1):
            low, step = low + step, 2 * step
        high = min(low + step - 1, size)
    return low + bisect.bisect_left(range(low, high), True, key=holds)
