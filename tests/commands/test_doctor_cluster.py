"""What `rlinf doctor --cluster` reports of machines; tests/cluster/test_nodes.py calls real ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlinf.cluster.nodes import NodeFacts
from rlinf.commands.doctor_cluster import findings_of

VERSIONS = {"python": "3.11.7", "torch": "2.13.0"}
NODE = NodeFacts("10.0.0.1", "first", 64, 8, VERSIONS, 64 << 30, sees_folder=True)


def states(*nodes: NodeFacts) -> dict[str, str]:
    return {finding.name: finding.state for finding in findings_of(nodes, Path("/data/runs"))}


def test_machines_that_fit_together() -> None:
    other = replace(NODE, address="10.0.0.2", hostname="second")
    assert states(NODE, other) == {"machine 10.0.0.1": "ok", "machine 10.0.0.2": "ok", "shared disk": "ok"}


def test_what_differs_between_them_is_named() -> None:
    other = replace(
        NODE,
        address="10.0.0.2",
        gpus=4,
        versions={**VERSIONS, "torch": "2.12.0", "vllm": "0.20.0"},
        shared_memory=64 << 20,
        sees_folder=False,
    )
    findings = {finding.name: finding for finding in findings_of([NODE, other], Path("/data/runs"))}
    assert findings["version of torch"].state == "broken"
    assert findings["version of torch"].detail == "2.13.0 on 10.0.0.1, 2.12.0 on 10.0.0.2"
    assert "version of vllm" not in findings, "one machine alone has it"
    assert findings["machine 10.0.0.2"].state == "missing"
    assert findings["shared disk"].detail == "/data/runs is not there on 10.0.0.2"
    assert findings["GPUs of a machine"].detail == "not the same everywhere: 4, 8"
