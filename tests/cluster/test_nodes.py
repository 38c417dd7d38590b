"""Facts of machines through Ray: two of them, imitated on this one by Ray's own test cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

DRIVER = """
from pathlib import Path

from ray.cluster_utils import Cluster as Machines

from rlinf.cluster.nodes import differing_versions, examine_nodes

if __name__ == "__main__":
    machines = Machines(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    machines.add_node(num_cpus=2)
    nodes = examine_nodes(machines.address, Path.cwd())
    assert [node.cpus for node in nodes] == [4.0, 2.0], nodes
    assert all(node.sees_folder for node in nodes)
    assert differing_versions(nodes) == {}
    assert not list(Path.cwd().glob(".rlinf-doctor-*"))
    machines.shutdown()
    print("done")
"""


@pytest.mark.slow
def test_every_machine_answers(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    run = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300, cwd=tmp_path
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "done" in run.stdout.splitlines(), run.stdout + run.stderr
