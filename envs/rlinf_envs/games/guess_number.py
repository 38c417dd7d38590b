"""``rlinf/GuessNumber-v0``: a number to be found by asking, the smallest conversation with a state."""

from __future__ import annotations

import re

from rlinf_envs.dialogue import Dialogue, End
from rlinf_envs.errors import SettingError

_NUMBER = re.compile(r"-?\d+")


class GuessNumber(Dialogue):
    """A guess is answered by "higher" or "lower"; the reward is 1 for the number itself."""

    def __init__(self, numbers: int = 16, max_turns: int | None = None) -> None:
        """
        Args:
            numbers: the number lies between 1 and this.
            max_turns: guesses; by default as many as halving needs in the worst case.
        """
        if numbers < 1:
            raise SettingError(f"numbers must be at least 1, got {numbers}")
        self.numbers, self.max_turns = numbers, max_turns or numbers.bit_length()
        self._number, self._low, self._high = 0, 1, numbers

    def begin(self) -> str:
        self._number = int(self.np_random.integers(1, self.numbers + 1))
        self._low, self._high = 1, self.numbers
        return f"Guess my number. It is between 1 and {self.numbers}. Say a number and nothing else."

    def reply(self, response: str) -> str | End:
        found = _NUMBER.search(response)
        if found is None or len(found.group()) > 9:
            return "Say a number."
        guess = int(found.group())
        if guess == self._number:
            return End(1.0, extracted=str(guess))
        if guess < self._number:
            self._low = max(self._low, guess + 1)
            return "higher"
        self._high = min(self._high, guess - 1)
        return "lower"

    def demonstrate(self, observation: str) -> str:
        """Halves what is left."""
        return str((self._low + self._high) // 2)
