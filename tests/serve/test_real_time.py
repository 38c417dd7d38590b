"""Actions at a steady rate: a chunk is asked for while the one before is carried out."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from rlinf.serve.real_time import ChunkPlayer


def test_actions_go_on_while_a_chunk_is_computed() -> None:
    asked: list[Any] = []
    free = threading.Event()

    def ask(request: Any) -> np.ndarray:
        asked.append(request)
        if len(asked) > 1:
            free.wait(10)
        return np.arange(4.0)[:, None] + 10 * len(asked)

    with ChunkPlayer(ask, begin_at=3) as player:
        taken = [float(player.action({"state": 0})[0]) for _ in range(3)]
        assert taken == [10.0, 11.0, 12.0]
        assert len(player.stalls_ms) == 1  # the first chunk has none before it
        free.set()
        assert player._pending is not None
        player._pending.result(10)
        # Asked after one action, with three left; two more were carried out meanwhile.
        assert asked[1]["previous"][:, 0].tolist() == [11.0, 12.0, 13.0]
        assert float(player.action({"state": 0})[0]) == 22.0
        assert player.jumps == [9.0]
        assert len(player.stalls_ms) == 1


def test_the_slowest_of_the_last_requests_is_what_is_expected() -> None:
    asked: list[Any] = []

    def ask(request: Any) -> np.ndarray:
        asked.append(request)
        return np.zeros((4, 1))

    with ChunkPlayer(ask, begin_at=3) as player:
        for _ in range(12):
            player.action({})
            if player._pending is not None:
                player._pending.result(10)
    assert "previous" not in asked[0]
    assert {request["delay"] for request in asked[2:]} == {1}
