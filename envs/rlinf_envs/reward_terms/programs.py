"""The program in a response: in fenced blocks, in tags, or between lines of prose."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

from rlinf_envs.extraction import last_tag, without_thoughts

_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+)?(`{3,}|~{3,})[ \t]*\{?\.?([^`\s},:]*)[^`]*")
_PYTHON = re.compile(r"(?:i?python|py)[\d.]*", re.IGNORECASE)
_TAGS = (("[PYTHON]", "[/PYTHON]"), ("[BEGIN]", "[DONE]"))
_DEFINED = re.compile(r"^(?:(?:async[ ]+)?def|class)[ ]+(\w+)", re.MULTILINE)
_IMPORTED = re.compile(r"^(?:from[ ]+[\w.]+[ ]+)?import[ ]+([^\n#]+)", re.MULTILINE)
_READS = re.compile(r"\binput\b|\bstdin\b|^[ \t]*\w+\(\)[ \t]*$", re.MULTILINE)
_DOES = re.compile(r"=|\w\(|^\s*(?:def|class|import|from|for|while|if|try|with|return|pass)\b", re.MULTILINE)
_WORD = re.compile(r"\w+")
_CODE_LINE = re.compile(
    r"[ \t)\]}]|(?:async[ ]+)?def[ ]+\w+|class[ ]+\w+[(:]|import[ ]+\w+[\w., ]*$|from[ ]+[\w.]+[ ]+import\b|[@#]\w?"
    r"|(?:if|elif|for|while|with|try|else|except|finally)\b[^\n]*:(?:\s|$)|[\w.,\[\]'\" ]{1,80}[-+*/|&]?=[^=]"
    r"|[\w.]{1,80}\([^\n]*$|assert[ ]|raise[ ]|return\b|pass$|\"\"\"|'''"
)


@dataclass(frozen=True)
class _Block:
    language: str
    text: str


def program_of(response: str) -> str:
    """Return the program behind the thoughts; without fences and tags, the lines from the first to the last of code.

    Blocks that are marked as Python, or define, import or read, count before others. The last of them counts, unless
    it only shows the use of an earlier one (``print(f(2))``); earlier blocks join it if they define what it does not.
    """
    text = without_thoughts(response).replace("\r\n", "\n")
    blocks = _blocks(text)
    python = [block.text for block in blocks if _is_python(block)]
    candidates = python or [block.text for block in blocks if not block.language] or [block.text for block in blocks]
    if candidates:
        return _joined(candidates)
    for opening, closing in _TAGS:
        if opening in text:
            return _code_in(text.rpartition(opening)[2].partition(closing)[0])
    return _code_in(last_tag(text) or text)


def _is_python(block: _Block) -> bool:
    if block.language:
        return _PYTHON.fullmatch(block.language) is not None
    return any(pattern.search(block.text) for pattern in (_DEFINED, _IMPORTED, _READS))


def _blocks(text: str) -> list[_Block]:
    """Fenced blocks, without what indents or quotes them; one that is never closed goes to the end."""
    results: list[_Block] = []
    mark, language, lines = "", "", list[str]()
    for line in text.split("\n"):
        opening = None if mark else _FENCE.fullmatch(line)
        if opening is not None:
            mark, language, lines = opening[1], opening[2], []
        elif mark:
            content = line.rstrip()
            closes = content.endswith(mark)
            content = content.rstrip(mark[0]) if closes else line
            if not closes or content.strip(" \t>"):
                lines.append(content)
            if closes:
                results.append(_Block(language, _plain(lines)))
                mark = ""
    return [*results, _Block(language, _plain(lines))] if mark else results


def _plain(lines: list[str]) -> str:
    if lines and all(line.lstrip().startswith(">") for line in lines if line.strip()):
        lines = [line.lstrip().removeprefix(">") for line in lines]
    return textwrap.dedent("\n".join(lines)) + "\n"


def _joined(blocks: list[str]) -> str:
    first: dict[str, int] = {}  # name, or line -> the first block that defines or has it
    for index, block in enumerate(blocks):
        for name in (*_DEFINED.findall(block), *_lines(block)):
            first.setdefault(name, index)
    last = next((index for index in range(len(blocks) - 1, 0, -1) if not _shows_use(blocks[index], index, first)), 0)
    program = [blocks[last]]
    missing = set(_WORD.findall(blocks[last])) - _offered(blocks[last])
    for block in reversed(blocks[:last]):
        offered = _offered(block)
        if offered & missing:
            program.append(block)
            missing = (missing | set(_WORD.findall(block))) - offered
    return "\n".join(reversed(program))


def _shows_use(block: str, index: int, first: Mapping[str, int]) -> bool:
    """Whether a block is an example of use, an excerpt, or an input or output, and no program."""
    if not _DOES.search(block) or all(first[line] < index for line in _lines(block)):
        return True
    if _DEFINED.search(block) or _READS.search(block):
        return False
    return any(first.get(name, index) < index for name in _WORD.findall(block))


def _lines(block: str) -> list[str]:
    return [line.strip() for line in block.split("\n") if line.strip()]


def _offered(block: str) -> set[str]:
    """Names that a block defines or imports."""
    imported = {word for names in _IMPORTED.findall(block) for word in _WORD.findall(names)}
    return {*_DEFINED.findall(block), *imported}


def _code_in(text: str) -> str:
    lines = text.strip("\n").split("\n")
    code = [index for index, line in enumerate(lines) if line.strip() and _CODE_LINE.match(line)]
    return "\n".join(lines[code[0] : code[-1] + 1]) if code else text
