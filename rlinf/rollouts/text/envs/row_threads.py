"""Answers of an environment that takes conversations one by one: each in a thread of its own, with a time limit."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.base.reward_value import reward_value
from rlinf.rollouts.env_errors import account_of
from rlinf.rollouts.text.conversation import Feedback, Response

_MOST = 64
"""Threads at a time; a tool waits far more than it computes."""


StepRow = Callable[..., tuple[str, float, bool, bool, Mapping[str, Any]]]
"""`step_row(row, response, cut=False)` of an environment: the step of one conversation, as (observation, reward,
terminated, truncated, the row's infos). May be called for several conversations at once."""


@dataclass(frozen=True)
class _Call:
    """A response that the environment is reading."""

    response: Response
    began: float


class RowThreads:
    """Passes responses to :data:`StepRow` and collects its results. A call that hangs is left behind."""

    def __init__(self, step_row: StepRow, *, timeout_s: float, first: int = 0) -> None:
        """``timeout_s``: a longer call loses its conversation; 0 sets no limit. ``first``: the number of row 0."""
        self._step_row, self._timeout_s, self._first = step_row, timeout_s, first
        self._waiting: deque[Response] = deque()
        self._running: dict[int, _Call] = {}
        self._answers: queue.SimpleQueue[tuple[_Call, Feedback]] = queue.SimpleQueue()
        self.hung = 0
        """Calls that were left behind: their threads may still be in the environment."""

    @property
    def open(self) -> int:
        """The number of responses that have no answer yet."""
        return len(self._waiting) + len(self._running)

    def give(self, responses: Sequence[Response]) -> None:
        """Responses to read, as text, at most one of a conversation at a time."""
        self._waiting += responses
        self._start()

    def take(self, wait_s: float) -> list[Feedback]:
        """Answers since the last call, and calls that took too long; waits for at most ``wait_s`` seconds."""
        until = time.monotonic() + wait_s
        taken: list[Feedback] = []
        while self.open and not taken:
            taken += self._late()
            left = until - time.monotonic()
            try:
                answers = [self._answers.get(timeout=max(0.0, min(left, self._next_late_s())))]
            except queue.Empty:
                if left <= 0:
                    break
                continue
            while not self._answers.empty():
                answers.append(self._answers.get())
            for call, graded in answers:
                # What was given up already, and answers after all, comes too late.
                if self._running.get(call.response.row_index) is call:
                    del self._running[call.response.row_index]
                    taken.append(graded)
            self._start()
        return taken

    def _start(self) -> None:
        while self._waiting and len(self._running) < _MOST:
            call = _Call(self._waiting.popleft(), time.monotonic())
            self._running[call.response.row_index] = call
            # Spans of the timeline stay those of this worker.
            context = contextvars.copy_context()
            threading.Thread(target=context.run, args=(self._answer, call), name="conversation", daemon=True).start()

    def _answer(self, call: _Call) -> None:
        """Compute the environment's answer to one response, in a thread."""
        index, text, cut, _ = call.response
        try:
            observation, reward, terminated, truncated, info = self._step_row(index - self._first, str(text), cut=cut)
            graded = Feedback(
                index,
                observation,
                reward_value(reward),
                bool(terminated) or bool(truncated),
                dict(info),
                truncated=bool(truncated),
                masked=bool(info.get("masked", False)),
                seconds=time.monotonic() - call.began,
            )
        except (
            BaseException
        ) as error:  # an author's code raises what it likes, and a thread has no caller to raise it to
            graded = Feedback.lost_row(index, "error", account_of(error), seconds=time.monotonic() - call.began)
        self._answers.put((call, graded))

    def _next_late_s(self) -> float:
        if not self._timeout_s or not self._running:
            return float("inf")
        return min(call.began for call in self._running.values()) + self._timeout_s - time.monotonic()

    def _late(self) -> list[Feedback]:
        """Collect calls that have taken too long."""
        now, late = time.monotonic(), []
        for index, call in list(self._running.items()):
            if self._timeout_s and now - call.began >= self._timeout_s:
                del self._running[index]
                self.hung += 1
                account = f"no answer within {self._timeout_s:g} s (env.step_timeout_s)"
                late.append(Feedback.lost_row(index, "timeout", account, seconds=now - call.began))
        if late:
            self._start()
        return late
