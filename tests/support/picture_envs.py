"""Environments of tests that show pictures."""

from __future__ import annotations

import numpy as np
from rlinf_envs.dialogue import Dialogue, End, Reply
from rlinf_envs.tools.calls import written
from rlinf_envs.tools.toolbox import Toolbox

from rlinf.data.pictures import observed


class Closer(Dialogue):
    """The first response calls the tool `zoom` on a half of the picture: the left one if it has an even length."""

    max_turns = 2

    def begin(self) -> str:
        picture = self.np_random.integers(0, 255, (28, 56, 3), dtype=np.uint8)
        self._tools, self._called = Toolbox([{"zoom": {"pixels": 28}}]), False
        words = observed([picture, "Which? "])
        self._tools.begin(0, words)
        return words

    def reply(self, response: str) -> Reply | End:
        if self._called:
            return End(float(sum(letter.isalpha() for letter in response)))
        self._called = True
        left = 0.5 * (len(response) % 2)
        call = written("zoom", {"left": left, "top": 0, "right": left + 0.5, "bottom": 1})
        return Reply(str(self._tools.answer(0, call)))

    def demonstrate(self, observation: str) -> str:
        return "red"
