"""``rlinf/GuessNumber-v0``: a number to be guessed in several turns, the smallest conversation with a state."""

from __future__ import annotations

import re

from rlinf_envs.dialogue import Dialogue, End
from rlinf_envs.errors import SettingError
from rlinf_envs.extraction import without_thoughts
from rlinf_envs.math.words import number_word
from rlinf_envs.typed import typed

_NUMBER = re.compile(r"-?\d{1,3}(?:,\d{3})+(?!\d)|-?\d+")
_GUESSED = re.compile(
    rf"\b(?:guess|try|choose|pick|answer)\b(?: is| with| the number| number)*\W{{0,4}}({_NUMBER.pattern})(?!\d*:)",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    r"\b(?:(?:between|from)\s+-?\d+\s+(?:and|to)\s+-?\d+|than\s+-?\d+|(?:guess|turn|try)\s+\d+:)", re.IGNORECASE
)
"""Numbers that are no guess: "between 1 and 16", "higher than 8", "Guess 3:"."""


def guess_in(response: str) -> int | None:
    """Return the number that ``response`` guesses: the last behind "I guess", else the first that is no bound.

    >>> guess_in("It is between 1 and 16, so I guess 8."), guess_in("**8**"), guess_in("<think>16 / 2</think>eight")
    (8, 8, 8)
    """
    text = _COMPARED.sub(" ", without_thoughts(response))
    in_words = number_word(text.strip(" .!?*\n"))
    guesses = [result[1] for result in _GUESSED.finditer(text)][-1:] or _NUMBER.findall(text)
    if in_words is not None or not guesses or len(guesses[0]) > 9:
        return in_words
    return int(guesses[0].replace(",", ""))


class GuessNumber(Dialogue):
    """A guess is answered by "higher" or "lower"; the reward is 1 for the number itself."""

    @typed
    def __init__(self, numbers: int = 16, max_turns: int | None = None, careless: float = 0.0) -> None:
        """
        Args:
            numbers: the number lies between 1 and this.
            max_turns: guesses; by default as many as halving needs in the worst case.
            careless: share of demonstrated guesses that are any number at all instead of halving what is left: a policy
                that imitates them has to learn by its reward what they are worth.
        """
        if numbers < 1:
            raise SettingError(f"numbers must be at least 1, got {numbers}")
        if not 0.0 <= careless <= 1.0:
            raise SettingError(f"careless must lie between 0 and 1, got {careless}")
        self.numbers, self.max_turns = numbers, max_turns or numbers.bit_length()
        self._careless = careless
        self._number, self._low, self._high = 0, 1, numbers
        self._any: list[int | None] = []
        """By turn: what a demonstration guesses without thinking."""
        self._turn = 0

    def begin(self) -> str:
        self._number = int(self.np_random.integers(1, self.numbers + 1))
        self._low, self._high = 1, self.numbers
        guesses = self.np_random.integers(1, self.numbers + 1, size=self.max_turns).tolist()
        thinks = (self.np_random.random(self.max_turns) >= self._careless).tolist()
        self._any = [None if halves else guess for guess, halves in zip(guesses, thinks, strict=True)]
        self._turn = 0
        return f"Guess my number. It is between 1 and {self.numbers}. Say a number and nothing else."

    def reply(self, response: str) -> str | End:
        self._turn += 1
        guess = guess_in(response)
        if guess is None:
            return "Say a number."
        if guess == self._number:
            return End(1.0, extracted=str(guess))
        if guess < self._number:
            self._low = max(self._low, guess + 1)
            return "higher"
        self._high = min(self._high, guess - 1)
        return "lower"

    def demonstrate(self, observation: str) -> str:
        """Halve what is left, or return any number."""
        guess = self._any[self._turn] if self._turn < len(self._any) else None
        return str((self._low + self._high) // 2 if guess is None else guess)
