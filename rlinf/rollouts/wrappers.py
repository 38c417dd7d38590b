"""Gymnasium wrappers that simulators need and gymnasium does not have."""

from __future__ import annotations

import string
import zlib
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rlinf.data.spaces import ACTION_MASK

_MASK = ACTION_MASK.rpartition(".")[2]


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
                f"{type(self.env.unwrapped).__name__} does not support reset(options={{'other_goal': True}}) (its info "
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


class ActionMask(gymnasium.Wrapper):
    """Adds the entry ``action_mask`` to the observation: 1 for each action that is legal now, else 0.

    ``source`` names an entry of a Dict observation, an entry of ``info``, or a method of the environment without
    arguments: numbers or flags [n] for a Discrete space, for MultiDiscrete those of its parts end to end, or a list of
    them. An episode's last observation may have no legal action; otherwise that is a ValueError.
    """

    def __init__(self, env: gymnasium.Env, source: str) -> None:
        super().__init__(env)
        self.source, actions = source, env.action_space
        if isinstance(actions, spaces.Discrete):
            self._count = int(actions.n)
        elif isinstance(actions, spaces.MultiDiscrete):
            self._count = int(actions.nvec.sum())
        else:
            raise TypeError(f"env.action_mask needs discrete actions (Discrete or MultiDiscrete), not {actions}")
        space = env.observation_space
        self._is_dict = isinstance(space, spaces.Dict)
        parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"observation": space}
        self._is_part = self._is_dict and parts.pop(source, None) is not None
        self.observation_space = spaces.Dict({**parts, _MASK: spaces.MultiBinary(self._count)})
        self._legal = np.ones(self._count, dtype=np.int8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(seed=seed, options=options)
        return self._masked(observation, info, over=False), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        over = bool(terminated or truncated)
        return self._masked(observation, info, over=over), reward, terminated, truncated, info

    def random_legal_action(self) -> Any:
        """Draw one of the legal actions from the action space's own generator."""
        space, mask = self.action_space, self._legal
        if isinstance(space, spaces.MultiDiscrete):
            return space.sample(mask=tuple(np.split(mask, np.cumsum(space.nvec)[:-1])))
        return space.sample(mask=mask)

    def _masked(self, observation: Any, info: dict[str, Any], *, over: bool) -> dict[str, Any]:
        parts = dict(observation) if self._is_dict else {"observation": observation}
        mask = parts.pop(self.source) if self._is_part else self._given(info)
        rows = mask if isinstance(mask, list | tuple) else [mask]
        legal = np.concatenate([np.atleast_1d(row) for row in rows]).astype(bool).astype(np.int8)
        if legal.shape != (self._count,):
            raise ValueError(
                f"env.action_mask: {self.source} has {legal.size} flags, and there are {self._count} actions"
            )
        if over and not legal.any():
            legal = np.ones_like(legal)
        if not legal.any():
            raise ValueError(f"env.action_mask: {self.source} allows no action, and the episode goes on")
        self._legal = legal
        return {**parts, _MASK: legal}

    def _given(self, info: dict[str, Any]) -> Any:
        if self.source in info:
            return info[self.source]
        if self.env.has_wrapper_attr(self.source):
            return self.env.get_wrapper_attr(self.source)()
        raise ValueError(
            f"env.action_mask: {self.source} is no entry of the observation, no method of the environment, and no "
            f"entry of its info, which has {', '.join(sorted(map(str, info))) or 'none'}"
        )


def random_action(env: gymnasium.Env) -> Any:
    """Draw an action from the environment's action space: a legal one if it masks its actions."""
    if env.has_wrapper_attr("random_legal_action"):
        return env.get_wrapper_attr("random_legal_action")()
    return env.action_space.sample()


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
