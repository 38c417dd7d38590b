"""The ports that Ray's agents are given, and the room for its objects."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlinf.cluster import ray_cluster, ray_session


def test_ports_are_free_and_none_that_the_system_gives_to_others() -> None:
    ports = ray_session._free_ports(20)
    assert len(set(ports)) == 20
    assert all(20_000 <= port < ray_session._first_dealt_out() for port in ports)


def test_a_port_that_is_taken_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        dealt_out = tmp_path / "range"
        dealt_out.write_text(f"{port + 1}\t60999\n")
        monkeypatch.setattr(ray_session, "_DEALT_OUT", dealt_out)
        monkeypatch.setattr(ray_session, "_FIRST_PORT", port)
        found = ray_session._free_ports(2)
    assert len({port, *found}) == 3


def test_where_the_system_does_not_tell_any_port_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "_DEALT_OUT", tmp_path / "none")
    assert len(set(ray_session._free_ports(3))) == 3


def test_the_object_store_is_a_tenth_of_the_memory_where_shared_memory_has_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tenth = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 10 >> 20
    monkeypatch.setattr(ray_cluster, "_SHARED_MEMORY", tmp_path)
    for free_mb, size in ((tenth * 4, max(256, tenth)), (600, 300), (64, 256)):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free_mb: SimpleNamespace(free=free << 20))
        assert ray_cluster._store_mb() == size
    monkeypatch.setattr(ray_cluster, "_SHARED_MEMORY", tmp_path / "not there")
    assert ray_cluster._store_mb() == 256


def test_variables_of_others_are_left_alone_while_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's threads read the environment meanwhile: to clear and set all of it crashed one start of 300."""
    monkeypatch.setenv("RLINF_TEST_PRESENT", "before")
    changed: set[bytes] = set()
    watching = True

    def watch(event: str, arguments: tuple[bytes, ...]) -> None:
        if watching and event in ("os.putenv", "os.unsetenv"):
            changed.add(arguments[0])

    sys.addaudithook(watch)  # for ever, but idle after this test
    with ray_session._environment({"RLINF_TEST_PRESENT": "within", "RLINF_TEST_ABSENT": "1"}):
        assert os.environ["RLINF_TEST_PRESENT"] == "within"
        assert os.environ["RLINF_TEST_ABSENT"] == "1"
    watching = False
    assert changed == {b"RLINF_TEST_PRESENT", b"RLINF_TEST_ABSENT"}
    assert os.environ["RLINF_TEST_PRESENT"] == "before"
    assert "RLINF_TEST_ABSENT" not in os.environ
