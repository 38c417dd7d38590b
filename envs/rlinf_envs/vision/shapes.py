"""``rlinf/Shapes-v0``: questions about generated pictures of coloured shapes, the smallest task of seeing."""

from __future__ import annotations

from typing import Any

from rlinf_envs.errors import SettingError
from rlinf_envs.typed import typed
from rlinf_envs.vision.drawing import KINDS, drawn
from rlinf_envs.vision.picture_question import PictureQuestion


class Shapes(PictureQuestion):
    """A picture and a question with a short answer; the reward is 1 for the right one."""

    max_turns = 1

    @typed
    def __init__(self, question: str | None = None, pixels: int = 32, careless: float = 0.0) -> None:
        """
        Args:
            question: colour, count, size or position; by default each picture has one of them.
            pixels: width and height of a picture.
            careless: share of demonstrations that give any answer to the question: a policy that imitates them has
                the words, and has to learn by its reward which of them fits the picture.
        """
        if question is not None and question not in KINDS:
            raise SettingError(f"question must be one of {', '.join(KINDS)}, not {question}")
        if pixels < 16:
            raise SettingError(f"pixels must be at least 16, got {pixels}")
        if not 0.0 <= careless <= 1.0:
            raise SettingError(f"careless must lie between 0 and 1, got {careless}")
        super().__init__(pixels)
        self._questions = tuple(KINDS) if question is None else (question,)
        self._careless, self._shown = careless, ""

    def begin(self) -> dict[str, Any]:
        random = self.np_random
        kind = str(random.choice(self._questions))
        question, answers = KINDS[kind]
        self._answer = str(random.choice(answers))
        careless = random.random() < self._careless
        self._shown = str(random.choice(answers)) if careless else self._answer
        return {"picture": drawn(random, kind, self._answer, self._pixels), "question": question}

    def demonstrate(self, observation: str) -> str:
        return self._shown
