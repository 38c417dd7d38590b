"""The contract of text environments: what a class must have to train a policy, and what it may have.

A vector environment has every member of :class:`TextVectorEnv`; :class:`TextTaskEnv` is the usual base. Members of
:class:`TextVectorEnvExtras` are optional one by one: the rollout uses those that exist. Environments of one
conversation (`gymnasium.Env` with text spaces) need neither.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Infos = dict[str, Any]
"""Name -> a column with one entry per conversation."""
StepResult = tuple[tuple[str, ...], NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], Infos]
"""(observations, rewards, terminated, truncated, infos) of all conversations."""


@runtime_checkable
class TextVectorEnv(Protocol):
    """``num_envs`` conversations about tasks that are numbered from 0 to ``num_tasks - 1``."""

    num_envs: int

    @property
    def num_tasks(self) -> int:
        """Return the number of tasks. An id means the same task in every process."""

    def prompt(self, task_id: int) -> str:
        """Return the first observation of a task; running conversations are not disturbed."""

    def resize(self, num_envs: int) -> None:
        """Make room for another number of conversations; the next call is ``reset``."""

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], Infos]:
        """Begin conversations and return their first observations, without a chat template.

        Args:
            seed: sub-environment i gets seed + i; a list has one for each.
            options: ``task_ids`` names the task of each conversation, ``reset_mask`` (bool [num_envs]) restarts some.
        """

    def step(self, actions: Sequence[str | None]) -> StepResult:
        """Take one response per conversation; an observation of "" ends one.

        Conversations that have ended ignore their action until the next ``reset``.
        """

    def close(self) -> None:
        """End helper processes."""


class TextVectorEnvExtras(TextVectorEnv, Protocol):
    """Optional members, each used if it exists."""

    max_turns: int
    """Responses per conversation, 1 by default."""
    system_prompt: str | None
    """The system prompt of every conversation."""
    skipped_rows: int
    """Rows of the data that are left out, which is reported once."""
    data_notes: Mapping[str, int | str]
    """Further findings about the data that are reported once."""
    steps_in_part: bool
    """Whether ``step`` takes None for a response that is not complete; responses are then graded as they arrive."""
    response_marks: Sequence[str]
    """Literal text that a response needs to earn its reward; `rlinf check` warns if no prompt mentions it."""
    instructions: Mapping[str, str]
    """Literal text that a response should contain -> the sentence that requests it."""
    tool_schemas: Sequence[Mapping[str, Any]]
    """The tools as a chat template takes them."""

    @property
    def example(self) -> str:
        """Return a first observation that is typical of all."""

    def step_row(
        self, row: int, response: str, *, cut: bool = False
    ) -> tuple[str, float, bool, bool, Mapping[str, Any]]:
        """Take one conversation's response; called from several threads for different conversations.

        Returns:
            observation, reward, terminated, truncated and the row's infos.
        """

    def mark_cut(self, rows: Sequence[int]) -> None:
        """Name the rows whose response in the next ``step`` was cut at the length limit."""

    def question(self, task_id: int) -> str:
        """Return the question without template or examples."""

    def answer(self, task_id: int) -> str:
        """Return the reference answer."""

    def solution(self, task_id: int) -> str | None:
        """Return a worked solution, or None."""

    def demonstrations(self, task_ids: Sequence[int]) -> Sequence[tuple[str, str | list[str]]]:
        """Return (prompt, correct response) of each task for a warm start; a list alternates responses and replies."""

    def difficulties(self, task_ids: Sequence[int], by: str) -> list[float]:
        """Return the difficulty of each task, measured by `data.curriculum.by`; larger is harder."""

    def questions(self) -> Collection[str]:
        """Return the questions in the normal form of :func:`rlinf_envs.splits.question_key`."""

    def leave_out(self, questions: Collection[str]) -> None:
        """Remove the tasks of these questions, which an evaluation uses."""
