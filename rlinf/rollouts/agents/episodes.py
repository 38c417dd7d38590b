"""An agent's calls in one episode, as token sequences: a turn extends the one before, or begins a branch.

Agents send whole conversations again and again. If the tokens of one begin with those of an earlier call and
its response, it continues them; a conversation that was rewritten, shortened or forked is another branch.
Every sampled token stands in one branch as the policy's, with the very tokens before it that it was drawn
after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlinf.data.messages import Completion


@dataclass(frozen=True)
class Call:
    """One request of an agent, and the policy's response."""

    context: tuple[int, ...]
    completion: Completion
    seconds: float = 0.0
    """From the request to the response."""


@dataclass
class Branch:
    """A token sequence: the first call's context, then responses and, between them, what the agent added."""

    prompt_ids: tuple[int, ...]
    parts: list[tuple[tuple[int, ...], Call, int]] = field(default_factory=list)
    """What the agent added, the call that follows it, and the number of that call in the episode."""
    ids: tuple[int, ...] = ()


@dataclass
class AgentEpisode:
    """An agent's run about one task: a session at the endpoint."""

    key: tuple[int, ...]
    """Of its random streams; a call adds what it depends on."""
    sample: int
    row_index: int
    group: int
    calls: list[Call] = field(default_factory=list)
    request_counts: dict[tuple[int, ...], int] = field(default_factory=dict)
    """Context -> how often it was sent: the same context again draws from another stream."""
    histories: dict[tuple[str, ...], tuple[int, ...]] = field(default_factory=dict)
    """Messages up to an answer of the policy -> their tokens."""
    over: bool = False


def branches_of(calls: Sequence[Call]) -> list[Branch]:
    """Build the branches of an episode, the same in whatever order its calls were answered.

    >>> def call(context, ids):
    ...     return Call(context, Completion(0, 0, ids, (0.0,) * len(ids), "stop", (0,) * len(ids)))
    >>> [branch.ids for branch in branches_of([call((1,), (2,)), call((1, 2, 3), (4,)), call((1, 2, 5), (6,))])]
    [(1, 2, 3, 4), (1, 2, 5, 6)]
    """
    branches: list[Branch] = []
    ordered = sorted(calls, key=lambda call: (len(call.context), call.context, tuple(call.completion.token_ids)))
    for number, call in enumerate(ordered):
        fitting = [branch for branch in branches if call.context[: len(branch.ids)] == branch.ids]
        branch = max(fitting, key=lambda branch: len(branch.ids), default=None)
        if branch is None:
            branch = Branch(call.context, ids=call.context)
            branches.append(branch)
        branch.parts.append((call.context[len(branch.ids) :], call, number))
        branch.ids = (*call.context, *call.completion.token_ids)
    return branches
