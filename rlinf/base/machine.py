"""The equipment of this machine, determined without torch or ray."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import math
import os
from contextlib import suppress
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def cpu_count() -> int:
    """Return how many cores this process may use: the machine's, or the limit of a container or batch job."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [text.split() for text in _limits("cpu", "cpu.max", "cpu.cfs_quota_us")]
    # Version 2 has both numbers in one file. A quota is in microseconds a period, of 100,000 unless it is changed.
    allowed = [int(words[0]) / int(words[1] if words[1:] else 100_000) for words in quotas if words[0].isdecimal()]
    return max(1, min(cores, *(math.ceil(number) for number in allowed))) if allowed else cores


def gpu_count() -> int:
    """NVIDIA GPUs that this process may use; ``CUDA_VISIBLE_DEVICES`` hides the others."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [device for device in Path("/dev").glob("nvidia[0-9]*") if device.name[6:].isdigit()]
    if visible is None:
        return len(gpus)
    return min(len(gpus), len([entry for entry in visible.split(",") if entry.strip() not in ("", "-1")]))


def memory_bytes() -> int:
    """Return the bytes of memory that this process may use: the machine's, or the limit of a container or batch job."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [text.strip() for text in _limits("memory", "memory.max", "memory.limit_in_bytes")]
    return min([machine, *(int(limit) for limit in limits if limit.isdecimal())])


def _limits(controller: str, name: str, name_of_version_1: str) -> list[str]:
    """Return what the files of a limit contain, for this process's control group and those around it (Linux)."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return []
    contents = []
    for _, controllers, path in groups:
        if controllers and controller not in controllers.split(","):
            continue
        folder = _CGROUPS / controllers
        file = name_of_version_1 if controllers else name
        inner = folder / path.lstrip("/")
        for group in [inner, *inner.parents]:
            with suppress(OSError):  # the root of version 2 has no limits
                contents.append((group / file).read_text())
            if group == folder:
                break
    return contents


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether the processor has instructions for products of bfloat16 matrices (AMX or AVX-512 BF16; Linux tells)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    return not {"amx_bf16", "avx512_bf16"}.isdisjoint(flags)


def installed(module: str) -> bool:
    """Whether a top-level module could be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
