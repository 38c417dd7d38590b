"""The text environments of all workers as one vector of conversations.

A worker that dies is restarted and its conversations are replayed. A step that takes longer than `env.step_timeout_s`
is ended the same way, since nothing else reaches every kind of hang; it costs the conversations that it hung over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rlinf.cluster import WORKER_LOST, WorkerGroup
from rlinf.cluster.pool import ResilientPool
from rlinf.rollouts.simulator.failures import FailureCount
from rlinf.rollouts.text.conversation import Answers, Feedback, Response
from rlinf.rollouts.text.demonstrated import Demonstration
from rlinf.rollouts.text.env_worker import EnvFacts
from rlinf.rollouts.text.tokens.decoding import ResponseText
from rlinf.schema import EnvConfig
from rlinf.train.workers.grading import Grading
from rlinf.train.workers.rounds import ConversationSet, handed_over

_MIXTURE = "env.tasks"
"""Name of the environments where `env.id` names none."""


class TextEnvPool(ResilientPool):
    """Fits `rollouts.text.conversation.TextEnvs`."""

    def __init__(self, group: WorkerGroup, env: EnvConfig) -> None:
        super().__init__(group)
        self.timeouts = 0
        """Responses that the environment hung over."""
        self._timeout_s = env.step_timeout_s or None
        self._failures = FailureCount(env.max_failures, group.size, env.id or _MIXTURE)
        self._failures.went_well("reset", 1)
        self.errors = 0
        """Responses that the environment raised an exception over."""
        self._facts: dict[str, EnvFacts] = {}
        self._busy_s = [0.0] * group.size
        self._rounds: dict[int, ConversationSet] = {}
        """By channel; 0 is that of the last :meth:`reset`."""
        self._started: dict[int, Any] = {}
        """Of the worker that was restarted last: the resets of its channels."""
        self._texts: Sequence[ResponseText] = ()

    def read_tokens(self, texts: Sequence[ResponseText]) -> None:
        """Responses may come as tokens from now on: workers decode them, by an entry of ``texts`` per environment."""
        self._texts = texts
        self.call("read_tokens", texts)

    @property
    def busy_s(self) -> float:
        """Seconds of grading so far, of the busiest worker."""
        return max(self._busy_s)

    def facts(self, split: str) -> EnvFacts:
        if split not in self._facts:
            self._facts[split] = self.call_one(0, "facts", split)
        return self._facts[split]

    def demonstrations(self, split: str, task_ids: Sequence[int]) -> list[Demonstration]:
        return self.call_one(0, "demonstrations", split, list(task_ids))

    def texts(self, split: str, task_ids: Sequence[int]) -> list[list[str]]:
        """Texts of each task, to train a tokenizer on: the prompt first."""
        return self.call_one(0, "texts", split, list(task_ids))

    def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
        """Return the first observation of each task; running conversations are not disturbed."""
        return self.call_one(0, "prompts", split, list(task_ids))

    def difficulties(self, split: str, task_ids: Sequence[int], by: str) -> list[float]:
        """How hard each task is, as `data.curriculum.by` measures it."""
        results: list[float] = self.call_one(0, "difficulties", split, list(task_ids), by)
        return results

    def reset(self, split: str, task_ids: Sequence[int]) -> tuple[Sequence[str], dict[str, Any]]:
        """Start conversations; those of the last call are over."""
        return self._start(ConversationSet.of(split, 0, task_ids, self.size), 0)

    def open_channel(self, channel: int, task_ids: Sequence[int]) -> tuple[Sequence[str], dict[str, Any]]:
        """Start conversations of training that go on in parallel with all others, until :meth:`close_channel`.

        Each ``channel`` above 0 has environments of its own in every worker; the next round of it uses them again.
        """
        return self._start(ConversationSet.of("train", channel, task_ids, self.size), channel)

    def close_channel(self, channel: int) -> None:
        """End the conversations of a channel."""
        del self._rounds[channel]

    def continue_channel(self, channel: int, task_ids: Sequence[int], said: Iterable[Response]) -> None:
        """Open a channel as :meth:`open_channel`, for which an earlier session has answered ``said`` already.

        Environments receive them again. Responses of a conversation are in their order.
        """
        round = self._rounds[channel] = ConversationSet.of("train", channel, task_ids, self.size)
        round.remember(said)
        for rank in round.ranks:
            self.play_back(rank, round)

    def answers(self, channel: int = 0) -> Answers:
        """Return the environments of a channel, or of the last :meth:`reset`, for the responses of their
        conversations."""
        round = self._rounds[channel]
        facts = self.facts(round.split)
        if facts.steps_rows:
            self._failures.expect_together(sum(map(len, round.tasks)))
        return Grading(self, round, facts, self._timeout_s)

    def _start(self, round: ConversationSet, channel: int) -> tuple[Sequence[str], dict[str, Any]]:
        self._rounds[channel] = round
        lives = list(self.lives)
        handles = {rank: self.group.submit_one(rank, "reset", *round.start(rank)) for rank in round.ranks}
        results = []
        for rank, handle in handles.items():
            try:
                results.append(handle.result())
            except WORKER_LOST as error:
                if lives[rank] == self.lives[rank]:
                    self.restart(rank, error)
                results.append(self._started.pop(channel))
        observations = [text for result in results for text in result[0]]
        # Columnar infos of several workers, one after another; what is no column of that length is left out.
        infos = [result[1] for result in results]
        sizes = [len(result[0]) for result in results]
        names = [
            name
            for name in infos[0]
            if all(name in info and len(info[name]) == size for info, size in zip(infos, sizes, strict=True))
        ]
        return observations, ({name: [value for info in infos for value in info[name]] for name in names})

    def lost(self, graded: Feedback) -> Feedback:
        """Count a conversation that the environment failed over.

        Raises:
            EnvFailureError: that was one too many.
        """
        if graded.failure == "timeout":
            self.timeouts += 1
        else:
            self.errors += 1
        self._failures.add("step", f"{graded.failure}s", graded.account)
        return graded

    def remember(self, rank: int, round: ConversationSet, given: list[Response]) -> None:
        """Responses that the worker has answered: part of what is repeated after its death."""
        self._failures.went_well("step", len(given))
        round.past[rank] += given

    def busy(self, rank: int, seconds: float) -> None:
        """Count what a worker has spent on answers."""
        self._busy_s[rank] += seconds

    def recover(self, rank: int) -> Any:
        """Start all conversations of the worker again and repeat all answers since."""
        if self._texts:
            self.group.call_one(rank, "read_tokens", self._texts)
        self._started = {
            channel: self.play_back(rank, round) for channel, round in self._rounds.items() if rank in round.ranks
        }

    def play_back(self, rank: int, round: ConversationSet) -> Any:
        """Start the worker's conversations of one round again and repeat all answers since; return their reset."""
        started = self.group.call_one(rank, "reset", *round.start(rank))
        if round.past[rank]:
            self.group.call_one(rank, "replay", round.name, handed_over(round.past[rank]))
        return started
