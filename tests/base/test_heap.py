"""Freed memory goes back to the system, and small growth is left alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rlinf.base import heap

# In a process of its own: what other tests have freed must not count.
_SCRIPT = """
from rlinf.base import heap

memory = heap.FreedMemory()
memory.release_to_os()  # from here on
small = heap.resident_bytes()
blocks = [b"x" * 100_000 for _ in range(1000 * {thousands})]  # below the size for which glibc makes a mapping
last = blocks[-1]  # keeps the top of the heap where it is
del blocks
grown = heap.resident_bytes()
memory.release_to_os()
print(small, grown, heap.resident_bytes())
"""


def _sizes(thousands: int) -> tuple[int, int, int]:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT.format(thousands=thousands)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    small, grown, after = map(int, done.stdout.split())
    return small, grown, after


@pytest.mark.skipif(heap._malloc_trim() is None, reason="this C library keeps what it is given")
def test_what_was_freed_goes_back_once_it_is_much():
    small, grown, after = _sizes(8)
    assert grown - small > 700e6
    assert after - small < 100e6


@pytest.mark.skipif(heap._malloc_trim() is None, reason="this C library keeps what it is given")
def test_little_is_left_where_it_is():
    small, grown, after = _sizes(2)
    assert grown - small > 150e6
    assert after == grown


@pytest.mark.skipif(heap._malloc_trim() is None, reason="this C library keeps what it is given")
def test_what_each_update_needs_is_kept_for_the_next(monkeypatch):
    resident = iter([3000, 3100, 3700, 2500, 2600, 3100])
    released = []
    monkeypatch.setattr(heap, "resident_bytes", lambda: next(resident) * 2**20)
    memory = heap.FreedMemory()
    memory._trim = released.append
    calls = []
    for _ in range(6):
        memory.release_to_os()
        calls.append(len(released))
    assert calls == [0, 0, 1, 1, 1, 2], "the limit is 512 MiB above the first call, and above the first after a release"


def test_other_systems_go_on(monkeypatch):
    monkeypatch.setattr(heap, "_malloc_trim", lambda: None)
    memory = heap.FreedMemory()
    memory.release_to_os()
    assert memory._limit is None
