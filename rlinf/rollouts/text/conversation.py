"""A conversation: the policy's responses, its environment's answers, and the row that both are written into.

No torch here: the workers that grade import it too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from rlinf.data.pictures import observed, pictures_of
from rlinf.data.ragged import LazyText, RemoteArray
from rlinf.data.token_array import RunLengthArray, TokenArray
from rlinf.rollouts.text.tokens.decoding import step_positions

if TYPE_CHECKING:
    from rlinf.data.messages import Completion
    from rlinf.rollouts.text.demonstrated import Demonstration
    from rlinf.rollouts.text.tokens.prompts import PromptRenderer


class Response(NamedTuple):
    """A policy's turn on its way to the environment."""

    row_index: int
    """Position of the conversation among those of the last reset."""
    content: str | TokenArray[int]
    """Its text, or its tokens, which become text where it is graded."""
    cut: bool
    """The length limit ended it, not the policy."""
    read_back: bool = True
    """Its text is wanted, as the environment reads it."""


@dataclass(frozen=True)
class Feedback:
    """The environment's answer to one response."""

    row_index: int
    """Position of the conversation among those of the last reset."""
    observation: str
    reward: float
    ended: bool
    facts: Mapping[str, Any] = field(default_factory=dict)
    """The row's entries of the environment's infos."""
    truncated: bool = False
    """The environment ended the conversation before its natural end, at its limit of turns."""
    lost: bool = False
    """The environment failed over the response; the rest means nothing."""
    masked: bool = False
    """The environment itself wants the conversation left out of the batch."""
    failure: str = ""
    """Of a lost one: "timeout" or "error"."""
    account: str = ""
    """What happened to a lost one, in words."""
    seconds: float = 0.0
    """That the environment took, where it takes conversations one by one."""
    text: str | None = None
    """The response as the environment read it, where it was given tokens."""
    step_positions: tuple[int, ...] = ()
    """Likewise: the token of the response in which each step of ``facts["step_ends"]`` ends."""

    @classmethod
    def lost_row(cls, row_index: int, failure: str, account: str, *, seconds: float = 0.0) -> Feedback:
        """Build the answer that replaces one that the environment failed to give."""
        return cls(row_index, "", 0.0, True, lost=True, failure=failure, account=account, seconds=seconds)


class Answers(Protocol):
    """The environments of a round: responses go in, their answers come out in any order."""

    @property
    def open(self) -> int:
        """The number of responses that have no answer yet."""

    @property
    def in_part(self) -> bool:
        """Responses are answered one by one; otherwise all that there are together."""

    def give(self, responses: Sequence[Response]) -> None: ...

    def take(self, wait_s: float, *, complete: bool) -> list[Feedback]:
        """Return the answers since the last call; wait for ``wait_s`` seconds at most.

        ``complete``: no response follows until environments have answered."""


class TextEnvs(Protocol):
    """The text environments of a run, in one worker or in several: their rows are one vector of conversations."""

    def prompts(self, split: str, task_ids: Sequence[int]) -> list[str]:
        """Return the first observation of each task; start no conversation."""

    def texts(self, split: str, task_ids: Sequence[int]) -> list[list[str]]:
        """Return texts of each task, to train a tokenizer on: the prompt first."""

    def demonstrations(self, split: str, task_ids: Sequence[int]) -> list[Demonstration]:
        """Return a correct conversation about each task."""

    def difficulties(self, split: str, task_ids: Sequence[int], by: str) -> list[float]:
        """Measure how hard each task is, as `data.curriculum.by` names it."""

    def reset(self, split: str, task_ids: Sequence[int]) -> tuple[Sequence[str], dict[str, Any]]:
        """Start a conversation about each task; return first observations and infos."""

    def answers(self) -> Answers:
        """Return the conversations of the last reset: responses go in, feedback comes out."""

    @property
    def busy_s(self) -> float:
        """Seconds of grading so far, wherever it happens; of several workers the busiest one's."""


@dataclass(frozen=True)
class FeedbackBatch:
    """One worker's answers to the responses that it was given together, in their order."""

    rows: list[Feedback]
    seconds: float
    """How long it took."""


