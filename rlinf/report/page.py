"""One HTML file with its styles, its scripts, the plotting library and its data inside."""

from __future__ import annotations

import html
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Any

# In the order in which they run: each later one uses the earlier ones.
SCRIPTS = (
    "base.js",
    "tables.js",
    "plots.js",
    "bars.js",
    "parallel.js",
    "curves.js",
    "episodes.js",
    "samples.js",
    "evaluations.js",
    "timeline.js",
    "run.js",
    "sweep.js",
    "index.js",
    "live.js",
    "start.js",
)


def render(title: str, payload: Mapping[str, Any]) -> str:
    """Build the page."""
    parts = {
        "title": html.escape(in_utf8(title)),
        "plot_style": _asset("uplot/uPlot.min.css"),
        "style": _asset("style.css"),
        # The licence stays with each copy of the library.
        "plots": f"/*\n{_asset('uplot/LICENSE')}*/\n{_asset('uplot/uPlot.iife.min.js')}",
        "data": embedded(payload),
        "scripts": "\n".join(_asset(name) for name in SCRIPTS),
    }
    page = _asset("page.html")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    return page


def embedded(payload: Mapping[str, Any]) -> str:
    """JSON that may stand inside a script element: no text of a sample can close it.

    ``unpacked`` in base.js is what reads it.

    >>> embedded({"a": "</script>", "b": float("nan")})
    '{"a":"\\\\u003c/script>","b":null}'
    """
    text = json.dumps(_compact(payload), separators=(",", ":"), ensure_ascii=False)
    return in_utf8(text.replace("<", "\\u003c"))


def in_utf8(text: str) -> str:
    """Escape what UTF-8 has no bytes for: halves of a pair, as names of files that are no UTF-8 have them.

    >>> in_utf8("run\\udcff")
    'run\\\\udcff'
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


_NULLS = "nulls"


def _compact(value: Any) -> Any:
    if isinstance(value, float):
        # Seven digits are more than a plot can show, and a third of the size.
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        if list(value) == [_NULLS]:  # a record's own: in a list, so that it is not taken for a number of nulls
            return {_NULLS: [_compact(value[_NULLS])]}
        return {str(name): _compact(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return list(_nulls_counted([_compact(child) for child in value]))
    return value


def _nulls_counted(values: Sequence[Any]) -> Iterator[Any]:
    """Yield ``values`` with the number of nulls where many follow each other: a warm start has no metrics of training.

    >>> list(_nulls_counted([None, None, None, None, 0.5, None]))
    [{'nulls': 4}, 0.5, None]
    """
    for missing, run in itertools.groupby(values, lambda value: value is None):
        items = list(run)
        yield from [{_NULLS: len(items)}] if missing and len(items) > 3 else items


def _asset(name: str) -> str:
    return (resources.files("rlinf.report") / "assets" / name).read_text(encoding="utf-8")
