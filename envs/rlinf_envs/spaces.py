"""A Text space for real text."""

from __future__ import annotations

import string
from typing import Any

from gymnasium.spaces import Text, Tuple

MAX_CHARS = 1_000_000
"""Default limit of one observation or action, in characters; far above any context window in use."""


class FreeText(Text):
    """Any string of up to ``max_length`` characters, the empty one included.

    ``Text`` needs a character set and searches it for every character. A model may write any character, so here
    the set serves sampling only, and membership costs one length comparison however long the text is.
    """

    def __init__(self, max_length: int = MAX_CHARS) -> None:
        super().__init__(max_length, min_length=0, charset=string.printable)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Draw a random text of at most 256 characters: random text of the full length would have no use."""
        if mask is None and probability is None:
            mask = (int(self.np_random.integers(0, min(self.max_length, 256) + 1)), None)
        return super().sample(mask=mask, probability=probability)


def batched(space: FreeText, num_envs: int) -> Tuple:
    """``num_envs`` members of one space, as gymnasium batches ``Text``.

    The space object is shared between the members: a copy for each would cost more than the environment itself.
    """
    return Tuple([space] * num_envs)
