"""What MkDocs asks while it builds the site: links to files of the repository, and the list of decision records."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"\]\((\.\./[^)\s]*)\)")


def on_config(config: Any) -> Any:
    """Every decision record is in the navigation, by its title."""
    records = sorted((Path(config.docs_dir) / "decisions").glob("*.md"))
    titles = [record.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for record in records]
    entries = [{title: f"decisions/{record.name}"} for title, record in zip(titles, records, strict=True)]
    config.nav.append({"Decisions": entries})
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rewrites every link that leaves the folder of the pages; without a ``repo_url`` its words stay alone."""

    def leads_out(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match.group(1)))
        if path.startswith("docs/"):
            return match.group(0)
        return f"]({config.repo_url.rstrip('/')}/blob/main/{path})" if config.repo_url else f"](#){{ title='{path}' }}"

    return _LINK.sub(leads_out, markdown)
