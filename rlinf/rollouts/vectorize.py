"""Which kind of lanes: in this process, a process each, another interpreter, or the environment's own vector kind."""

from __future__ import annotations

import time
from functools import partial

import gymnasium

from rlinf.rollouts.isolation.lanes import IsolatedLanes
from rlinf.rollouts.lanes import InProcessLanes, Lanes, close_quietly
from rlinf.rollouts.make_env import EnvNotFoundError, EnvOptions, has_native_vector_env, make_env
from rlinf.rollouts.native_lanes import NativeLanes
from rlinf.rollouts.process_lanes import ProcessLanes

# What a message to a process and back costs, measured at 30 to 60 microseconds a lane; below ten times that, processes
# can not win even on many cores.
_WORTH_A_PROCESS_S = 500e-6
_PROBE_STEPS = 30


def make_lanes(options: EnvOptions, num_lanes: int, *, cores: int = 1) -> Lanes:
    """``num_lanes`` environments as ``options.vectorization`` says; ``cores`` is what this worker may use.

    Isolated environments share one process of the other interpreter, or have one each with `async`. `auto` never takes
    native vector envs: they have a stream of their own, so the result would depend on the choice.
    """
    kind = options.vectorization
    if options.isolation == "process":
        return IsolatedLanes(options, num_lanes, processes=num_lanes if kind == "async" else 1)
    if kind == "auto":
        kind = "async" if cores > 1 and num_lanes > 1 and step_seconds(options) > _WORTH_A_PROCESS_S else "sync"
    if kind == "native":
        if not has_native_vector_env(options.id):
            raise EnvNotFoundError(f"env.vectorization native: {options.id!r} has no vector env of its own; use 'auto'")
        return NativeLanes(options, num_lanes)
    make = ProcessLanes if kind == "async" else InProcessLanes
    return make(partial(make_env, options), num_lanes, options.success_key, options.step_timeout_s)


def step_seconds(options: EnvOptions) -> float:
    """Wall-clock seconds of one step under random actions, resets not counted."""
    env: gymnasium.Env = make_env(options)
    try:
        env.reset(seed=0)
        env.action_space.seed(0)
        spent = 0.0
        for _ in range(_PROBE_STEPS):
            started = time.perf_counter()
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            spent += time.perf_counter() - started
            if terminated or truncated:
                env.reset()
        return spent / _PROBE_STEPS
    finally:
        close_quietly(env)
