"""The pages of docs/ whose examples are executed: they print what the pages show."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("page", "at_least"), [("life_of_a_batch.md", 40)])
def test_the_examples_of_a_page_are_true(page: str, at_least: int) -> None:
    found = doctest.testfile(str(DOCS / page), module_relative=False, encoding="utf-8")
    assert found.failed == 0
    assert found.attempted >= at_least
