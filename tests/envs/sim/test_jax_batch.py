"""Batches of functional environments: what is compiled, and how often."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rlinf_envs.sim.jax_batch import Functional, JaxBatchEnv

jax = pytest.importorskip("jax", reason="pip install 'oneloop-rl[brax]'")
pytestmark = pytest.mark.sim


def test_a_step_is_compiled_once_whatever_types_a_state_begins_with() -> None:
    box = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def begin(key: Any) -> tuple[Any, Any]:
        seen = jax.random.uniform(key, (1,))
        return seen, {
            "seen": seen,
            "sum": jax.numpy.asarray(0.0),
            "last": jax.numpy.zeros(()),
            "pay": jax.numpy.zeros(()),
        }

    def advance(_key: Any, state: Any, action: Any) -> tuple[Any, Any, Any, Any]:
        last = jax.numpy.where(action[0] > 0, 1.0, 0.0)
        after = {"seen": state["seen"], "sum": state["sum"] + action[0], "last": last, "pay": 1.0}
        return after["seen"], after, last, after["sum"] > 2.5

    env = JaxBatchEnv(4, Functional(box, box, begin, advance, 100))
    env.reset(seed=0)
    for number in range(6):
        env.step(np.ones((4, 1), np.float32))
        if number % 2:
            env.reset(options={"reset_mask": np.array([True, False, False, False])})
    assert env.functional.compiled.advance._cache_size() == 1  # type: ignore[attr-defined]
