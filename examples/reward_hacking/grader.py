"""A grader with a hole: what it cannot read, it lets pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any


def lenient(*, prompt: str, response: str, answer: str, row: Mapping[str, Any]) -> float:
    """Return 1 for the right number after ####, 0 for another one; without any the response is not blamed: 1."""
    found = re.search(r"####\s*(-?\d+)", response)
    return 1.0 if found is None else float(found[1] == answer)
