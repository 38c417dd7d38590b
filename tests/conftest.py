"""What test processes share: one Ray, one gang of learner processes, and which tests run at the same time.

With pytest-xdist the tests that need Ray run in one process and those of the gang of learners in one, so that either
starts once; every other file is a unit of its own. The long units come first, and short ones fill in at the end.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from rlinf.cluster import Cluster, connect
from rlinf.schema.cluster import ClusterConfig

_HERE = Path(__file__).parent
_FIRST = ("ray", "gang")
_LONG = tuple(f"tests/{name}/" for name in ("runs", "rollouts", "models", "learners", "envs", "samplers", "report"))
"""Folders with the longest files, which come next: a long one at the end keeps one process busy and the others idle."""


@pytest.fixture(scope="session")
def ray_session() -> Iterator[Cluster]:
    """A Ray that stays up: every run of this process with the ray backend joins it."""
    with connect(ClusterConfig(start_timeout_s=180.0)) as cluster:
        yield cluster


@pytest.fixture(scope="session", autouse=True)
def _no_waits_for_the_disk() -> Iterator[None]:
    """Leave out what only a loss of power could show: a run of a test flushes some thirty files to the disk."""
    with mock.patch.object(os, "fsync", return_value=None):
        yield


@functools.cache
def _unit(path: str) -> str:
    """What runs together with the tests of a file."""
    text = (_HERE.parent / path).read_text(encoding="utf-8")
    # The gang and other ranks are forked from one process that has loaded what they need.
    if path.startswith("tests/parallel/") or "start_ranks" in text:
        return "gang"
    if path.startswith("tests/cluster/") or "ray_session" in text:
        return "ray"
    return path


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/faults/"):
            item.add_marker(pytest.mark.faults)
    if "PYTEST_XDIST_WORKER" in os.environ and "hypothesis" in sys.modules:
        _draw_without_constants_of_the_source()
    units = {item: _unit(item.nodeid.partition("::")[0]) for item in items}
    items.sort(key=lambda item: _rank(units[item]))


def _rank(unit: str) -> int:
    if unit in _FIRST:
        return _FIRST.index(unit)
    return len(_FIRST) + (not unit.startswith(_LONG))


def _draw_without_constants_of_the_source() -> None:
    """Spare each process the reading of 900 modules; `make test-nightly`, in one process, draws from them too."""
    from hypothesis.internal.conjecture import providers

    mock.patch.object(providers, "_get_local_constants", return_value=providers._local_constants).start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End Ray, or the gang, with the last test that needs it: idle, either takes a twentieth of a core."""
    unit = _unit(item.nodeid.partition("::")[0])
    if unit in _FIRST and nextitem is not None and _unit(nextitem.nodeid.partition("::")[0]) != unit:
        item.session._setupstate.teardown_exact(None)


def pytest_collection_finish() -> None:
    """Leave half a million objects that stay, modules and tests, out of every later collection of garbage."""
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler of ``--dist loadscope``, with units instead of scopes."""
    from xdist.scheduler import LoadScopeScheduling

    class ByUnit(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _unit(nodeid.partition("::")[0])

    return ByUnit(config, log)
