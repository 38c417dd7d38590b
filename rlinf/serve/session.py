"""One client's conversation with a policy: observations by name in, chunks of actions out."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from rlinf.api.policy import Policy
from rlinf.base.errors import UserError
from rlinf.config.names import nearest
from rlinf.data.spaces import ROOT, empty_leaves, observation_leaves, write_observation
from rlinf.datasets.robot_data.statistics import STATISTICS_FILE

_RESET, _PROMPT, _PREVIOUS, _DELAY = "reset", "prompt", "previous", "delay"


class RequestError(ValueError):
    """An observation that the policy does not read; the message states what it would."""


class Session:
    """Answers one client. Recurrent policies remember its observations, until ``reset`` is true in one of them."""

    def __init__(self, policy: Policy, turn: threading.Lock) -> None:
        """``turn`` is shared by all sessions of a model, which answers one question at a time."""
        # The weights are shared; what a recurrent policy remembers is this client's own.
        self._policy = Policy(policy.folder, policy.model)
        self._turn = turn
        self.observation_space, self.action_space = self._policy.spaces
        self._leaves = observation_leaves(self.observation_space)

    @property
    def metadata(self) -> dict[str, Any]:
        """Return a client's first message: names, shapes and dtypes of observations and actions, and statistics.

        The statistics are those of the dataset that was imitated, if there was one."""
        statistics = self._policy.folder / STATISTICS_FILE
        return {
            "server": "rlinf",
            "num_action_chunks": int(getattr(self._policy.model.options, "num_action_chunks", 1)),
            "observation": {name: _described(space) for name, space in self._leaves.items()},
            "action": _described(self.action_space),
            "dataset_statistics": json.loads(statistics.read_text(encoding="utf-8")) if statistics.exists() else {},
        }

    def answer(self, request: Any) -> dict[str, Any]:
        """``actions`` [K, *shape] for an observation, and how long they took (``server_timing``, milliseconds).

        An observation is a mapping; its keys are the names of the metadata, with or without ``observation.`` before
        them and with ``/`` or ``.`` between their parts. The instruction may be called ``prompt``. With ``previous``
        [L, *shape], what is left of the chunk before, and ``delay``, how many of these are carried out meanwhile, a
        flow policy continues it.
        """
        began = time.perf_counter()
        observation = self._observation(request)
        with self._turn:
            if bool(request.get(_RESET, False)):
                self._policy.reset()
            if _PREVIOUS in request:
                actions = self._continued(observation, request[_PREVIOUS], request.get(_DELAY, 0))
            else:
                actions = np.asarray(self._policy.act(observation))
        if actions.ndim == len(self.action_space.shape or ()):
            actions = actions[None]
        return {"actions": actions, "server_timing": {"infer_ms": (time.perf_counter() - began) * 1e3}}

    def _continued(self, observation: Any, rest: Any, delay: Any) -> np.ndarray:
        shape = tuple(self.action_space.shape or ())
        array = _array(rest)
        if array is None or array.shape[1:] != shape or array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise RequestError(f"{_PREVIOUS} is finite actions [any number, {', '.join(map(str, shape))}]")
        try:
            carried_out = int(delay)
        except (TypeError, ValueError, OverflowError) as error:
            raise RequestError(f"{_DELAY} is a whole number, not {delay!r:.80}") from error
        try:
            return np.asarray(self._policy.continue_chunk(observation, array, delay=carried_out))
        except UserError as error:
            raise RequestError(str(error)) from error

    def random_request(self) -> dict[str, Any]:
        """Build a request with some member of the observation space, for measurements."""
        self.observation_space.seed(0)
        leaves = empty_leaves(self.observation_space, (1,))
        write_observation(leaves, 0, self.observation_space.sample())
        texts = {name: "do it" for name, space in self._leaves.items() if isinstance(space, spaces.Text)}
        return {name: leaf[0] for name, leaf in leaves.items()} | texts

    def _observation(self, request: Any) -> Any:
        """As the environment would have given it."""
        if not isinstance(request, Mapping):
            raise RequestError(f"an observation is a mapping of {', '.join(self._leaves)}")
        leaves: dict[str, Any] = {}
        for key, value in request.items():
            name = self._leaf_of(str(key))
            if name is not None:
                leaves[name] = self._value(name, value)
        missing = sorted(self._leaves.keys() - leaves.keys())
        if missing:
            raise RequestError(f"the observation lacks {', '.join(missing)}; it has {', '.join(map(str, request))}")
        return _nested(self.observation_space, ROOT, leaves)

    def _leaf_of(self, key: str) -> str | None:
        """Find the leaf that a key of a request names; None for those that are none."""
        dotted = key.replace("/", ".")
        for name in (dotted, f"{ROOT}.{dotted}"):
            if name in self._leaves:
                return name
        texts = [name for name, space in self._leaves.items() if isinstance(space, spaces.Text)]
        if key == _PROMPT:
            return texts[0] if texts else None
        if key in (_RESET, _PREVIOUS, _DELAY):
            return None
        short = [name.removeprefix(f"{ROOT}.") for name in self._leaves]
        close = nearest(dotted, [*short, *self._leaves, _PROMPT, _RESET, _PREVIOUS, _DELAY])
        meant = f" Did you mean {close[0]}?" if close else ""
        raise RequestError(f"the policy reads no {key!r}, only {', '.join(self._leaves)}.{meant}")

    def _value(self, name: str, value: Any) -> Any:
        space = self._leaves[name]
        if isinstance(space, spaces.Text):
            if not isinstance(value, str):
                raise RequestError(f"{name} is text, not {type(value).__name__}")
            return value
        array = _array(value)
        if array is None:
            raise RequestError(f"{name} is no array of numbers: its rows differ in length")
        if array.shape != tuple(space.shape or ()):
            raise RequestError(f"{name} has shape {list(array.shape)}, and the policy reads {list(space.shape or ())}")
        dtype = np.dtype(space.dtype)
        if not np.can_cast(array.dtype, dtype, casting="same_kind"):
            raise RequestError(f"{name} is {array.dtype}, and the policy reads {dtype}")
        return array.astype(dtype, copy=False)


def load_session_policy(path: str) -> Policy:
    """Load the policy of a run or of an exported folder. A language model is a UserError."""
    policy = Policy.load(path)
    if policy.is_language_model:
        raise UserError(f"{path} is a language model: rlinf serve is for policies of simulators; vLLM serves models")
    return policy


def _array(value: Any) -> np.ndarray | None:
    """Return the array of a request's value; None for lists of lists that are none."""
    try:
        return np.asarray(value)
    except ValueError:
        return None


def _described(space: spaces.Space) -> dict[str, Any]:
    if isinstance(space, spaces.Text):
        return {"dtype": "text", "max_length": int(space.max_length)}
    described: dict[str, Any] = {"dtype": str(space.dtype), "shape": list(space.shape or ())}
    if isinstance(space, spaces.Box) and space.dtype != np.uint8:
        described |= {"low": space.low, "high": space.high}
    return described


def _nested(space: spaces.Space, name: str, given: Mapping[str, Any]) -> Any:
    """Leaves as an observation of ``space``."""
    if isinstance(space, spaces.Dict):
        return {key: _nested(part, f"{name}.{key}", given) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_nested(part, f"{name}.{index}", given) for index, part in enumerate(space.spaces))
    return given[name]
