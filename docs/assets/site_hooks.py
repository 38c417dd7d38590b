"""Hooks of MkDocs for the build of the site: links to files of the repository, the list of decision records, and tables
whose cells show their column on a phone, and pictures that `make docs` took (screenshots.py)."""

from __future__ import annotations

import posixpath
import re
import shutil
from pathlib import Path
from typing import Any

_REFERENCES = ("config.md", "metrics.md")
"""Pages of wide tables: the table of contents leaves them its space."""
_WIDE = 3
"""Columns from which on a table does not fit a phone."""
_KINDS = {"advantage": "Advantage estimators", "loss": "Policy losses", "off_policy": "Off-policy"}
"""Beginning of the file name of an algorithm's page -> part of the navigation."""
_TABLE = re.compile(r"<table>\n<thead>.*?</table>", re.DOTALL)
_CELL = re.compile(r"<(th|td)\b([^>]*)>(.*?)</\1>", re.DOTALL)
_SCREENS = re.compile(r"<!-- screens: (.*?) -->")
_ONE_SCREEN = re.compile(r'(\w+) "([^"]*)"')
_LINK = re.compile(r"\]\((\.\./[^)\s]*)\)")


def on_config(config: Any) -> Any:
    """Decision records and the pages of algorithms are in the navigation, by their titles."""
    records = sorted((Path(config.docs_dir) / "decisions").glob("*.md"))
    titles = [record.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for record in records]
    titles = [re.sub(r"^(\d+):? ", r"\1: ", title) for title in titles]
    entries = [{title: f"decisions/{record.name}"} for title, record in zip(titles, records, strict=True)]
    (explanations,) = [part["Explanations"] for part in config.nav if "Explanations" in part]
    explanations.append({"Decisions": entries})
    (algorithms,) = [part["Algorithms"] for part in config.nav if "Algorithms" in part]
    for kind, title in _KINDS.items():
        names = sorted(path.name for path in (Path(config.docs_dir) / "algorithms").glob(f"{kind}_*.md"))
        pages = [{name.removeprefix(f"{kind}_").removesuffix(".md"): f"algorithms/{name}"} for name in names]
        algorithms.append({title: pages})
    return config


def on_page_content(html: str, *, page: Any, config: Any, files: Any) -> str:
    """Wide tables carry the title of their first column; cells have the title of theirs (site.css)."""
    return _TABLE.sub(_labelled, html)


def _labelled(match: re.Match[str]) -> str:
    head, body = match[0].split("</thead>")
    titles = [re.sub(r"<[^>]*>", "", cell[2]) for cell in _CELL.findall(head)]
    rows = []
    for row in body.split("</tr>"):
        column = iter(titles)
        rows.append(_CELL.sub(lambda cell, column=column: f'<td data-label="{next(column, "")}">{cell[3]}</td>', row))
    wide = f'<table data-first="{titles[0]}">' if len(titles) >= _WIDE else "<table>"
    return head.replace("<table>", wide) + "</thead>" + "</tr>".join(rows)


def on_post_build(*, config: Any) -> None:
    """The pictures that are there go into the site."""
    target = Path(config.site_dir) / "assets" / "screens"
    target.mkdir(parents=True, exist_ok=True)
    for picture in _taken(config).glob("*.png"):
        shutil.copy(picture, target)


def _taken(config: Any) -> Path:
    """Where `make docs` leaves its pictures."""
    return Path(config.docs_dir).parent / "build" / "screens"


def _pictures(match: re.Match[str], page: Any, config: Any) -> str:
    """Each picture in light and dark; nothing where none was taken (without Chromium)."""
    figures = []
    for name, caption in _ONE_SCREEN.findall(match[1]):
        if (_taken(config) / f"{name}-dark.png").exists():
            up = "../" * page.url.count("/")
            images = (
                f'<img class="rl-{scheme}" src="{up}assets/screens/{name}-{scheme}.png" alt="{caption}" loading="lazy">'
                for scheme in ("light", "dark")
            )
            figures.append(f"<figure>{''.join(images)}<figcaption>{caption}</figcaption></figure>")
    return f'<div class="rl-screens">{"".join(figures)}</div>' if figures else ""


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rewrites every link that leaves the folder of the pages; without a ``repo_url`` its words stay alone."""
    if page.file.src_uri in _REFERENCES:
        page.meta["hide"] = ["toc"]

    def leads_out(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match.group(1)))
        if path.startswith("docs/"):
            return match.group(0)
        return f"]({config.repo_url.rstrip('/')}/blob/main/{path})" if config.repo_url else f"](#){{ title='{path}' }}"

    markdown = _SCREENS.sub(lambda match: _pictures(match, page, config), markdown)
    return _LINK.sub(leads_out, markdown)
