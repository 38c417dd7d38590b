"""What test processes share: one Ray, one gang of learner processes, and which tests run beside each other.

With pytest-xdist (``--dist loadgroup``) the tests of a group run in one process, in their order. Tests that need Ray or
the gang of learners form a group each, so that either starts once; every other file is a group of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlinf.cluster import Cluster, connect
from rlinf.config.schema.cluster import ClusterConfig

# The longest groups first: the short ones fill in at the end.
_FAULTS = Path(__file__).parent / "faults"
_SHARED = {"ray_session": "ray", "gang": "gang"}


@pytest.fixture(scope="session")
def ray_session() -> Iterator[Cluster]:
    """A Ray that stays up: every run of this process with the ray backend joins it."""
    with connect(ClusterConfig(start_timeout_s=180.0)) as cluster:
        yield cluster


def _group(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    return next((group for fixture, group in _SHARED.items() if fixture in fixtures), item.path.as_posix())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = list(_SHARED.values())
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
        if _FAULTS in item.path.parents:
            item.add_marker(pytest.mark.faults)
    items.sort(key=lambda item: order.index(groups[item]) if groups[item] in order else len(order))
