"""Two nodes, imitated on one machine by Ray's own test cluster; in a process of its own, as Ray can be joined once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
from cluster_workers import Collective, Worker
from ray.cluster_utils import Cluster as Machines

from rlinf.cluster import PlacementError, Resources, WorkerDied, connect
from rlinf.schema.cluster import ClusterConfig

if __name__ == "__main__":
    machines = Machines(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    second = machines.add_node(num_cpus=4)
    with connect(ClusterConfig(address=machines.address, heartbeat_s=0.5)) as cluster:
        with cluster.spawn("packed", Worker, n=2, resources=Resources(cpus=1)) as group:
            assert [info.local_rank for info in group.call("where")] == [0, 1]
        with cluster.spawn("spread", Worker, n=2, resources=Resources(cpus=0.5, spread=True)) as group:
            assert [info.local_rank for info in group.call("where")] == [0, 0]
        try:
            cluster.spawn("wide", Worker, resources=Resources(cpus=5))
        except PlacementError as error:
            assert "5 CPU on one node, and the largest of 2 has 4 CPU" in str(error), error
        far = Resources(cpus=3)
        group = cluster.spawn("learner", Collective, n=2, resources=far, rendezvous=True)
        assert group.call("all_reduce") == [3.0, 3.0]
        machines.remove_node(second, allow_graceful=False)
        try:
            group.call("stall", 100)
        except WorkerDied as error:
            assert "learner rank" in str(error), error
            print("done")
    machines.shutdown()
"""


LOST = """
from cluster_workers import Worker
from ray.cluster_utils import Cluster as Machines

from rlinf.cluster import Resources, ValueLost, WorkerDied, connect
from rlinf.schema.cluster import ClusterConfig

if __name__ == "__main__":
    machines = Machines(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    second = machines.add_node(num_cpus=4)
    with connect(ClusterConfig(address=machines.address, heartbeat_s=0.5)) as cluster:
        group = cluster.spawn("spread", Worker, n=2, resources=Resources(cpus=0.5, spread=True))
        calls = [group.submit_remote(rank, "numbered_weights", version=rank) for rank in range(2)]
        assert group.gather([number for number, _ in calls]) == [0, 1]
        made = [weights for _, weights in calls]
        other = group.submit_remote(1, "numbered_weights", version=2)[1]
        assert group.gather([group.submit_one(0, "total", other)]) == [1249975000.0]
        machines.remove_node(second, allow_graceful=False)
        ended = []
        for taker, maker in ((0, 1), (1, 0)):
            try:
                group.gather([group.submit_one(taker, "total", made[maker])])
            except ValueLost as error:
                assert f"spread rank {taker}: a value of total was lost with its node" in str(error), error
                ended.append("value")
            except WorkerDied:
                ended.append("worker")
        assert sorted(ended) == ["value", "worker"], ended
        print("done")
    machines.shutdown()
"""


@pytest.mark.slow
@pytest.mark.parametrize("driver", [DRIVER, LOST], ids=["workers", "values"])
def test_what_a_lost_node_takes_with_it_is_noticed(tmp_path: Path, driver: str) -> None:
    """Its workers, also those that others wait for in a collective; and values that others were to fetch from it."""
    script = tmp_path / "driver.py"
    script.write_text(driver)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "done" in run.stdout.splitlines(), run.stdout + run.stderr
