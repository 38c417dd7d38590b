"""What a container or a batch job may use of a machine (Linux control groups)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlinf.base import machine

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in the role of /sys/fs/cgroup, on a machine of 64 cores."""
    monkeypatch.setattr(machine, "_CGROUPS", tmp_path)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(64)))
    return tmp_path


def belongs_to(monkeypatch: pytest.MonkeyPatch, lines: str) -> None:
    """Let /proc/self/cgroup contain ``lines``."""
    read = Path.read_text

    def read_text(path: Path, *arguments: str, **options: str) -> str:
        return lines if str(path) == "/proc/self/cgroup" else read(path, *arguments, **options)

    monkeypatch.setattr(Path, "read_text", read_text)


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_without_limits_all_of_the_machine_counts(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    belongs_to(monkeypatch, "0::/\n")
    write(groups, memory__max="max\n", cpu__max="max 100000\n")
    assert machine.memory_bytes() == PHYSICAL
    assert machine.cpu_count() == 64


def test_limits_of_a_container(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`docker run --memory 1g --cpus 1.5`, version 2: the container's group is the root that it sees."""
    belongs_to(monkeypatch, "0::/\n")
    write(groups, memory__max=f"{2**30}\n", cpu__max="150000 100000\n")
    assert machine.memory_bytes() == 2**30
    assert machine.cpu_count() == 2


def test_the_smallest_limit_of_all_groups_around_the_process_counts(
    groups: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch job's limit is that of a group above the step's."""
    belongs_to(monkeypatch, "0::/system.slice/job_7/step_0\n")
    write(groups / "system.slice/job_7/step_0", memory__max="max\n", cpu__max="max 100000\n")
    write(groups / "system.slice/job_7", memory__max=f"{2**31}\n", cpu__max="400000 100000\n")
    assert machine.memory_bytes() == 2**31
    assert machine.cpu_count() == 4


def test_limits_of_version_1(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container the path is the host's, and the files are at the root."""
    belongs_to(monkeypatch, "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n")
    write(groups / "memory", memory__limit_in_bytes=f"{2**30}\n")
    write(groups / "cpu,cpuacct", cpu__cfs_quota_us="50000\n")
    assert machine.memory_bytes() == 2**30
    assert machine.cpu_count() == 1


def test_a_quota_of_version_1_that_is_unlimited(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    belongs_to(monkeypatch, "4:memory:/\n3:cpu,cpuacct:/\n")
    write(groups / "memory", memory__limit_in_bytes="9223372036854771712\n")
    write(groups / "cpu,cpuacct", cpu__cfs_quota_us="-1\n")
    assert machine.memory_bytes() == PHYSICAL
    assert machine.cpu_count() == 64


def test_systems_without_control_groups(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: Path, *arguments: str, **options: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", refused)
    assert machine.memory_bytes() == PHYSICAL
    assert machine.cpu_count() == 64
