"""Which questions of env workers are answered as one, and that each worker gets its own part."""

from __future__ import annotations

import numpy as np
import torch

from rlinf.cluster.local import LocalHandle
from rlinf.data.messages import PolicyOutput
from rlinf.models.policy_requests import Decision, PolicyRequest
from rlinf.rollouts.simulator.pipelined import RequestSummary
from rlinf.train.workers.merged_requests import PendingRequest, RequestBatcher, merged, split


def pending(worker: int, stage: int, method: str = "decide") -> PendingRequest:
    return PendingRequest(
        worker, 0, RequestSummary(stage, method, 1), LocalHandle("env", worker, "answer", [], None), 0
    )


def names(batches: list[list[PendingRequest]]) -> list[list[tuple[int, int]]]:
    return [[(question.worker, question.summary.stage) for question in batch] for batch in batches]


def test_a_stage_is_sent_once_all_workers_that_play_it_are_ready() -> None:
    gathering = RequestBatcher(2)
    assert gathering.add(1, None, [pending(1, 0), pending(1, 1)]) == []  # what worker 0 will play is still open
    assert names(gathering.add(0, None, [pending(0, 0), pending(0, 1)])) == [[(0, 0), (1, 0)], [(0, 1), (1, 1)]]
    assert gathering.add(0, 0, [pending(0, 0)]) == []
    assert names(gathering.add(1, 0, [pending(1, 0)])) == [[(0, 0), (1, 0)]]
    # Worker 1 is through with stage 0, and requests something else that is not held back.
    assert gathering.add(0, 0, [pending(0, 0)]) == []
    assert names(gathering.add(1, 0, [pending(1, 2, "evaluate")])) == [[(1, 2)], [(0, 0)]]


def test_a_worker_that_begins_again_is_waited_for() -> None:
    gathering = RequestBatcher(2)
    gathering.add(0, None, [pending(0, 0)])
    gathering.add(1, None, [pending(1, 0)])
    assert gathering.add(0, 0, [pending(0, 0)]) == []
    gathering.forget(1)
    gathering.forget(0)
    assert gathering.add(1, None, [pending(1, 0)]) == []
    assert names(gathering.add(0, None, [pending(0, 0)])) == [[(0, 0), (1, 0)]]


def test_everybody_gets_the_rows_of_his_own_question() -> None:
    def decide(rows: int, start: int) -> PolicyRequest:
        numbers = np.arange(start, start + rows, dtype=np.float32)[:, None]
        return PolicyRequest("decide", ({"x": numbers}, numbers, None))

    both = [decide(2, 0), decide(3, 10)]
    whole = merged(both)
    observations, state, noise = whole.arguments
    assert observations["x"][:, 0].tolist() == state[:, 0].tolist() == [0, 1, 10, 11, 12]
    assert noise is None
    output = PolicyOutput(torch.from_numpy(state), values=torch.from_numpy(state))
    parts = split(Decision(state, state, state, output), [2, 3])
    assert [part.actions[:, 0].tolist() for part in parts] == [[0, 1], [10, 11, 12]]
    assert parts[1].output is not None
    assert parts[1].output.logprobs[:, 0].tolist() == [10, 11, 12]
    assert merged(both[:1]) is both[0]
