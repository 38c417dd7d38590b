"""Which machine every worker would run on: Ray's own scheduler, with machines that are imitated here.

Ray starts one of its daemons for each machine, with the cores and GPUs that it is given as numbers. The run's groups
reserve their seats as in a run; no worker is started. All of it is in a process of its own, since a process can join
Ray once: `python -m rlinf.cluster.imitated_machines` with the request as JSON on its standard input.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

from rlinf.base.child_process import ChildProcess, die_with_parent
from rlinf.base.errors import UserError
from rlinf.cluster.api import GroupSize, Resources
from rlinf.cluster.errors import PlacementError

MOST_MACHINES = 32
"""Daemons of Ray that a laptop starts within the deadline."""
_FORM = re.compile(r"(\d+)x(\d+)(?:x(\d+))?")
_CORES_OF_A_GPU, _CORES_WITHOUT = 12, 32
_START_S, _MACHINE_S = 120, 20
_STORE_BYTES = 80 << 20
"""The least that Ray accepts."""


@dataclass(frozen=True)
class Machines:
    """Equal machines.

    >>> Machines.parse("2x8")
    Machines(count=2, gpus=8, cpus=96)
    >>> Machines.parse("4x0x16")
    Machines(count=4, gpus=0, cpus=16)
    """

    count: int
    gpus: int
    """Of each."""
    cpus: int
    """Of each."""

    @classmethod
    def parse(cls, text: str) -> Machines:
        """Read `MACHINESxGPUS` or `MACHINESxGPUSxCORES`.

        :raises UserError: the text has another form, or more machines than are imitated.
        """
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise UserError(f"--machines {text}: write MACHINESxGPUS or MACHINESxGPUSxCORES, such as 2x8 or 2x8x96")
        count, gpus = int(match[1]), int(match[2])
        cpus = int(match[3]) if match[3] else gpus * _CORES_OF_A_GPU or _CORES_WITHOUT
        if not 0 < count <= MOST_MACHINES or not cpus:
            raise UserError(f"--machines {text}: 1 to {MOST_MACHINES} machines with at least one core each")
        return cls(count, gpus, cpus)

    def __str__(self) -> str:
        machines = "1 machine" if self.count == 1 else f"{self.count} machines"
        return f"{machines} of {self.gpus} GPUs and {self.cpus} cores"


def placed(groups: Mapping[str, GroupSize], machines: Machines) -> dict[str, list[int]]:
    """Return the machine of every rank, from 0, by group.

    :raises PlacementError: the groups do not fit; the message names what is missing.
    :raises UserError: Ray did not start, or gave no answer in time.
    """
    request = {"machines": asdict(machines), "groups": {name: asdict(size) for name, size in groups.items()}}
    process = ChildProcess([sys.executable, "-m", __name__], name="the imitated machines", input=True)
    try:
        process.send(json.dumps(request).encode() + b"\n")
        seconds = _START_S + _MACHINE_S * machines.count
        code = process.wait(seconds)
        output = process.last_words()
    finally:
        process.kill()
    answer = re.search(r"^placement: (.*)$", output, re.MULTILINE)
    if code is None or answer is None:
        how = f"gave no answer in {seconds} s" if code is None else process.how_it_ended()
        raise UserError(f"{process} {how}{output}")
    placement = json.loads(answer[1])
    if "missing" in placement:
        raise PlacementError(placement["missing"])
    return {name: list(seats) for name, seats in placement.items()}


def described(seats: Mapping[str, Sequence[int]], machines: Machines) -> list[str]:
    """Return a line for each machine that has workers: groups and their ranks.

    >>> described({"env": [0, 1], "learner": [0, 0, 1]}, Machines(2, 8, 96))
    ['machine 1  env 0, learner 0-1', 'machine 2  env 1, learner 2']
    """
    lines = []
    for machine in range(machines.count):
        parts = [
            f"{name} {spans([rank for rank, seat in enumerate(ranks) if seat == machine])}"
            for name, ranks in seats.items()
            if machine in ranks
        ]
        if parts:
            lines.append(f"machine {machine + 1}  {', '.join(parts)}")
    return lines


def spans(ranks: Sequence[int]) -> str:
    """Return ascending numbers with their neighbours joined.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2 5 7-8'
    """
    runs = [
        [rank for _, rank in run]
        for _, run in groupby(enumerate(ranks), key=lambda numbered: numbered[1] - numbered[0])
    ]
    return " ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def divided(ranks: Sequence[int], size: int) -> list[list[int]]:
    """Return the blocks of ``size`` consecutive ranks that lie on several machines.

    >>> divided([0, 0, 0, 1, 1, 1], 2)
    [[2, 3]]
    """
    blocks = [list(range(first, first + size)) for first in range(0, len(ranks), size)]
    return [block for block in blocks if len({ranks[rank] for rank in block if rank < len(ranks)}) > 1]


def main() -> None:
    """Answer the request on the standard input with one line of JSON."""
    from rlinf.cluster.ray_settings import apply_settings

    die_with_parent()
    request = json.loads(sys.stdin.readline())
    machines = Machines(**request["machines"])
    groups = {name: GroupSize(size["n"], Resources(**size["resources"])) for name, size in request["groups"].items()}
    apply_settings()
    # All daemons share the cores of this machine, so they take longer to start, and start no workers ahead of use.
    os.environ.update({"RAY_enable_worker_prestart": "0", "RAY_raylet_start_wait_time_s": str(_START_S)})
    try:
        answer: dict[str, object] = dict(_reserved(groups, machines))
    except PlacementError as error:
        answer = {"missing": str(error)}
    print(f"placement: {json.dumps(answer)}", flush=True)


def _reserved(groups: Mapping[str, GroupSize], machines: Machines) -> dict[str, list[int]]:
    import ray
    from ray.cluster_utils import Cluster
    from ray.util.placement_group import placement_group_table

    from rlinf.cluster.placement import RayPlacement

    own: dict[str, Any] = {"num_cpus": machines.cpus, "num_gpus": machines.gpus, "object_store_memory": _STORE_BYTES}
    imitated = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
    try:
        nodes = [imitated.head_node, *(imitated.add_node(**own) for _ in range(machines.count - 1))]
        numbers = {node.node_id: number for number, node in enumerate(nodes)}
        ray.init(address=imitated.address, log_to_driver=False)
        imitated.wait_for_nodes()
        placement = RayPlacement()
        seats: dict[str, list[int]] = {}
        for name, size in groups.items():
            seats[name] = []
            for reserved in placement.reserve(name, size.n, size.resources):
                strategy = reserved.options["scheduling_strategy"]
                of_bundles = placement_group_table(strategy.placement_group)["bundles_to_node_id"]
                seats[name].append(numbers[of_bundles[strategy.placement_group_bundle_index]])
        return seats
    finally:
        ray.shutdown()
        imitated.shutdown()


if __name__ == "__main__":
    main()
