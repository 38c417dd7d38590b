"""docs/config.md matches the schema."""

from __future__ import annotations

import re
from pathlib import Path

from rlinf.config.names import leaves
from rlinf.config.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "config.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: python -m rlinf.config.reference"


def test_every_key_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [key for key in leaves() if f"`{key}`" not in page] == []


def test_every_key_has_a_meaning() -> None:
    rows = [re.split(r"(?<!\\)\|", line) for line in PAGE.read_text(encoding="utf-8").splitlines()]
    meanings = {cells[1].strip(" `"): cells[5].strip() for cells in rows if len(cells) == 7}
    assert [key for key in leaves() if not meanings[key]] == []
