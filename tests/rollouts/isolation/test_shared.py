"""Observations of processes lie in the run's memory: no message carries them, and nothing of them stays behind."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from rlinf.rollouts.isolation import wire
from rlinf.rollouts.isolation.shared import SharedArrays, open_shared
from rlinf.rollouts.isolation.vec_env import IsolatedVecEnv
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.schema import EnvConfig

TABLETOP = EnvConfig("rlinf_envs:rlinf/Tabletop-v0", {"image_size": 16})


def test_both_sides_see_the_same_memory() -> None:
    first = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((3, 0)), "c": np.ones(5, bool)}
    shared = SharedArrays(first)
    other = open_shared(shared.address)
    for name, array in first.items():
        assert np.array_equal(other[name], array)
        assert other[name].dtype == array.dtype
    other["a"][1, 2] = 9.0
    assert shared.arrays["a"][1, 2] == 9.0
    handle = int(str(shared.address["path"]).rpartition("/")[2])
    shared.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_processes_write_observations_where_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes of two sub-environments each give what four in one process give, in messages without pictures."""
    carried: list[int] = []
    receive = wire.receive

    def counting(*args: Any) -> wire.WireMessage:
        message = receive(*args)
        if message.kind in ("reset", "step"):
            carried.append(sum(array.nbytes for array in message.arrays.values()))
        return message

    monkeypatch.setattr("rlinf.rollouts.isolation.process.receive", counting)
    here, there = SyncVecEnv(TABLETOP, 4), IsolatedVecEnv(TABLETOP, 4, processes=2)
    try:
        addresses = {name: leaf.__array_interface__["data"][0] for name, leaf in there.observations.items()}
        draw = np.random.default_rng(0)
        for envs in (here, there):
            envs.reset(range(4), [1, 2, 3, 4])
        for indices in ([0, 1, 2, 3], [1, 3], [2]):
            actions = draw.uniform(-1, 1, (len(indices), 2)).astype(np.float32)
            rewards = [envs.step(indices, actions).rewards for envs in (here, there)]
            assert np.array_equal(*rewards)
            for name, leaf in here.observations.items():
                assert np.array_equal(leaf, there.observations[name]), name
        assert max(carried) < 100
        # A process that died is restarted, and writes into the same memory.
        there._processes[0].kill()
        assert there.step([0, 1, 2], np.zeros((3, 2), np.float32)).failed == {0: "failures", 1: "failures"}
        for envs in (here, there):
            envs.restart(0)
            envs.reset([0, 1], [7, 8])
        assert np.array_equal(here.observations["observation.image"][:2], there.observations["observation.image"][:2])
        assert addresses == {name: leaf.__array_interface__["data"][0] for name, leaf in there.observations.items()}
    finally:
        there.close()
