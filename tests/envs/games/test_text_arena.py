"""Games of textarena: offline ones, each a function of its seed and its moves."""

from __future__ import annotations

import random

import gymnasium
import numpy as np
import pytest
from rlinf_envs.errors import SettingError

pytest.importorskip("textarena")


def make(game: str) -> gymnasium.Env[str, str]:
    return gymnasium.make("rlinf_envs:rlinf/TextArena-v0", game=game, disable_env_checker=True)


@pytest.mark.parametrize("game", ["GuessTheNumber-v0", "Sokoban-v0", "2048-v0"])
def test_neighbours_do_not_change_a_game(game: str) -> None:
    alone, second, other = make(game), make(game), make(game)
    moves = ["[3]", "[up]", "[left]"]
    first, _ = alone.reset(seed=5)
    observations = [first, *(alone.step(move)[0] for move in moves)]
    random.seed(1)
    np.random.seed(1)
    drawn = random.random(), np.random.rand()
    random.seed(1)
    np.random.seed(1)
    again = [second.reset(seed=5)[0]]
    for move in moves:
        other.reset(seed=9)
        again.append(second.step(move)[0])
    assert again == observations
    assert (random.random(), np.random.rand()) == drawn


def test_a_won_game_is_a_success() -> None:
    env = make("GuessTheNumber-v0")
    for seed in range(3):
        env.reset(seed=seed)
        low, high = 1, 20
        for _ in range(6):
            guess = (low + high) // 2
            observation, reward, ended, _, info = env.step(f"[{guess}]")
            if ended:
                break
            low, high = (guess + 1, high) if "higher" in observation else (low, guess - 1)
        assert (reward, info) == (1.0, {"success": True})


def test_games_that_cannot_be_played_are_refused() -> None:
    with pytest.raises(SettingError, match="did you mean 'GuessTheNumber-v0'"):
        make("GuessTheNumbr-v0")
    with pytest.raises(SettingError, match="TicTacToe-v0 is not for one player"):
        make("TicTacToe-v0").reset(seed=0)
