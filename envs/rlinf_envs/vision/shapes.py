"""``rlinf/Shapes-v0``: questions about generated pictures of coloured shapes, the smallest task of seeing."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from rlinf_envs.dialogue import Dialogue, End
from rlinf_envs.errors import SettingError
from rlinf_envs.spaces import FreeText
from rlinf_envs.typed import typed
from rlinf_envs.vision.drawing import KINDS, drawn


class Shapes(Dialogue):
    """A picture and a question with a short answer; the reward is 1 for the right one."""

    max_turns = 1

    @typed
    def __init__(self, question: str | None = None, pixels: int = 32, careless: float = 0.0) -> None:
        """
        Args:
            question: colour, count, size or position; by default each picture has one of them.
            pixels: width and height of a picture.
            careless: share of demonstrations that give any answer to the question: a policy that imitates them knows
                the words, and has to learn by its reward which of them the picture asks for.
        """
        if question is not None and question not in KINDS:
            raise SettingError(f"question must be one of {', '.join(KINDS)}, not {question}")
        if pixels < 16:
            raise SettingError(f"pixels must be at least 16, got {pixels}")
        if not 0.0 <= careless <= 1.0:
            raise SettingError(f"careless must lie between 0 and 1, got {careless}")
        self._questions = tuple(KINDS) if question is None else (question,)
        self._pixels, self._careless = pixels, careless
        self._answer = self._shown = ""
        self.observation_space = gymnasium.spaces.Dict(  # type: ignore[assignment]
            {"picture": gymnasium.spaces.Box(0, 255, (pixels, pixels, 3), np.uint8), "question": FreeText()}
        )

    def begin(self) -> dict[str, Any]:
        random = self.np_random
        kind = str(random.choice(self._questions))
        question, answers = KINDS[kind]
        self._answer = str(random.choice(answers))
        careless = random.random() < self._careless
        self._shown = str(random.choice(answers)) if careless else self._answer
        return {"picture": drawn(random, kind, self._answer, self._pixels), "question": question}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, infos = super().reset(seed=seed, options=options)
        return observation, {**infos, "answer": self._answer}

    def reply(self, response: str) -> End:
        answer = response.strip().lower()
        return End(float(answer == self._answer), extracted=answer)

    def demonstrate(self, observation: str) -> str:
        return self._shown
