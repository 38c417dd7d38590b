"""``rlinf/PriceList-v0``: a question that only a tool can answer, the smallest use of one."""

from __future__ import annotations

from rlinf_envs.dialogue import Dialogue, End
from rlinf_envs.errors import SettingError
from rlinf_envs.short_answers import is_number, number_in
from rlinf_envs.tools.calls import written
from rlinf_envs.typed import typed

_THINGS = (
    "apple", "bread", "cheese", "flour", "grapes", "honey", "juice", "lemon", "milk", "nuts", "onion", "pear", "rice",
    "salt", "sugar", "tea",
)  # fmt: skip


class PriceList(Dialogue):
    """A question about a price. The tool ``price`` reads it; the reward is 1 for the number that it gives."""

    max_turns = 3

    @typed
    def __init__(self, things: int = 8, prices: int = 90, unsure: float = 0.0) -> None:
        """
        Args:
            things: how many there are with a price, at most 16. prices: lie between 10 and 9 + this.
            unsure: share of demonstrations that give no price instead of calling the tool. A policy that
                imitates them does both, and its reward has to show which of them pays.
        """
        if not 0.0 <= unsure < 1.0:
            raise SettingError(f"unsure must be at least 0 and less than 1, got {unsure}")
        if not 1 <= things <= len(_THINGS) or prices < 1:
            raise SettingError(
                f"things must lie between 1 and {len(_THINGS)} and prices be positive, got {things} and {prices}"
            )
        self.tools = [self.price]
        self._things, self._most = _THINGS[:things], prices
        self._prices: dict[str, int] = {}
        self._thing = ""
        self._unsure, self._calls_tool = unsure, True

    def price(self, thing: str) -> str:
        """Says what a thing costs today.

        Args:
            thing: its name
        """
        return str(self._prices.get(thing.strip().lower(), "unknown"))

    def begin(self) -> str:
        drawn = self.np_random.integers(10, 10 + self._most, size=len(self._things)).tolist()
        self._prices = dict(zip(self._things, drawn, strict=True))
        self._thing = str(self.np_random.choice(self._things))
        self._calls_tool = bool(self.np_random.random() >= self._unsure)
        return f"What does {self._thing} cost today? Say the number alone."

    def reply(self, response: str) -> End:
        answer = number_in(response)
        return End(float(is_number(answer, self._prices[self._thing])), extracted=answer)

    def demonstrate(self, observation: str) -> str:
        """Call the tool, then repeat its result; or answer that the price is unknown."""
        if not self._calls_tool:
            return "I do not know."
        first_turn = observation.startswith("What does")
        return written("price", {"thing": self._thing}) if first_turn else observation
