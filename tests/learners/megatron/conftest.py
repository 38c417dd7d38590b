"""The gang of processes; modules beside the tests are imported by their short names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from gang import Gang

pytest.importorskip("megatron.core.package_info", reason="megatron-core is not installed")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def gang() -> Iterator[Gang]:
    made = Gang(4)
    yield made
    made.close()
