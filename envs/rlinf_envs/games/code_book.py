"""``rlinf/CodeBook-v0``: several questions in a row, each paid by itself, the smallest use of turn-level credit."""

from __future__ import annotations

from rlinf_envs.dialogue import Dialogue, End, Say
from rlinf_envs.errors import SettingError

_WORDS = (
    "red", "blue", "green", "black", "white", "pink", "brown", "gold", "grey", "lime", "navy", "plum",
)  # fmt: skip


class CodeBook(Dialogue):
    """Every word has a number, which nobody says: the reward of each right answer is its share of the conversation."""

    def __init__(self, words: int = 8, turns: int = 5) -> None:
        """
        Args:
            words: how many there are, at most 12; their numbers lie between 1 and this. turns: questions of a
                conversation.
        """
        if not 2 <= words <= len(_WORDS) or turns < 1:
            raise SettingError(
                f"words must lie between 2 and {len(_WORDS)} and turns be positive, got {words} and {turns}"
            )
        self.max_turns = turns
        self._words = _WORDS[:words]
        self._asked: list[int] = []
        self._guesses: list[int] = []
        self._place = self._right = 0

    def begin(self) -> str:
        count = len(self._words)
        self._asked = self.np_random.integers(count, size=self.max_turns).tolist()
        self._guesses = self.np_random.integers(1, count + 1, size=self.max_turns).tolist()
        self._place = self._right = 0
        return self._question()

    def reply(self, response: str) -> Say | End:
        right = response.strip() == str(self._number(self._asked[self._place]))
        self._right += right
        self._place += 1
        reward = right / self.max_turns
        if self._place < self.max_turns:
            return Say(self._question(), reward)
        return End(reward, success=self._right == self.max_turns)

    def demonstrate(self, observation: str) -> str:
        """A number at random: what an answer looks like, and nothing of which one is right."""
        return str(self._guesses[self._place])

    def _question(self) -> str:
        return f"{self._words[self._asked[self._place]]}?"

    def _number(self, word: int) -> int:
        """The numbers are the same in every conversation."""
        return len(self._words) - word
