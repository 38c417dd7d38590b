"""Conversations that were started together, over all environment workers, and what repeats them after a death."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.cluster.api import Assembled
from rlinf.data.ragged import TOKENS, RaggedRows, RemoteArray
from rlinf.data.split import split_evenly
from rlinf.data.token_array import TokenArray
from rlinf.rollouts.text.conversation import Response
from rlinf.rollouts.text.env_worker import CHANNEL_MARK


@dataclass
class ConversationSet:
    """Conversations of one split, those of a worker side by side."""

    split: str
    name: str
    """What workers call the environment that plays them."""
    slices: list[slice]
    """The places of each worker."""
    tasks: list[list[int]]
    """Of each worker."""
    past: list[list[Response]]
    """Of each worker: responses since the start that it has answered, those of a conversation in their order."""

    @classmethod
    def of(cls, split: str, channel: int, task_ids: Sequence[int], workers: int) -> ConversationSet:
        """Channel 0 has the split's own environment, any other one of its own."""
        slices = split_evenly(len(task_ids), workers)
        name = f"{split}{CHANNEL_MARK}{channel}" if channel else split
        return cls(split, name, slices, [list(task_ids[part]) for part in slices], [[] for _ in slices])

    @property
    def ranks(self) -> list[int]:
        """Workers that have a part of it."""
        return [rank for rank, tasks in enumerate(self.tasks) if tasks]

    def start(self, rank: int) -> tuple[str, list[int], int]:
        """Return the arguments that start a worker's part: the environment, its tasks, and its first index."""
        return self.name, self.tasks[rank], self.slices[rank].start

    def rank(self, response: Response) -> int:
        """Return the worker that has the conversation."""
        return next(rank for rank, part in enumerate(self.slices) if response.row_index < part.stop)

    def remember(self, said: Iterable[Response]) -> None:
        """Record responses as answered, those of a conversation in their order."""
        for response in said:
            self.past[self.rank(response)].append(response)


def handed_over(responses: Sequence[Response]) -> Sequence[Response] | Assembled:
    """Return responses as the argument of a call: a worker fetches separate tokens from the process that has them."""
    parts: dict[Any, int] = {}
    locations: list[tuple[int, int] | None] = []
    for response in responses:
        if isinstance(response.content, RemoteArray):
            part, row = response.content.source.part(response.content.row)
            locations.append((parts.setdefault(part, len(parts)), row))
        else:
            locations.append(None)
    if not parts:
        return responses
    known = [
        one if location is None else one._replace(content="")
        for one, location in zip(responses, locations, strict=True)
    ]
    return Assembled(_with_tokens, (known, locations, *parts))


def _with_tokens(
    responses: Sequence[Response], places: Sequence[tuple[int, int] | None], *parts: RaggedRows
) -> list[Response]:
    """Responses with the tokens that are at ``places`` (part, row)."""
    tokens, spans = [runs.columns[TOKENS] for runs in parts], [runs.spans() for runs in parts]
    return [
        one
        if location is None
        else one._replace(content=TokenArray(tokens[location[0]][spans[location[0]][location[1]]]))
        for one, location in zip(responses, places, strict=True)
    ]
