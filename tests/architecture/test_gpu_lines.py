"""Every line that only a machine with a GPU runs is on `docs/gpu.md`, with what rehearses or runs it instead."""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "gpu.md"
WORDS = re.compile(r"cuda|nccl", re.IGNORECASE)
NOT_OURS = ("rlinf/train/rehearsal/", "rlinf/config/compat/")
"""What pretends that there is a GPU, and the names of other frameworks."""
HOW = ("rehearsed", "run", "not covered")


def gpu_lines() -> Counter[str]:
    """How many lines of each file speak of CUDA or NCCL, comments and docstrings aside."""
    found: Counter[str] = Counter()
    for path in sorted((ROOT / "rlinf").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(NOT_OURS):
            text = path.read_text(encoding="utf-8")
            lines = {token.start[0] for token in code_tokens(text) if WORDS.search(token.string)}
            if lines:
                found[name] = len(lines)
    return found


def code_tokens(text: str) -> list[tokenize.TokenInfo]:
    """Names and strings that are part of an expression."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    kept = []
    for number, token in enumerate(tokens):
        alone = token.type == tokenize.STRING and (number == 0 or tokens[number - 1].type in skipped)
        if token.type in (tokenize.NAME, tokenize.STRING) and not alone:
            kept.append(token)
    return kept


def rows() -> dict[str, tuple[int, str]]:
    """The table of the page: file -> (lines, how it is covered)."""
    cells = re.findall(r"^\| `(rlinf/[^`]+)` \| (\d+) \| [^|]+ \| ([^|:]+)", PAGE.read_text(encoding="utf-8"), re.M)
    return {file: (int(count), how.strip()) for file, count, how in cells}


def test_the_page_lists_every_gpu_line() -> None:
    listed = {file: count for file, (count, _) in rows().items()}
    assert listed == dict(gpu_lines())


def test_each_names_what_covers_it() -> None:
    assert {file: how for file, (_, how) in rows().items() if not how.startswith(HOW)} == {}
