"""Any ``gymnasium.Env`` with text as a text environment: a copy for each conversation, so that each has its own state.

A task is a seed: ``reset(seed=...)`` has to draw the start of an episode from ``self.np_random`` and nothing else.
An environment that has ``num_tasks`` numbers its starts itself and gets ``reset(options={"task_id": n})`` too.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

from rlinf.base.errors import UserError
from rlinf.base.reward_value import reward_value
from rlinf.data.pictures import PictureError, observed
from rlinf.rollouts.deadline import DeadlineExceededError
from rlinf.rollouts.env_errors import account_of
from rlinf.rollouts.text.demonstrated import Demonstration, Observation

EVALUATION_SEEDS = 1 << 30
"""First seed of evaluation: training counts up from 0."""
_PROMPTS = 4096
_MOST_RESPONSES = 1000
"""Of a demonstration: an expert that never ends is a mistake."""
_OF_TERMS = ("reward/", "reward_weight/")
"""The infos of reward terms begin with these."""


class TextEnvFaultError(UserError):
    """The code of a text environment raised, or did not keep gymnasium's contract; the message names the location."""


class SingleTextEnvs:
    """Fits what a text environment has (docs/environments.md), over independent copies of one ``gymnasium.Env``."""

    def __init__(
        self,
        name: str,
        make: Callable[[], gymnasium.Env],
        *,
        num_envs: int = 1,
        num_tasks: int = 1,
        first_seed: int = 0,
        max_turns: int = 1,
        success_key: str = "success",
    ) -> None:
        """
        Args:
            name: of the environment, for messages.
            make: a further copy.
            num_tasks: how many seeds there are, for an environment that does not have ``num_tasks`` itself.
            first_seed: seed of task 0.
            max_turns: responses of a conversation, after which it is truncated.
            success_key: the key under which an ``info`` states that the task is solved.
        """
        self._name, self._make, self._first_seed, self._success_key = name, make, first_seed, success_key
        self._spare = make()
        """Starts and demonstrations of tasks, so that running conversations are not disturbed."""
        bare = self._spare.unwrapped
        self._numbers_tasks = hasattr(bare, "num_tasks")
        self.num_tasks = int(getattr(bare, "num_tasks", num_tasks))
        self.max_turns = max_turns
        self.system_prompt: str | None = getattr(bare, "system_prompt", None)
        self.instructions: Mapping[str, str] = getattr(bare, "instructions", {})
        self.response_marks: Sequence[str] = getattr(bare, "response_marks", ())
        self.tool_schemas: Sequence[Mapping[str, Any]] = getattr(bare, "tool_schemas", ())
        self.domain = str(getattr(bare, "domain", name.rpartition(":")[2]))
        self._envs: list[gymnasium.Env] = []
        self.prompt = functools.lru_cache(maxsize=_PROMPTS)(self._prompt)
        self.resize(num_envs)

    def resize(self, num_envs: int) -> None:
        """Make room for ``num_envs`` conversations; the next call must be :meth:`reset`."""
        self.num_envs = num_envs
        self._task_ids = np.zeros(num_envs, dtype=np.int64)
        self._turns = np.zeros(num_envs, dtype=np.int64)
        self._returns = np.zeros(num_envs)

    def reset(self, *, options: Mapping[str, Any]) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Start the conversations of ``options["task_ids"]`` [num_envs]."""
        self._task_ids[:] = options["task_ids"]
        while len(self._envs) < self.num_envs:
            self._envs.append(self._make())
        started = [self._start(self._envs[row], int(task)) for row, task in enumerate(self._task_ids)]
        for (observation, _), task in zip(started, self._task_ids.tolist(), strict=True):
            if observation != self.prompt(task):
                raise self._fault(
                    f"reset(seed={self._first_seed + task}) gave two different first observations: draw everything "
                    "from self.np_random, which super().reset(seed=seed) seeds"
                )
        self._turns[:], self._returns[:] = 0, 0.0
        infos = {
            "task_id": self._task_ids.copy(),
            "domain": [str(info.get("domain", self.domain)) for _, info in started],
            "answer": [str(info.get("answer", "")) for _, info in started],
        }
        return tuple(observation for observation, _ in started), infos

    def step_row(
        self, row: int, response: str, *, cut: bool = False
    ) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
        """Make the step of one conversation, for a thread of its own: they share nothing. ``cut`` has no effect here.

        Its facts are the verdict, the role, and the reward terms that the environment names.
        """
        observation, reward, terminated, truncated, info = self._answer(self._envs[row], response)
        quarantined = not math.isfinite(reward)
        reward = 0.0 if quarantined else reward
        self._returns[row] += reward
        self._turns[row] += 1
        truncated = not terminated and (truncated or bool(self._turns[row] >= self.max_turns))
        ended = terminated or truncated
        solved = ended and bool(info.get(self._success_key, self._returns[row] > 0))
        facts = {
            "verdict": "" if not ended else "correct" if solved else "wrong",
            "correct": solved,
            "masked": bool(info.get("masked", False)),
            "role": str(info.get("role", "user")),
            "extracted": info.get("extracted"),
            "task_id": int(self._task_ids[row]),
            "turn": int(self._turns[row]),
            **{name: float(value) for name, value in info.items() if name.startswith(_OF_TERMS)},
            "quarantined": quarantined,
        }
        return observation, reward, terminated, truncated, facts

    def demonstrations(self, task_ids: Sequence[int]) -> list[Demonstration]:
        """Conversations of the environment's own expert, ``demonstrate(observation) -> response``.

        Raises:
            ValueError: it has none.
        """
        return [self._demonstrated(int(task)) for task in task_ids]

    def close(self) -> None:
        for env in (self._spare, *self._envs):
            env.close()

    def _prompt(self, task_id: int) -> str:
        return self._start(self._spare, task_id)[0]

    def _demonstrated(self, task_id: int) -> Demonstration:
        expert = getattr(self._spare.unwrapped, "demonstrate", None)
        if expert is None:
            raise ValueError("it has no method demonstrate(observation) that gives a correct response")
        prompt = observation = self._start(self._spare, task_id)[0]
        responses: list[str] = []
        observations: list[Observation] = []
        role, ended = "user", False
        while not ended and len(responses) < min(self.max_turns, _MOST_RESPONSES):
            if responses:
                observations.append(Observation(observation, role))
            responses.append(str(self._calling("demonstrate", functools.partial(expert, observation))))
            observation, _, terminated, truncated, info = self._answer(self._spare, responses[-1])
            role = str(info.get("role", "user"))
            ended = terminated or truncated
        return Demonstration(prompt, tuple(responses), tuple(observations))

    def _start(self, env: gymnasium.Env, task_id: int) -> tuple[str, Mapping[str, Any]]:
        options = {"task_id": task_id} if self._numbers_tasks else None
        seed = self._first_seed + task_id
        started = self._calling("reset", lambda: env.reset(seed=seed, options=options))
        if not isinstance(started, tuple) or len(started) != 2:
            raise self._fault(f"reset returned {started!r:.80}; it must return (observation, info)")
        return self._text(started[0], "reset"), started[1]

    def _answer(self, env: gymnasium.Env, action: str) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
        stepped = self._calling("step", lambda: env.step(action))
        if not isinstance(stepped, tuple) or len(stepped) != 5:
            raise self._fault(
                f"step returned {stepped!r:.80}; it must return (observation, reward, terminated, truncated, info)"
            )
        observation, reward, terminated, truncated, info = stepped
        try:
            return self._text(observation, "step"), reward_value(reward), bool(terminated), bool(truncated), info
        except (TypeError, ValueError) as error:
            raise self._fault(f"step returned {reward!r:.80} as reward, which is no number") from error

    def _text(self, observation: Any, method: str) -> str:
        try:
            return observed(observation)
        except PictureError as error:
            words = f"{method} returned {observation!r:.80} as observation, which is no text with pictures: {error}"
            raise self._fault(words) from error

    def _calling(self, method: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (DeadlineExceededError, UserError):
            raise
        except (Exception, SystemExit) as error:  # the environment is a user's program, and raises what it likes
            raise self._fault(f"{method} raised {account_of(error)}") from error

    def _fault(self, words: str) -> TextEnvFaultError:
        return TextEnvFaultError(f"env.id {self._name}: {words}")
