"""`rlinf doctor --cluster`: whether the machines of a Ray cluster fit together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlinf.cluster.nodes import NodeFacts, differing_versions, examine_nodes
from rlinf.commands.doctor import Examined

_GB = 1e9
_SHARED_MEMORY_GB = 8.0


def examine_cluster(address: str) -> list[Examined]:
    """Collect a line for each machine, then what keeps them from working together."""
    folder = Path.cwd()
    return findings_of(examine_nodes(address, folder), folder)


def findings_of(nodes: Sequence[NodeFacts], folder: Path) -> list[Examined]:
    """Collect findings about the machines; the first is the driver's."""
    findings = []
    for node in nodes:
        detail = (
            f"{node.hostname}: {node.cpus:g} CPUs and {node.gpus:g} GPUs for Ray, "
            f"{node.shared_memory / _GB:.1f} GB of shared memory"
        )
        enough = node.shared_memory >= _SHARED_MEMORY_GB * _GB
        fix = f"{_SHARED_MEMORY_GB:g} GB: docker run --shm-size or --ipc host; an emptyDir of memory in Kubernetes"
        findings.append(Examined(f"machine {node.address}", "ok" if enough else "missing", detail, fix))
    for package, versions in sorted(differing_versions(nodes).items()):
        detail = ", ".join(f"{version} on {' '.join(addresses)}" for version, addresses in versions.items())
        findings.append(Examined(f"version of {package}", "broken", detail, "install the same one on every machine"))
    blind = [node.address for node in nodes if not node.sees_folder]
    if blind:
        fix = "put run.dir and policy.path on a disk that all machines see (docs/cluster.md, Disks)"
        findings.append(Examined("shared disk", "missing", f"{folder} is not there on {', '.join(blind)}", fix))
    else:
        findings.append(Examined("shared disk", "ok", f"{folder} is the same folder on all of them"))
    widths = {node.gpus for node in nodes if node.gpus}
    if len(widths) > 1:
        fix = "set cluster.gpus_per_node to the smallest"
        numbers = ", ".join(f"{number:g}" for number in sorted(widths))
        findings.append(Examined("GPUs of a machine", "missing", f"not the same everywhere: {numbers}", fix))
    return findings
