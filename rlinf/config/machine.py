"""The equipment of this machine, determined without torch or ray."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
from pathlib import Path


def cpu_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_count() -> int:
    """NVIDIA GPUs that this process may use; ``CUDA_VISIBLE_DEVICES`` hides the others."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = [device for device in Path("/dev").glob("nvidia[0-9]*") if device.name[6:].isdigit()]
    if visible is None:
        return len(gpus)
    return min(len(gpus), len([entry for entry in visible.split(",") if entry.strip() not in ("", "-1")]))


def memory_bytes() -> int:
    """Return the main memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


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
