"""Questions in a row, each paid by itself."""

from __future__ import annotations

import pytest
from rlinf_envs.errors import SettingError
from rlinf_envs.games.code_book import CodeBook


def test_every_right_answer_earns_its_share() -> None:
    env = CodeBook(words=8, turns=3)
    book: dict[str, str] = {}
    for seed in range(60):
        question, _ = env.reset(seed=seed)
        terminated = False
        while not terminated:
            for number in range(1, 9):
                trial = CodeBook(words=8, turns=1)
                trial._questions, trial.max_turns = [env._questions[env._turn]], 1
                if trial.reply(str(number)).reward == 1.0:
                    book.setdefault(question, str(number))
                    assert book[question] == str(number), "the same word has the same number"
            question, reward, terminated, _, info = env.step(f" {book[question]}\n")
            assert reward == pytest.approx(1 / 3)
        assert info["success"]
    assert sorted(book.values()) == [str(number) for number in range(1, 9)]
    env.reset(seed=0)
    assert env.step("none")[1:3] == (0.0, False)


@pytest.mark.parametrize(("known", "least", "most"), [(0.0, 20, 85), (0.25, 100, 180), (1.0, 400, 400)])
def test_demonstrations_are_right_as_often_as_configured(known: float, least: int, most: int) -> None:
    env = CodeBook(words=8, turns=1, known=known)
    right = 0
    for seed in range(400):
        question, _ = env.reset(seed=seed)
        right += env.step(env.demonstrate(question))[1] > 0
    assert least <= right <= most


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SettingError, match="between 2 and 12"):
        CodeBook(words=13)
    with pytest.raises(SettingError, match="between 0 and 1"):
        CodeBook(known=1.5)
