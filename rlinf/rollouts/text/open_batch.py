"""Conversations that were begun together: some over, some in the middle of a response, some with their environment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from rlinf.data.messages import Completion
from rlinf.data.token_array import TokenArray
from rlinf.rollouts.text.conversation import Response, Row


@dataclass
class OpenBatch:
    """Conversations that were begun together, as data: everything that a checkpoint needs of them."""

    step: int
    """Part of its random streams' names: the training iteration that it is for, or, if batches take what is complete
    first, the one that it was begun in."""
    rows: list[Row]
    """Group after group."""
    dropped: int = 0
    """Tasks that were passed over, since their prompts are too long."""
    round: int = 0
    """Of dynamic sampling: how many batches of this step were found to have too few groups to learn from."""
    begun: dict[int, Completion] = field(default_factory=dict)
    """Index of a row -> what there is of the response that it is at."""
    finished: list[int] = field(default_factory=list)
    """Indices of rows that are over."""
    heard: list[int] = field(default_factory=list)
    """Of each row: responses that its environment has answered."""
    taken: list[int] = field(default_factory=list)
    """Groups that were handed out."""
    first_group: int = 0
    """How many groups the run had begun before."""
    channel: int = 0
    """Where its environments are, which an earlier session's are not."""

    def __post_init__(self) -> None:
        self.heard = self.heard or [0] * len(self.rows)
        self._over = set(self.finished)

    def finish(self, index: int) -> None:
        """Mark the conversation of a row as over."""
        self.finished.append(index)
        self._over.add(index)

    def over(self, index: int) -> bool:
        """Return whether the conversation of a row is over."""
        return index in self._over

    def groups(self, size: int) -> list[int]:
        """Return the groups of ``size`` rows that are not handed out yet."""
        return [number for number in range(len(self.rows) // size) if number not in self.taken]

    def complete(self, group: int, size: int) -> bool:
        """Return whether all ``size`` rows of a group are over."""
        return all(index in self._over for index in range(group * size, (group + 1) * size))

    def answered(self) -> list[Response]:
        """Return all responses that environments have answered, those of a conversation in their order."""
        return [
            Response(index, text, cut=row.cut_by_length and turn == len(row.answers) - 1)
            for index, row in enumerate(self.rows)
            # A response over which the environment failed is not repeated.
            for turn, text in enumerate(row.answers[: self.heard[index] - row.lost])
        ]


def spans_of(row: Row) -> list[TokenArray[int]]:
    """Return the versions of the tokens of each of a row's responses."""
    result, start = [], 0
    for turn in row.turns:
        if turn.speaker == "policy":
            result.append(row.versions[start : start + turn.tokens])
        start += turn.tokens
    return result


def joined(begun: Completion | None, rest: Completion) -> Completion:
    """Join the pieces of an interrupted response."""
    if begun is None:
        return rest
    return replace(
        rest,
        token_ids=begun.token_ids + rest.token_ids,
        logprobs=begun.logprobs + rest.logprobs,
        policy_version=begun.policy_version + rest.policy_version,
    )
