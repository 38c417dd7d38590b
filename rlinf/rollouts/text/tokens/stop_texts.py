"""Ends of responses: the end mark, and stop texts."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import replace

from rlinf.data.messages import Completion


def cut_at_stop(completion: Completion, stops: Sequence[str], to_text: Callable[[Sequence[int]], str]) -> Completion:
    """Cut a response behind the token that completes one of ``stops``; as it is if none occurs.

    It is what a sampler would have drawn had it stopped there: a token depends on those before it alone.
    """

    def stopped(tokens: Sequence[int]) -> bool:
        text = to_text(tokens)
        return any(stop in text for stop in stops)

    tokens = completion.token_ids
    if not stops or not stopped(tokens):
        return completion
    # Once a stop text is there it stays there, so the shortest prefix that has one is found by bisection.
    kept = bisect.bisect_left(range(len(tokens)), True, key=lambda last: stopped(tokens[: last + 1])) + 1
    return replace(
        completion,
        token_ids=tokens[:kept],
        logprobs=completion.logprobs[:kept],
        policy_version=completion.policy_version[:kept],
        finish_reason="stop",
    )


def ended(tokens: Sequence[int], mark: int) -> list[int]:
    """Return an answer to imitate with its end mark, once: some data sets write the mark themselves.

    >>> ended([5, 6], 1), ended([5, 6, 1], 1)
    ([5, 6, 1], [5, 6, 1])
    """
    return [*tokens] if list(tokens[-1:]) == [mark] else [*tokens, mark]
