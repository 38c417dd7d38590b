"""Which kind of lanes: in this process, a process each, or the environment's own vector implementation."""

from __future__ import annotations

from functools import partial

from rlinf.rollouts.lanes import InProcessLanes, Lanes
from rlinf.rollouts.make_env import EnvOptions, make_env


def make_lanes(options: EnvOptions, num_lanes: int) -> Lanes:
    """``num_lanes`` environments as ``options.vectorization`` says."""
    return InProcessLanes(partial(make_env, options), num_lanes, options.success_key, options.step_timeout_s)
