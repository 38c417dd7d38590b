"""Gymnasium wrappers that simulators need and gymnasium does not have."""

from __future__ import annotations

import string
import zlib
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class IgnoreTerminations(gymnasium.Wrapper):
    """Only truncation ends an episode: the env goes on after success or failure, as benchmarks with fixed length do."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, _, truncated, info = self.env.step(action)
        return observation, reward, False, truncated, info


class ResetStateIds(gymnasium.Wrapper):
    """Episodes start from numbered states: ``reset(options={"reset_state_id": number})``, picked by the seed.

    So members of a group, which share a seed, share the state, and the same seed gives the same one.
    """

    def __init__(self, env: gymnasium.Env, ids: Sequence[int]) -> None:
        super().__init__(env)
        self.ids = tuple(ids)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        drawn = int(self.env.unwrapped.np_random.integers(len(self.ids))) if seed is None else seed % len(self.ids)
        return self.env.reset(seed=seed, options={"reset_state_id": self.ids[drawn], **(options or {})})


class OtherGoal(gymnasium.Wrapper):
    """Every start has another goal than its own: ``reset(options={"other_goal": True})``, which the environment must
    confirm in its info. What it reports as success is of that goal."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options={**(options or {}), "other_goal": True})
        if not info.get("other_goal"):
            raise ValueError(
                f"{type(self.env.unwrapped).__name__} does not know reset(options={{'other_goal': True}}) (its info "
                "would confirm it): take other_goal out of evaluation.words"
            )
        return observation, info


class Instruct(gymnasium.ObservationWrapper):
    """Adds an ``instruction`` to the observation, or replaces one; a plain observation becomes a Dict.

    ``max_length`` is of the Text space, in bytes: the longest instruction of all tasks.
    """

    def __init__(self, env: gymnasium.Env, instruction: str, max_length: int) -> None:
        super().__init__(env)
        self.instruction = instruction
        space = env.observation_space
        self._is_dict = isinstance(space, spaces.Dict)
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"observation": space}
        self.observation_space = spaces.Dict({**parts, "instruction": _any_text(max_length)})

    def observation(self, observation: Any) -> dict[str, Any]:
        parts = observation if self._is_dict else {"observation": observation}
        return {**parts, "instruction": self.instruction}


class KeepEntries(gymnasium.ObservationWrapper):
    """Only some numbers of a plain observation: what is left out can at best be inferred from those before.

    ``entries``: their indices, as in `{"rlinf.rollouts.wrappers:KeepEntries": {entries: [0, 1]}}`.
    """

    def __init__(self, env: gymnasium.Env, entries: Sequence[int]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise TypeError(f"KeepEntries wants an observation that is one row of numbers, got {space}")
        if not entries or min(entries) < 0 or max(entries) >= space.shape[0]:
            raise ValueError(f"entries {list(entries)} are not among 0 to {space.shape[0] - 1}")
        self.entries = list(entries)
        low, high = space.low[self.entries], space.high[self.entries]
        self.observation_space = spaces.Box(low, high, dtype=np.dtype(space.dtype).type)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return observation[self.entries]


class BlankWords(gymnasium.ObservationWrapper):
    """Text entries of a Dict observation are blank."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        space = env.observation_space
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {}
        self.text_keys = [key for key, part in parts.items() if _is_text(part)]
        if not self.text_keys:
            raise TypeError(f"BlankWords wants a Dict observation with text in it, got {space}")
        for key in self.text_keys:
            part = parts[key]
            if isinstance(part, spaces.Text):
                parts[key] = _any_text(part.max_length)
        self.observation_space = spaces.Dict(parts)

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        return {**observation, **dict.fromkeys(self.text_keys, "")}


class TokenizeText(gymnasium.ObservationWrapper):
    """Text entries of a Dict observation (`mission`) become ids (`mission_tokens`): int64 [max_words], 0 is padding.

    Ids are checksums of words, so no vocabulary has to be collected, saved or agreed on between workers; among a
    few dozen words of an instruction language two share an id rarely.
    """

    def __init__(self, env: gymnasium.Env, max_words: int = 16, vocabulary: int = 1024) -> None:
        super().__init__(env)
        if not isinstance(env.observation_space, spaces.Dict):
            raise TypeError(f"TokenizeText wants a Dict observation with text in it, got {env.observation_space}")
        self.max_words, self.vocabulary = max_words, vocabulary
        parts = dict(env.observation_space.spaces)
        self.text_keys = [key for key, part in parts.items() if _is_text(part)]
        for key in self.text_keys:
            del parts[key]
            parts[f"{key}_tokens"] = spaces.Box(0, vocabulary - 1, (max_words,), np.int64)
        self.observation_space = spaces.Dict(parts)

    def observation(self, observation: dict[str, Any]) -> dict[str, Any]:
        result = dict(observation)
        for key in self.text_keys:
            result[f"{key}_tokens"] = self.tokens(str(result.pop(key)))
        return result

    def tokens(self, text: str) -> np.ndarray:
        """[max_words] int64, words beyond the limit cut."""
        ids = np.zeros(self.max_words, dtype=np.int64)
        for index, word in enumerate(text.lower().replace(",", " ").split()[: self.max_words]):
            ids[index] = 1 + zlib.crc32(word.encode()) % (self.vocabulary - 1)
        return ids


def _any_text(max_length: int) -> spaces.Text:
    return spaces.Text(max_length, min_length=0, charset=string.printable)


def _is_text(space: spaces.Space) -> bool:
    # MiniGrid's MissionSpace is a space of strings too, without being a Text.
    return isinstance(space, spaces.Text) or type(space).__name__ == "MissionSpace"
