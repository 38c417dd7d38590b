"""Every example of the docstrings and of the page for students is true, and the page leaves nothing out."""

from __future__ import annotations

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rlinf.algorithms import catalog

PAGE = Path(__file__).parents[2] / "docs" / "algorithms.md"
PAGES_TEXT = "\n".join(page.read_text(encoding="utf-8") for page in [PAGE, *PAGE.with_suffix("").glob("*.md")])
"""Of the page that explains, and of those that are generated from the catalog."""
SOURCE = Path(__file__).parents[2]
MODULES = [
    ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for file in sorted((SOURCE / "rlinf").rglob("*.py"))
    if ">>> " in file.read_text(encoding="utf-8")
]
"""Those with an example."""
LOOP = {
    "adv_type",
    "loss_type",
    "options",
    "group_size",
    "dynamic_sampling",
    "ref_update_every",
    "reward_type",
    "logprob_type",
    "entropy_type",
}


@pytest.mark.parametrize("name", MODULES)
def test_docstring(name):
    module = pytest.importorskip(name, exc_type=ModuleNotFoundError)  # Megatron, among others, is no dependency
    assert doctest.testmod(module).failed == 0


def test_page():
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf-8")
    assert found.failed == 0
    assert found.attempted > 20


@pytest.mark.parametrize("table", catalog.TABLES)
def test_the_pages_name_everything(table):
    assert [name for name in catalog.TABLES[table] if f"`{name}`" not in PAGES_TEXT] == []


def test_the_yaml_of_the_page_has_only_options_that_something_reads():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.S)
    keys = {key for block in blocks for key in yaml.safe_load(block)["algorithm"]}
    assert [key for key in keys - LOOP if not catalog.readers(key)] == []


def test_every_option_of_the_catalog_is_on_a_page():
    entries = [entry for table in catalog.TABLES.values() for entry in table.values()]
    options = {option for entry in entries for option in entry.reads}
    options |= {*catalog.ADVANTAGE_OPTIONS, *catalog.REWARD_OPTIONS, *catalog.STEP_OPTIONS, *catalog.LOSS_OPTIONS}
    assert sorted(option for option in options if option not in PAGES_TEXT) == []


def test_committed_pages_of_algorithms_are_current() -> None:
    folder = PAGE.parent / "algorithms"
    code = f"import sys; sys.path.insert(0, {str(PAGE.parent / 'assets')!r}); import algorithm_pages as a, json; "
    code += "print(json.dumps(dict(a.pages())))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PAGE.parents[1])
    made = json.loads(done.stdout)
    assert {path.name for path in folder.glob("*.md")} == set(made)
    for name, text in made.items():
        assert (folder / name).read_text(encoding="utf-8") == text, "run: make docs"
    entries = [name for table in ("advantages", "losses", "off_policy") for name in catalog.TABLES[table]]
    assert len(made) == len(entries) + 1
