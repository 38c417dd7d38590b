"""The pages of docs/ agree with the code: generated ones are current, blocks are valid, links lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from doc_blocks import DOCS, FENCE, PAGES, ROOT, blocks

import rlinf
from rlinf.commands.reference import commands, help_of, pages
from rlinf.config.compat.aliases import FLAT
from rlinf.config.experiment import Config
from rlinf.config.names import hints, leaves
from rlinf.config.problems import Origin
from rlinf.config.reader import Reader
from rlinf.config.recipes import recipes, sweep_recipes
from rlinf.config.reference import example
from rlinf.config.tree import Located, locate, put, read_mixture
from rlinf.config.values import Builder
from rlinf.metrics.table import METRICS

_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
# Sections of a file that are one mapping of a class outside of the schema.
_FREE = (
    "env.kwargs.",
    "evaluation.env_kwargs.",
    "policy.architecture.",
    "algorithm.options.",
    "cluster.env.",
    "sft.rename.",
)


def _name(path: Path) -> str:
    return path.relative_to(DOCS).as_posix()


@pytest.mark.parametrize("page", ["config.md", "metrics.md", "cli.md", "api.md"])
def test_generated_pages_are_current(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == pages()[page], "run: make docs"


@pytest.mark.parametrize("page", ["config.md", "metrics.md"])
def test_no_cell_of_a_reference_is_empty(page: str) -> None:
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith("|---"):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            assert all(cells), line


def test_every_public_name_is_in_the_api_reference() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    elsewhere = {"Config", "ConfigErrors", "__version__"}  # docs/config.md; docs/python_api.md
    assert [name for name in dir(rlinf) if name not in elsewhere and f"### rlinf.{name}\n" not in text] == []


def test_every_key_has_an_example_of_its_type() -> None:
    for key in leaves():
        tree: dict[str, Located] = {}
        put(tree, key, locate(example(key), Origin("examples")))
        builder = Builder()
        builder.section(Config, Located(tree, Origin("examples")))
        assert builder.problems == [], key


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_yaml_blocks_are_valid(path: Path) -> None:
    sections = set(hints(Config))
    for line, text in blocks(path, "yaml", "yml"):
        plain = yaml.safe_load(text)
        if not isinstance(plain, dict) or not set(plain) <= sections:
            continue
        reader = Reader()
        tree = reader.read_text(text, f"{path.name}:{line}")
        read_mixture(tree)
        builder = Builder()
        builder.section(Config, Located(tree, Origin(f"{path.name}:{line}")))
        assert [str(found) for found in [*reader.problems, *builder.problems]] == []


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_python_blocks_compile(path: Path) -> None:
    for line, text in blocks(path, "python", "py"):
        code = text
        if ">>>" in text:
            code = "\n".join(row[4:] for row in text.splitlines() if row.startswith((">>> ", "... ")))
        try:
            ast.parse(code)
        except SyntaxError as error:
            pytest.fail(f"{path.name}:{line}: {error}")


def _commands(path: Path) -> Iterator[tuple[int, list[str]]]:
    for line, text in blocks(path, "bash", "sh", "console", ""):
        for row in text.replace("\\\n", " ").splitlines():
            words = row.strip().removeprefix("$ ").split(" && ")
            for command in words:
                if re.match(r"(\.venv/bin/)?rlinf [a-z]", command):
                    yield line, shlex.split(command, comments=True)[1:]


@pytest.mark.parametrize("path", [*PAGES, ROOT / "README.md"], ids=lambda path: path.name)
def test_commands_exist_with_their_flags_and_keys(path: Path) -> None:
    known = set(commands())
    for line, words in _commands(path):
        location = f"{path.name}:{line}: rlinf {' '.join(words)}"
        assert words[0] in known, location
        printed = help_of([words[0]])
        for word in words[1:]:
            if word.startswith("--"):
                assert word.partition("=")[0] in printed, location
            elif re.match(r"[a-z_]+(\.[a-z_0-9]+)+=", word) and words[0] in ("train", "check", "sft", "try"):
                key = word.partition("=")[0]
                assert key in leaves() or key.startswith(_FREE), location
        if words[0] in ("train", "check") and len(words) > 1 and re.fullmatch(r"[a-z_/0-9]+", words[1]):
            names = {name.rpartition("/")[2] for name in {**recipes(), **sweep_recipes()}}
            assert words[1].rpartition("/")[2] in names, location


_KEY = re.compile(r"`([a-z_]+(?:\.[a-z_0-9]+)+)(?:[:=][^`]*)?`")
_METRIC = re.compile(r"`([a-z_]+/[a-z_0-9]+)`")


# Their pages name keys of other frameworks in addition to ours.
_OTHERS_KEYS = {"config.md", *(page.name for page in DOCS.glob("from_*.md"))}
# Columns of data sets, which are written as keys are.
_COLUMNS = {"reward_model.ground_truth"}


@pytest.mark.parametrize(
    "path", [*(path for path in PAGES if path.name not in _OTHERS_KEYS), ROOT / "README.md"], ids=lambda path: path.name
)
def test_keys_in_the_text_exist(path: Path) -> None:
    sections = set(hints(Config))
    keys = [*leaves(), *FLAT]
    known = {".".join(key.split(".")[:length]) for key in keys for length in range(2, key.count(".") + 2)}
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    named = {key for key in _KEY.findall(text) if key.split(".")[0] in sections and not key.startswith(_FREE)}
    assert {key for key in named if key not in known | _COLUMNS and not key.endswith(".json")} == set()


def test_the_decision_tree_names_metrics_that_are_written() -> None:
    text = (DOCS / "my_run_does_not_learn.md").read_text(encoding="utf-8")
    assert [name for name in _METRIC.findall(text) if name not in METRICS] == []


def _anchors(path: Path) -> set[str]:
    found = set()
    for title in re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
        plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", title).lower()
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip()))
    return found


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_links_lead_somewhere(path: Path) -> None:
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for match in _LINK.finditer(text):
        target = match.group(1) or match.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        assert other.exists(), f"{path.name}: {target}"
        if anchor and other.suffix == ".md":
            assert anchor in _anchors(other), f"{path.name}: {target}"


def test_every_page_is_in_the_navigation() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))

    def named(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        for child in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            yield from named(child)

    # docs/assets/site_hooks.py adds decision records and the pages of single algorithms.
    added = ("decisions/", "algorithms/advantage_", "algorithms/loss_", "algorithms/off_policy_")
    assert set(named(site["nav"])) == {name for path in PAGES if not (name := _name(path)).startswith(added)}


def test_searched_terms_are_on_the_pages() -> None:
    text = " ".join(path.read_text(encoding="utf-8").lower() for path in [*PAGES, ROOT / "README.md"])
    terms = ("prefix cache", "batch-invariant", "fault tolerance", "staleness", "reward hacking")
    assert [term for term in terms if text.count(term) < 2] == []


@pytest.mark.parametrize("page", ["README.md", "docs/comparison.md", "docs/algorithms.md", "docs/index.md"])
def test_no_page_counts_the_catalog(page: str) -> None:
    """A number in prose would have to change with every new estimator or loss."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert re.findall(r"\b\d+ (?:advantage estimators|estimators|policy losses|losses)\b", text) == []
    assert re.findall(r"^\| (?:advantage estimators|policy losses) \| \[\d+\]", text, re.MULTILINE) == []


def test_every_extra_is_described() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    text = (DOCS / "install.md").read_text(encoding="utf-8")
    assert [name for name in extras if f"`{name}`" not in text] == []


def test_the_site_needs_no_network() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert site["theme"]["font"] is False
    assert "offline" in site["plugins"]
    assert [file for file in site["extra"]["polyfills"] if not (DOCS / file).is_file()] == []
    assert "extra_javascript" not in site
