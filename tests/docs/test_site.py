"""What the site's build adds to the pages: pictures where they were taken, and cells that name their columns."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / "assets" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    return load("site_hooks")


def page(path: str) -> SimpleNamespace:
    return SimpleNamespace(url=path.replace(".md", ".html"), file=SimpleNamespace(src_uri=path), meta={})


def test_pictures_stand_where_they_were_taken(hooks: ModuleType, tmp_path: Path) -> None:
    config = SimpleNamespace(docs_dir=str(tmp_path / "docs"), site_dir=str(tmp_path / "site"), repo_url=None)
    text = 'Before.\n\n<!-- screens: list "All runs" -->\n'
    given = {"page": page("tutorials/first_run.md"), "config": config, "files": None}
    assert hooks.on_page_markdown(text, **given).strip() == "Before."
    taken = tmp_path / "build" / "screens"
    taken.mkdir(parents=True)
    for scheme in ("light", "dark"):
        (taken / f"list-{scheme}.png").write_bytes(b"")
    assert 'src="../assets/screens/list-dark.png" alt="All runs"' in hooks.on_page_markdown(text, **given)
    hooks.on_post_build(config=config)
    assert {path.name for path in (tmp_path / "site" / "assets" / "screens").iterdir()} == {
        "list-light.png",
        "list-dark.png",
    }


def test_every_picture_that_a_page_shows_is_taken() -> None:
    views = load("screenshots").VIEWS
    shown = re.findall(r"<!-- screens: (.*?) -->", "".join(path.read_text() for path in DOCS.rglob("*.md")))
    names = [name for marker in shown for name in re.findall(r'(\w+) "', marker)]
    assert names
    assert set(names) <= set(views)


def test_cells_name_their_column(hooks: ModuleType) -> None:
    def shown(titles: str, cells: str) -> str:
        head = "\n".join(f"<th>{title}</th>" for title in titles.split())
        body = "\n".join(f"<td>{cell}</td>" for cell in cells.split())
        table = f"<table>\n<thead>\n<tr>\n{head}\n</tr>\n</thead>\n<tbody>\n<tr>\n{body}\n</tr>\n</tbody>\n</table>"
        html: str = hooks.on_page_content(table, page=page("config.md"), config=None, files=None)
        return html

    html = shown("key type meaning", "a b c")
    assert '<table data-first="key">' in html
    assert '<td data-label="key">a</td>\n<td data-label="type">b</td>' in html
    assert "<table>" in shown("you read", "a b"), "two columns fit a phone as they are"
