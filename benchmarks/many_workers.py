"""A thousand environments in a few dozen actors: start, a call to all, and the return of workers that die together.

    python benchmarks/many_workers.py [--envs 1000] [--workers 50] [--deaths 10] [--write]

As a run does it with `env.num_envs: 1000` and `env.num_workers: 50`: each actor steps its own environments (CartPole),
and messages go to actors. Workers are killed with SIGKILL at the same time; the next call restarts them side by side.
"""

from __future__ import annotations

import argparse
import functools
import os
import signal
import statistics
import time

import gymnasium
from records import Figure, add_output, save

from rlinf.cluster import RankInfo, connect
from rlinf.cluster.pool import ResilientPool
from rlinf.rollouts.simulator.rollout import env_ranges
from rlinf.schema.cluster import ClusterConfig

CALLS = 20


class Environments:
    """The environments of one actor."""

    def __init__(self, count: int) -> None:
        self._envs = gymnasium.make_vec("CartPole-v1", num_envs=count, vectorization_mode="sync")
        self._envs.reset(seed=0)

    def step(self) -> int:
        """One step of each; how many there are."""
        return len(self._envs.step(self._envs.action_space.sample())[1])

    def nothing(self) -> int:
        """What a message costs alone; the process."""
        return os.getpid()


def build(envs: int, info: RankInfo) -> Environments:
    return Environments(len(env_ranges(envs, info.size)[info.rank]))


def timed_ms(pool: ResilientPool, method: str) -> float:
    """The median of several calls to all workers, in milliseconds."""
    seconds = []
    for _ in range(CALLS):
        began = time.perf_counter()
        pool.call(method)
        seconds.append(time.perf_counter() - began)
    return 1e3 * statistics.median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--deaths", type=int, default=10)
    add_output(parser, "many_workers")
    options = parser.parse_args()
    config = ClusterConfig(start_timeout_s=1200.0, cpus_per_worker=0.1, max_restarts=2)
    with connect(config) as cluster:
        began = time.perf_counter()
        group = cluster.spawn("env", functools.partial(build, options.envs), n=options.workers)
        pool = ResilientPool(group)
        start = time.perf_counter() - began
        print(f"start: {start:.1f} s for {options.workers} actors", flush=True)
        print(f"environments: {sum(pool.call('step'))}")
        call, step = timed_ms(pool, "nothing"), timed_ms(pool, "step")
        print(f"a call to all: {call:.0f} ms; with a step of each: {step:.0f} ms")
        for process in pool.call("nothing")[: options.deaths]:
            os.kill(process, signal.SIGKILL)
        began = time.perf_counter()
        assert sum(pool.call("step")) == options.envs
        back = time.perf_counter() - began
        print(f"{pool.restarts} of {options.deaths} killed workers back in {back:.1f} s")
    if options.write:
        case = f"{options.envs:,} environments in {options.workers} actors"
        found = [
            Figure(case, "start, seconds", round(start, 1)),
            Figure(case, "a call to all, ms", round(call), n=CALLS),
            Figure(case, "a step of each, ms", round(step), n=CALLS),
            Figure(case, f"return of {options.deaths} killed actors, seconds", round(back, 1)),
        ]
        save(options.write, found, intervals="")


if __name__ == "__main__":
    main()
