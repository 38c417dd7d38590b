"""``rlinf/Shapes-v0``: questions about generated pictures of coloured shapes, the smallest task of seeing."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rlinf_envs.dialogue import Dialogue, End
from rlinf_envs.errors import SettingError
from rlinf_envs.spaces import FreeText
from rlinf_envs.typed import typed

Picture = NDArray[np.uint8]

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 80, 220), "yellow": (230, 210, 40)}
_GROUND = 245
_SIDES = ("left", "right", "top", "bottom")
_KINDS = {
    "colour": ("What colour is the shape?", tuple(COLOURS)),
    "count": ("How many shapes are there?", ("1", "2", "3", "4")),
    "size": ("Which shape is larger, left or right?", ("left", "right")),
    "position": ("Where is the shape: left, right, top or bottom?", _SIDES),
}


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
        if question is not None and question not in _KINDS:
            raise SettingError(f"question must be one of {', '.join(_KINDS)}, not {question}")
        if pixels < 16:
            raise SettingError(f"pixels must be at least 16, got {pixels}")
        if not 0.0 <= careless <= 1.0:
            raise SettingError(f"careless must lie between 0 and 1, got {careless}")
        self._questions = tuple(_KINDS) if question is None else (question,)
        self._pixels, self._careless = pixels, careless
        self._answer = self._shown = ""
        self.observation_space = gymnasium.spaces.Dict(  # type: ignore[assignment]
            {"picture": gymnasium.spaces.Box(0, 255, (pixels, pixels, 3), np.uint8), "question": FreeText()}
        )

    def begin(self) -> dict[str, Any]:
        random = self.np_random
        kind = str(random.choice(self._questions))
        question, answers = _KINDS[kind]
        self._answer = str(random.choice(answers))
        careless = random.random() < self._careless
        self._shown = str(random.choice(answers)) if careless else self._answer
        return {"picture": self._drawn(kind, self._answer), "question": question}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, infos = super().reset(seed=seed, options=options)
        return observation, {**infos, "answer": self._answer}

    def reply(self, response: str) -> End:
        answer = response.strip().lower()
        return End(float(answer == self._answer), extracted=answer)

    def demonstrate(self, observation: str) -> str:
        return self._shown

    def _drawn(self, kind: str, answer: str) -> Picture:
        """Draw a picture [pixels, pixels, 3] in which ``answer`` is right."""
        random, size = self.np_random, self._pixels
        picture = np.full((size, size, 3), _GROUND, np.uint8)
        small, large = size // 5, size // 2 - 2
        colours = random.permutation(list(COLOURS)).tolist()
        if kind == "colour":
            self._place(picture, answer, int(random.integers(small + 2, large)), (0, 0, size, size))
        elif kind == "count":
            half = size // 2
            corners = [(top, left, top + half, left + half) for top in (0, half) for left in (0, half)]
            for number in random.permutation(4)[: int(answer)].tolist():
                self._place(picture, colours[0], int(random.integers(small, small + 3)), corners[number])
        elif kind == "size":
            widths = (large, small) if answer == "left" else (small, large)
            for side, (width, colour) in enumerate(zip(widths, colours, strict=False)):
                self._place(picture, colour, width, (0, side * size // 2, size, (side + 1) * size // 2))
        else:
            third = size // 3
            strips = {
                "left": (third, 0, size - third, third),
                "right": (third, size - third, size - third, size),
                "top": (0, third, third, size - third),
                "bottom": (size - third, third, size, size - third),
            }
            self._place(picture, colours[0], small, strips[answer])
        return picture

    def _place(self, picture: Picture, colour: str, width: int, box: tuple[int, int, int, int]) -> None:
        """Draw a disc or a square of ``width`` somewhere in a box (top, left, bottom, right)."""
        top, left = (
            int(self.np_random.integers(first, max(first, last - width) + 1))
            for first, last in ((box[0], box[2]), (box[1], box[3]))
        )
        inside = np.ones((width, width), bool)
        if self.np_random.random() < 0.5:
            from_middle = np.arange(width) - (width - 1) / 2
            inside = from_middle[:, None] ** 2 + from_middle**2 <= (width / 2) ** 2
        picture[top : top + width, left : left + width][inside] = COLOURS[colour]
