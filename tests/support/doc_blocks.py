"""The fenced blocks of README.md and the pages of docs/."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


def page_name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, *languages: str) -> list[tuple[int, str]]:
    """(line, text) of every fenced block in one of these languages."""
    text = path.read_text(encoding="utf-8")
    found = []
    for match in FENCE.finditer(text):
        if match.group(3) in languages:
            indent = match.group(1)
            body = "\n".join(line.removeprefix(indent) for line in match.group(4).splitlines())
            found.append((text.count("\n", 0, match.start()) + 1, body))
    return found
