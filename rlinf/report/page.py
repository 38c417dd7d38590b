"""One HTML file with its styles, its scripts, the plotting library and its data inside."""

from __future__ import annotations

import html
import importlib.util
import json
import math
from collections.abc import Mapping
from importlib import resources
from typing import Any

from rlinf.report.runs import ReportError

# In the order in which they run: each later one uses the earlier ones.
SCRIPTS = (
    "base.js",
    "tables.js",
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


def plotting_installed() -> bool:
    return importlib.util.find_spec("plotly") is not None


def render(title: str, payload: Mapping[str, Any], *, plotting: bool = True) -> str:
    """Build the page; a payload without plots needs no ``plotting``. Raises :class:`ReportError` without the
    library."""
    if not plotting_installed():
        raise ReportError("reports need plotly: pip install plotly")
    from plotly.offline import get_plotlyjs

    parts = {
        "title": html.escape(title),
        "style": _asset("style.css"),
        "plotly": get_plotlyjs() if plotting else "",
        "data": embedded(payload),
        "scripts": "\n".join(_asset(name) for name in SCRIPTS),
    }
    page = _asset("page.html")
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text)
    return page


def embedded(payload: Mapping[str, Any]) -> str:
    """JSON that may stand inside a script element: no text of a sample can close it.

    >>> embedded({"a": "</script>", "b": float("nan")})
    '{"a":"\\\\u003c/script>","b":null}'
    """
    return json.dumps(_finite(payload), separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        # Seven digits are more than a plot can show, and a third of the size.
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(child) for child in value]
    return value


def _asset(name: str) -> str:
    return (resources.files("rlinf.report") / "assets" / name).read_text(encoding="utf-8")
