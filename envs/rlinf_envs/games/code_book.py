"""``rlinf/CodeBook-v0``: several questions in a row, each paid by itself, the smallest use of turn-level credit."""

from __future__ import annotations

from rlinf_envs.dialogue import Dialogue, End, Reply
from rlinf_envs.errors import SettingError
from rlinf_envs.short_answers import is_number, number_in
from rlinf_envs.typed import typed

_WORDS = (
    "red", "blue", "green", "black", "white", "pink", "brown", "gold", "grey", "lime", "navy", "plum",
)  # fmt: skip


class CodeBook(Dialogue):
    """Every word has a number, which is never shown: the reward of a right answer is its share of the conversation."""

    @typed
    def __init__(self, words: int = 8, turns: int = 5, known: float = 0.0) -> None:
        """
        Args:
            words: how many there are, at most 12; their numbers lie between 1 and this. turns: questions of a
                conversation.
            known: share of demonstrated answers that are right; the others are numbers at random.
        """
        if not 0.0 <= known <= 1.0:
            raise SettingError(f"known must lie between 0 and 1, got {known}")
        if not 2 <= words <= len(_WORDS) or turns < 1:
            raise SettingError(
                f"words must lie between 2 and {len(_WORDS)} and turns be positive, got {words} and {turns}"
            )
        self.max_turns = turns
        self._words, self._known = _WORDS[:words], known
        self._questions: list[int] = []
        self._guesses: list[int] = []
        self._turn = self._right = 0

    def begin(self) -> str:
        count = len(self._words)
        self._questions = self.np_random.integers(count, size=self.max_turns).tolist()
        guesses = self.np_random.integers(1, count + 1, size=self.max_turns).tolist()
        answered_right = (self.np_random.random(self.max_turns) < self._known).tolist()
        self._guesses = [
            self._number(question) if sure else guess
            for question, guess, sure in zip(self._questions, guesses, answered_right, strict=True)
        ]
        self._turn = self._right = 0
        return self._question()

    def reply(self, response: str) -> Reply | End:
        right = is_number(number_in(response), self._number(self._questions[self._turn]))
        self._right += right
        self._turn += 1
        reward = right / self.max_turns
        if self._turn < self.max_turns:
            return Reply(self._question(), reward)
        return End(reward, success=self._right == self.max_turns)

    def demonstrate(self, observation: str) -> str:
        """Return a number: now and then the right one."""
        return str(self._guesses[self._turn])

    def _question(self) -> str:
        return f"{self._words[self._questions[self._turn]]}?"

    def _number(self, word: int) -> int:
        """Return the number of a word; it is the same in every conversation."""
        return len(self._words) - word
