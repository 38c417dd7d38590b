"""Actions at a steady rate: a chunk is requested while the one before is carried out."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from rlinf.serve.real_time import ChunkPlayer


def test_actions_go_on_while_a_chunk_is_computed() -> None:
    requests: list[Any] = []
    free = threading.Event()

    def chunk_of(request: Any) -> np.ndarray:
        requests.append(request)
        if len(requests) > 1:
            free.wait(10)
        return np.arange(4.0)[:, None] + 10 * len(requests)

    with ChunkPlayer(chunk_of, begin_at=3) as player:
        taken = [float(player.action({"state": 0})[0]) for _ in range(3)]
        assert taken == [10.0, 11.0, 12.0]
        assert len(player.stalls_ms) == 1  # the first chunk has none before it
        free.set()
        assert player._pending is not None
        player._pending.result(10)
        # Requested after one action, with three left; two more were carried out meanwhile.
        assert requests[1]["previous"][:, 0].tolist() == [11.0, 12.0, 13.0]
        assert float(player.action({"state": 0})[0]) == 22.0
        assert player.jumps == [9.0]
        assert len(player.stalls_ms) == 1


def test_the_slowest_of_the_last_requests_is_what_is_expected() -> None:
    requests: list[Any] = []

    def chunk_of(request: Any) -> np.ndarray:
        requests.append(request)
        return np.zeros((4, 1))

    with ChunkPlayer(chunk_of, begin_at=3) as player:
        for _ in range(12):
            player.action({})
            if player._pending is not None:
                player._pending.result(10)
    assert "previous" not in requests[0]
    assert {request["delay"] for request in requests[2:]} == {1}
