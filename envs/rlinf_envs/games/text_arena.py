"""``rlinf/TextArena-v0``: games for one player of the package ``textarena`` (extra: agents)."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import gymnasium
import numpy as np

from rlinf_envs.errors import SettingError
from rlinf_envs.spaces import FreeText
from rlinf_envs.suggest import unknown
from rlinf_envs.typed import typed

_GENERATORS = threading.Lock()
"""Conversations may be answered side by side, and there is one pair of global generators."""


class TextArenaGame(gymnasium.Env[str, str]):
    """A game of TextArena: its words are the observation; the reward is the game's, at its end.

    The games draw from the global generators of Python and numpy. Here each conversation has states of them of its own,
    so that a game depends on its seed and its moves alone, whatever else happens in the process.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}  # type: ignore[misc]  # gymnasium's, of each instance
    observation_space = FreeText()
    action_space = FreeText()

    @typed
    def __init__(self, game: str, settings: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            game: an id of textarena, such as ``GuessTheNumber-v0``, ``FrozenLake-v0`` or ``TowerOfHanoi-v0``.
            settings: arguments of the game's constructor.

        Raises:
            SettingError: textarena does not have the game, or it does not take the settings.
        """
        import textarena
        from textarena.envs.registration import ENV_REGISTRY

        known = [name.removesuffix("-raw") for name in ENV_REGISTRY if name.endswith("-raw")]
        if game not in known:
            raise SettingError(unknown("game", game, known))
        self._own_words = textarena.ObservationType.PLAYER_ACTION
        try:
            self._game = textarena.make(f"{game}-raw", **(settings or {}))
        except TypeError as error:
            raise SettingError(f"settings: {game} can't be made with them: {error}") from error
        self.domain = game
        self._randomness = _randomness()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        start = int(self.np_random.integers(2**32))
        self._randomness = random.Random(start).getstate(), np.random.RandomState(start).get_state()
        with self._own_randomness():
            try:
                self._game.reset(num_players=1, seed=start)
            except AssertionError as error:
                raise SettingError(f"game {self.domain} is not for one player: {error}") from error
        return self._new_messages(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        with self._own_randomness():
            done, _ = self._game.step(action=action)
        observation = self._new_messages()
        if not done:
            return observation, 0.0, False, False, {}
        rewards, _ = self._game.close()
        reward = float(next(iter(rewards.values()))) if rewards else 0.0
        # A game that is lost pays for how near the end was; the whole reward is for what is won.
        return observation, reward, True, False, {"success": reward >= 1.0}

    @contextlib.contextmanager
    def _own_randomness(self) -> Iterator[None]:
        with _GENERATORS:
            others = _randomness()
            _set_randomness(self._randomness)
            try:
                yield
            finally:
                self._randomness = _randomness()
                _set_randomness(others)

    def _new_messages(self) -> str:
        """Return the game's words since the last call, without the player's own."""
        _, messages = self._game.get_observation()
        return "\n".join(text for _, text, kind in messages if kind is not self._own_words).strip()


def _randomness() -> tuple[Any, Any]:
    """States of the global generators."""
    return random.getstate(), np.random.get_state()


def _set_randomness(states: tuple[Any, Any]) -> None:
    of_python, of_numpy = states
    random.setstate(of_python)
    np.random.set_state(of_numpy)