@dataclass(frozen=True)
class Hung:
    """A worker's reply instead of grades: the environment's step took longer than `env.step_timeout_s`."""

    account: str
    """Where it hung, in words."""


def graded_rows(
    result: tuple[Sequence[str], Any, Any, Any, Mapping[str, Any]], rows: Sequence[int], *, first: int = 0
) -> list[Feedback]:
    """Read some rows of what a vector environment's ``step`` returned, whose row 0 is conversation ``first``.

    Infos that are no columns are left out.
    """
    observations, rewards, terminated, truncated, infos = result
    count = len(observations)
    columns = {name: value for name, value in infos.items() if hasattr(value, "__getitem__") and len(value) == count}
    return [
        Feedback(
            first + row,
            observed(observations[row]),
            float(rewards[row]),
            bool(terminated[row]) or bool(truncated[row]),
            {name: column[row] for name, column in columns.items()},
            truncated=bool(truncated[row]),
            masked="masked" in columns and bool(columns["masked"][row]),
        )
        for row in rows
    ]


@dataclass(frozen=True)
class Turn:
    """One speaker's contribution to a conversation, as plain text and as a number of tokens."""

    speaker: str
    """policy or environment"""
    role: str | None
    """The role of the chat template; None where the conversation is plain text."""
    text: str
    tokens: int
    seconds: float = 0.0
    """From the request to the last token, or from the response to the environment's answer."""
    reward: float = 0.0
    """That the environment gave for a turn of the policy."""
    reward_terms: Mapping[str, float] = field(default_factory=dict)
    versions: tuple[int, ...] = ()
    """Of the weights that a turn of the policy was sampled with."""


