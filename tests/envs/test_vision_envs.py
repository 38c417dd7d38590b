"""Questions about drawn pictures: shapes, closed answers, figures with numbers, and details to enlarge."""

from __future__ import annotations

import collections
from typing import Any

import gymnasium
import numpy as np
import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.tools.calls import written
from rlinf_envs.vision.details import Details
from rlinf_envs.vision.figures import Figures
from rlinf_envs.vision.questions import ShapeQuestions
from rlinf_envs.vision.shapes import Shapes

from rlinf.data.pictures import opened, pictures_of

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


CORNERS = ("top left", "top right", "bottom left", "bottom right")
PATTERN_OF = {(1, 1, 0, 0): "rows", (1, 0, 1, 0): "columns", (1, 0, 0, 1): "checks", (1, 1, 1, 1): "plain"}
"""Which of 2 x 2 pixels are lighter than the ground."""


def enlarged(env: Details, corner: str) -> np.ndarray:
    """The picture that the tool answers with, uint8 [H, W, 3]."""
    answered, reward, terminated, _, infos = env.step(written("zoom", {"corner": corner}))
    assert (reward, terminated, infos["role"]) == (0.0, False, "tool")
    (uri,) = pictures_of(answered)
    return np.asarray(opened(uri))


def test_overviews_of_details_show_the_box_and_not_its_pattern() -> None:
    env = gymnasium.make("rlinf_envs:rlinf/Details-v0", pixels=4, box=2).unwrapped
    answers = collections.defaultdict(set)
    for seed in range(1200):
        observation, infos = env.reset(seed=seed)
        assert env.observation_space.contains(observation)
        answers[observation["picture"].tobytes()].add(infos["answer"])
    assert len(answers) == 4 * 3 * 3  # corners, and positions in them: two of 1 pixel and one of 2, in both directions
    assert set(map(len, answers.values())) == {4}


def test_the_enlarged_corner_alone_shows_the_pattern() -> None:
    env = Details()
    for seed in range(20):
        observation, infos = env.reset(seed=seed)
        light = observation["picture"][..., 0] > 128
        (corner,) = {(int(row) // 16, int(column) // 16) for row, column in np.argwhere(light)}
        shown = {corner: enlarged(env, corner) for corner in CORNERS}
        full = shown.pop(CORNERS[2 * corner[0] + corner[1]])
        assert {int(picture.max()) for picture in shown.values()} == {int(full.min())} == {128}
        top, left = (2 * (int(side) % 16) for side in np.argwhere(light)[0])
        tile = full[top : top + 2, left : left + 2, 0] > 128
        assert PATTERN_OF[tuple(tile.ravel().astype(int).tolist())] == infos["answer"]
        blank = Details(shown="blank")
        blank.reset(seed=seed)
        assert {int(enlarged(blank, corner).max()) for corner in CORNERS} == {128}
        assert env.step(f" {infos['answer']}\n")[1:3] == (1.0, True)


def test_demonstrations_of_details_zoom_and_are_right_or_guess() -> None:
    outcomes = []
    for seed in range(200):
        env = Details(unsure=0.5)
        observation, _ = env.reset(seed=seed)
        total, ended, responses = 0.0, False, 0
        while not ended:
            observation, reward, ended, _, _ = env.step(env.demonstrate(str(observation)))
            total, responses = total + reward, responses + 1
        outcomes.append((total, responses))
    assert set(outcomes) == {(1.0, 2), (1.0, 1), (0.0, 1)}
    assert 70 <= outcomes.count((1.0, 2)) <= 130
    assert 10 <= outcomes.count((1.0, 1)) <= 42


@pytest.mark.parametrize(
    "kwargs", [{"pixels": 15}, {"pixels": 2}, {"box": 0}, {"box": 17}, {"unsure": 1.5}, {"shown": "all"}]
)
def test_settings_of_details_that_cannot_be_drawn_are_refused(kwargs: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        Details(**kwargs)


def test_a_call_for_a_corner_that_is_not_there_is_answered_in_words() -> None:
    env = Details()
    env.reset(seed=0)
    answered, _, terminated, _, _ = env.step(written("zoom", {"corner": "middle"}))
    assert answered.startswith("error: zoom")
    assert not terminated
