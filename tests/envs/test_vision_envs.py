"""Questions about drawn pictures: shapes, closed answers and figures with numbers."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.vision.figures import Figures
from rlinf_envs.vision.questions import ShapeQuestions
from rlinf_envs.vision.shapes import Shapes

SOLVED = {
    "What is the perimeter?": lambda wide, high: 2 * (wide + high),
    "What is the area?": lambda wide, high: wide * high,
    "How long is the top side?": lambda wide, high: wide,
}


def digits_of(picture: np.ndarray, scale: int) -> tuple[int, int]:
    """The digits above and left of the rectangle, read by their dots."""
    from rlinf_envs.vision.figures import _GLYPHS

    black = (picture == 0).all(axis=2)
    found = []
    for part in (black[: 5 * scale], black[5 * scale :]):
        rows, columns = np.nonzero(part)
        dots = part[rows.min() : rows.max() + 1 : scale, columns.min() : columns.max() + 1 : scale]
        glyphs = [np.array([[dot == "#" for dot in row] for row in glyph]) for glyph in _GLYPHS]
        trimmed = [glyph[:, glyph.any(axis=0)] for glyph in glyphs]
        found.append(next(digit for digit, glyph in enumerate(trimmed) if np.array_equal(glyph, dots)))
    return found[0], found[1]


@pytest.mark.parametrize("scale", [1, 2])
def test_answers_to_figures_follow_from_the_digits_that_are_drawn(scale: int) -> None:
    env = Figures(scale=scale)
    for seed in range(40):
        observation, infos = env.reset(seed=seed)
        wide, high = digits_of(observation["picture"], scale)
        assert infos["answer"] == str(SOLVED[observation["question"]](wide, high))
        assert env.step(f" {infos['answer']} ")[1] == 1.0


@pytest.mark.parametrize(
    "kwargs", [{"question": "angle"}, {"largest": 10}, {"largest": 0}, {"pixels": 20, "scale": 2}, {"scale": 0}]
)
def test_settings_of_figures_that_cannot_be_drawn_are_refused(kwargs: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        Figures(**kwargs)


def test_a_choice_is_right_where_the_answer_is_chosen() -> None:
    env = gymnasium.make("rlinf_envs:rlinf/ShapeQuestions-v0", questions=["colour", "size"]).unwrapped
    assert isinstance(env, ShapeQuestions)
    assert env.answers == ("red", "green", "blue", "yellow", "left", "right")
    for seed in range(10):
        observation, infos = env.reset(seed=seed)
        assert env.observation_space.contains(observation)
        choice = np.int64(env.answers.index(infos["answer"]))
        assert env.step(choice)[1:3] == (1.0, True)
        assert env.step((choice + 1) % len(env.answers))[1] == 0.0


def test_blank_and_swapped_pictures_leave_question_and_answer() -> None:
    envs = {shown: ShapeQuestions(shown=shown) for shown in ("right", "blank", "swapped")}
    others = 0
    for seed in range(10):
        seen = {shown: env.reset(seed=seed) for shown, env in envs.items()}
        assert len({(found["instruction"], infos["answer"]) for found, infos in seen.values()}) == 1
        assert len(np.unique(seen["blank"][0]["image"])) == 1
        others += not np.array_equal(seen["right"][0]["image"], seen["swapped"][0]["image"])
    assert others == 10


@pytest.mark.parametrize("kwargs", [{"questions": ["taste"]}, {"questions": []}, {"pixels": 8}, {"shown": "upside"}])
def test_settings_of_questions_that_do_not_exist_are_refused(kwargs: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        ShapeQuestions(**kwargs)


def test_careless_demonstrations_of_shapes_answer_the_question() -> None:
    env = Shapes(question="colour", careless=1.0)
    shown = []
    for seed in range(20):
        observation, infos = env.reset(seed=seed)
        shown.append(env.demonstrate(observation["question"]) == infos["answer"])
    assert 0 < sum(shown) < 20