@dataclass
class Row:
    """A conversation: a prompt, then tokens of the policy and, under a false mask, of the environment."""

    group: int
    sample: int
    task_id: int
    domain: str
    answer: str
    prompt_text: str
    prompt_ids: tuple[int, ...]
    pictures: list[str] = field(default_factory=list)
    """Addresses of the pictures in the prompt and in later observations, in their order."""
    hinted_ids: tuple[int, ...] = ()
    """The prompt with `teacher.hint`; empty if the row has none."""
    routes: np.ndarray | None = None
    """[tokens of prompt and response, but the last one, E] int16: the experts of each (`rollout.router_replay`)."""
    tokens: TokenArray[int] = field(default_factory=TokenArray.ints)
    logprobs: TokenArray[float] = field(default_factory=TokenArray.floats)
    mask: TokenArray[bool] = field(default_factory=TokenArray.flags)
    versions: TokenArray[int] = field(default_factory=TokenArray.ints)
    rewards: dict[int, float] = field(default_factory=dict)
    """Position -> reward: what the environment gave for the turn that ended there."""
    step_rewards: dict[int, float] = field(default_factory=dict)
    anchors: dict[int, int] = field(default_factory=dict)
    """First position of a turn -> the state it answers, as a number: equal for equal observations."""
    answers: list[str] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    """The conversation after the prompt: the tokens of all turns are ``tokens``."""
    facts: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = ""
    """Why the conversation ended: "stop" (the environment or the policy ended it), "length" (a response at
    `rollout.max_new_tokens`), "conversation_length" (at `rollout.max_conversation_tokens`), "turns" (at
    `env.max_turns`), "env_timeout" (the environment hung), "env_error" (it failed), "masked" (it wants the conversation
    left out), or another reason of the sampler."""
    done: bool = False
    lost: bool = False
    """The environment hung over a response: nothing is known of the conversation, and nothing is learned from it."""
    episode: int | None = None
    """Of an agent's rows: the number of the episode in its group, which rows that are branches of one share."""
    branch: int = 0
    """Of an agent's rows: which branch of the episode, 0 the last one."""
    turn_ids: TokenArray[int] = field(default_factory=TokenArray.ints)
    """Of an agent's rows: for each token the number of the policy's turn in its episode, -1 where the policy did not
    speak."""
    contexts: int = 0
    """Tokens that its turns were drawn after, each counted for every turn; ``cached`` of them a prefix cache had."""
    cached: int = 0
    _turn_start: int = 0
    _undecoded: bool = False
    """The text of the last turn is still to come."""
    _later: LazyText | None = None
    """The text of the only turn, if its tokens are in another process."""
    _last_observation: str | None = None
    """The environment's last observation; None before its first answer to a turn."""

    def __post_init__(self) -> None:
        """Convert lists of numbers, as checkpoints of earlier versions have them, to columns."""
        for name in ("tokens", "versions", "turn_ids"):
            setattr(self, name, TokenArray.ints(getattr(self, name)))
        self.logprobs, self.mask = TokenArray.floats(self.logprobs), TokenArray.flags(self.mask)

    @classmethod
    def imitated(
        cls,
        group: int,
        task_id: int,
        texts: tuple[str, str],
        *,
        prompt_ids: tuple[int, ...],
        tokens: Sequence[int],
        mask: Sequence[bool],
        pictures: Sequence[str] = (),
    ) -> Row:
        """Build a row of supervised training, which no policy sampled. ``texts``: prompt, and answer to imitate."""
        prompt_text, answer = texts
        response = TokenArray.ints(tokens)
        return cls(
            group=group,
            sample=0,
            task_id=task_id,
            domain="",
            answer=answer,
            prompt_text=prompt_text,
            prompt_ids=prompt_ids,
            pictures=list(pictures),
            tokens=response,
            logprobs=TokenArray.floats(response.like(0)),
            mask=TokenArray.flags(mask),
            versions=response.like(0),
        )

    @property
    def total_reward(self) -> float:
        return sum(self.rewards.values())

    @property
    def verdict(self) -> str:
        return str(self.facts.get("verdict", ""))

    @property
    def cut_by_length(self) -> bool:
        """Whether a limit on tokens ended it."""
        return self.finish_reason in ("length", "conversation_length")

    def append_response(
        self,
        completion: Completion,
        renderer: PromptRenderer,
        *,
        seconds: float = 0.0,
        number: int | None = None,
    ) -> None:
        """Append the policy's next turn, up to a stop text; ``number`` is the turn's in its episode.

        If the renderer leaves texts to the environment's side, its text comes with :meth:`read`.
        """
        completion = renderer.until_stop(completion)
        response = completion.token_ids
        self._turn_start = len(self.tokens)
        self.contexts += len(self.prompt_ids) + len(self.tokens)
        self.cached += completion.cached_tokens
        if self.episode is not None:
            self.turn_ids += response.like(len(self.answers) if number is None else number)
        self.tokens += response
        self.logprobs += completion.logprobs
        self.mask += RunLengthArray([(True, len(response))], np.bool_)
        self.versions += completion.policy_version
        self.finish_reason = completion.finish_reason
        self.routes = completion.routes
        versions = tuple(sorted({version for version, _ in completion.policy_version.runs()}))
        self.answers.append(renderer.env_text(response) if renderer.decodes_responses else "")
        self.turns.append(
            Turn("policy", renderer.role("policy"), self.answers[-1], len(response), seconds, versions=versions)
        )
        self._undecoded = not renderer.decodes_responses
        if response:
            self.anchors[self._turn_start] = _state_id(
                self.prompt_text if self._last_observation is None else self._last_observation
            )

    def response(self, row_index: int) -> Response:
        """Return the turn that :meth:`append_response` added, for the environment; ``row_index`` is that
        of the conversation."""
        content = self.tokens[self._turn_start :] if self._undecoded else self.answers[-1]
        return Response(row_index, content, self.cut_by_length, read_back=not isinstance(content, RemoteArray))

    @property
    def text(self) -> str | LazyText:
        """All text of the policy; a :class:`LazyText` if its tokens are elsewhere."""
        return self._later or "\n".join(self.answers)

    def read(self, graded: Feedback, renderer: PromptRenderer, *, seconds: float = 0.0) -> None:
        """Read the environment's answer, after ``seconds``, to the turn that :meth:`append_response` added."""
        if self._undecoded and graded.text is None and isinstance(self.tokens, RemoteArray):
            self._later = LazyText(self.tokens, renderer.env_text)
        elif self._undecoded:
            self._undecoded = False
            self.answers[-1] = (
                renderer.env_text(self.tokens[self._turn_start :]) if graded.text is None else graded.text
            )
            self.turns[-1] = replace(self.turns[-1], text=self.answers[-1])
        if graded.lost or graded.masked:
            self.lose(f"env_{graded.failure}" if graded.lost else "masked")
            # Why it is masked, which is counted.
            self.facts = {name: value for name, value in graded.facts.items() if name.startswith("reward_failures/")}
            return
        self.facts = dict(graded.facts)
        if self.turns:
            terms = {n.removeprefix("reward/"): float(v) for n, v in self.facts.items() if n.startswith("reward/")}
            self.turns[-1] = replace(self.turns[-1], reward=graded.reward, reward_terms=terms)
        if self.tokens:
            self.rewards[len(self.tokens) - 1] = self.rewards.get(len(self.tokens) - 1, 0.0) + graded.reward
            self._add_step_rewards(graded, renderer)
        if graded.ended or self.cut_by_length:
            self.done = True
            if graded.truncated and not self.cut_by_length:
                self.finish_reason = "turns"
            return
        observation = self._last_observation = graded.observation
        role = str(graded.facts.get("role", "user"))
        after, response = self.tokens[-1] if self.tokens else None, self.answers[-1] if self.answers else ""
        added = renderer.continuation(observation, role, after=after, response=response)
        self.append_words(added, renderer, text=observation, role=role, seconds=graded.seconds or seconds)

    def append_words(
        self,
        added: Sequence[int],
        renderer: PromptRenderer,
        *,
        text: str | None = None,
        role: str = "user",
        seconds: float = 0.0,
    ) -> None:
        """Append words between two turns of the policy, as tokens that it did not choose."""
        ids = TokenArray.ints(added)
        self.tokens += ids
        self.logprobs += TokenArray.floats(ids.like(0))
        self.mask += TokenArray.flags(ids.like(0))
        self.versions += ids.like(0)
        if self.episode is not None:
            self.turn_ids += ids.like(-1)
        words = renderer.text(list(added)) if text is None else text
        self.pictures += pictures_of(words)
        self.turns.append(Turn("environment", renderer.role("environment", role), words, len(added), seconds))

    def cut(self, reason: str) -> None:
        """End the conversation if no room is left."""
        self.finish_reason, self.done = reason, True

    def lose(self, reason: str = "env_timeout") -> None:
        """Take the conversation out of the batch: its environment hung, or ``reason`` names another cause."""
        self.mask = TokenArray.flags(self.tokens.like(0))
        self.rewards.clear()
        self.step_rewards.clear()
        self.facts, self.finish_reason, self.done, self.lost = {}, reason, True, True

    def _add_step_rewards(self, graded: Feedback, renderer: PromptRenderer) -> None:
        """Add the scores of the environment's steps, at the tokens in which they end.

        A step without one (NaN) leaves no trace."""
        ends, scores = self.facts.get("step_ends"), self.facts.get("step_rewards")
        if ends is None or scores is None or not len(ends):
            return
        opened = len(renderer.opened_thoughts)
        positions = graded.step_positions or step_positions(
            self.tokens[self._turn_start :], ends, renderer.text, opened=opened
        )
        for position, score in zip(positions, scores, strict=True):
            if not math.isnan(score):
                index = self._turn_start + position
                self.step_rewards[index] = self.step_rewards.get(index, 0.0) + float(score)


def _state_id(observation: str) -> int:
    """63 bits of the text's hash: the same in every process, and never the -1 of a position that begins nothing."""
    return int.from_bytes(blake2b(observation.encode(), digest_size=8).digest(), "little") >> 1


def discard_lost(rows: Sequence[Row]) -> None:
    """Give each lost row a group of its own, so that it counts in no other row's statistics.

    A row that is left without another of its group has nothing to be compared with, and is lost too.
    """
    present: dict[int, list[Row]] = {}
    for row in rows:
        if not row.lost:
            present.setdefault(row.group, []).append(row)
    for lost in [row for row in rows if row.lost]:
        rest = present.get(lost.group, [])
        if len(rest) == 1:
            rest[0].lose()
    unused = 1 + max((row.group for row in rows), default=-1)
    for number, row in enumerate([row for row in rows if row.lost]):
        row.group = unused + number
