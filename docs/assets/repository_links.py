"""Links of these pages to files of the repository, which are no pages, lead to the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\]\((\.\./[^)\s]*)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Rewrites every link that leaves the folder of the pages; without a ``repo_url`` its words stay alone."""

    def leads_out(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), match.group(1)))
        if path.startswith("docs/"):
            return match.group(0)
        return f"]({config.repo_url.rstrip('/')}/blob/main/{path})" if config.repo_url else f"](#){{ title='{path}' }}"

    return _LINK.sub(leads_out, markdown)
