"""Examines the machines of a Ray cluster: their equipment, and how much of the driver's files they see."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import rlinf
from rlinf.cluster.connect import connect
from rlinf.cluster.errors import ClusterError
from rlinf.schema.cluster import ClusterConfig

PACKAGES = ("torch", "ray", "transformers", "numpy", "vllm", "megatron-core")
"""Whose versions must be the same on all machines that have them, as that of rlinf itself."""


@dataclass(frozen=True)
class NodeFacts:
    """One machine, as a task on it found it."""

    address: str
    hostname: str
    cpus: float
    """As Ray counts them."""
    gpus: float
    versions: Mapping[str, str]
    """Of Python, rlinf and those of :data:`PACKAGES` that are installed."""
    shared_memory: int
    """Free bytes of ``/dev/shm``; 0 where there is none."""
    sees_folder: bool
    """Whether the driver's folder is the same one here."""


def examine_nodes(address: str, folder: Path, *, timeout_s: float = 120.0) -> list[NodeFacts]:
    """Collect the facts of every machine of the cluster at ``address``; the driver's own comes first.

    :raises UnreachableError: nothing answers at the address.
    :raises ClusterError: a machine does not answer within the time.
    """
    mark = folder / f".rlinf-doctor-{uuid.uuid4().hex}"
    mark.touch()
    try:
        with connect(ClusterConfig(address=address)):
            return _facts_of_all(str(mark), timeout_s)
    finally:
        mark.unlink()


def _facts_of_all(mark: str, timeout_s: float) -> list[NodeFacts]:
    here = ray.get_runtime_context().get_node_id()
    nodes = sorted((node for node in ray.nodes() if node["Alive"]), key=lambda node: node["NodeID"] != here)
    remote_facts = ray.remote(_facts)
    tasks = []
    for node in nodes:
        node_affinity = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        has = node["Resources"]
        amounts = (node["NodeManagerAddress"], has.get("CPU", 0.0), has.get("GPU", 0.0))
        tasks.append(remote_facts.options(num_cpus=0, scheduling_strategy=node_affinity).remote(*amounts, mark))
    _, missing = ray.wait(tasks, num_returns=len(tasks), timeout=timeout_s)
    if missing:
        silent = [node["NodeManagerAddress"] for node, task in zip(nodes, tasks, strict=True) if task in missing]
        raise ClusterError(f"no answer within {timeout_s:g} s from {', '.join(silent)}")
    results = []
    for node, task in zip(nodes, tasks, strict=True):
        try:
            results.append(ray.get(task))
        except RayError as error:
            raise ClusterError(f"{node['NodeManagerAddress']}: {str(error).strip().splitlines()[-1]}") from error
    return results


def _facts(address: str, cpus: float, gpus: float, mark: str) -> NodeFacts:
    versions = {"python": platform.python_version(), "rlinf": rlinf.__version__}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    shared = Path("/dev/shm")
    free = shutil.disk_usage(shared).free if shared.is_dir() else 0
    return NodeFacts(address, socket.gethostname(), cpus, gpus, versions, free, Path(mark).exists())


def differing_versions(nodes: Sequence[NodeFacts]) -> dict[str, dict[str, list[str]]]:
    """Package -> version -> addresses, of packages that are not the same wherever they are installed."""
    results: dict[str, dict[str, list[str]]] = {}
    for node in nodes:
        for package, version in node.versions.items():
            results.setdefault(package, {}).setdefault(version, []).append(node.address)
    return {package: versions for package, versions in results.items() if len(versions) > 1}
