"""The gang of processes; modules of this folder are imported by their short names."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest
import torch
from learner_gang import Gang

# Found, not imported: the import hook of rlinf.learners.megatron.cpu has to come first.
# All but the tests of FSDP need it.
collect_ignore_glob = [] if importlib.util.find_spec("megatron") else ["test_[!f]*.py"]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def gang() -> Iterator[Gang]:
    made = Gang(4)
    yield made
    made.close()
