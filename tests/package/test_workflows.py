"""`.github`, the pre-commit hooks and the changelog agree with pyproject.toml, the Makefile and the lock."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import rlinf
from rlinf.base.packages import DISTRIBUTION

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
SUPPORTED = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]
BY_NAME = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in read(path)["jobs"].values():
        yield from job["steps"]


def matrices(path: Path) -> Iterator[dict[str, Any]]:
    for job in read(path)["jobs"].values():
        yield job.get("strategy", {}).get("matrix", {})


def make_targets(path: Path) -> set[str]:
    """Return the targets of a workflow's `make` commands; those of a matrix too."""
    found = {combination["target"] for matrix in matrices(path) for combination in matrix.get("include", ())}
    for step in steps(path):
        for command in re.findall(r"^\s*make (.+)$", str(step.get("run", "")), re.MULTILINE):
            found.update(word for word in command.split() if "=" not in word and not word.startswith('"$'))
    return found


def lock_version(package: str) -> str:
    (line,) = re.findall(
        rf"^{package}==(\S+)", (ROOT / "requirements/lock.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    return str(line)


def test_each_purpose_has_a_workflow() -> None:
    assert {path.stem for path in WORKFLOWS} == {"checks", "tests", "docs", "nightly", "release"}


def test_every_make_target_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    named = {path.stem: make_targets(path) for path in WORKFLOWS}
    assert named["tests"] == {
        "test",
        "quickstart",
        "test-browser",
        "test-faults",
        "test-sinks",
        "test-sim",
        "test-vllm",
    }
    assert set().union(*named.values()) <= targets


@BY_NAME
def test_every_extra_and_file_exists(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for extras in re.findall(r"(?:\.|\)|oneloop-rl)\[([\w,-]+)\]", text):
        assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    for file in re.findall(r"cache-dependency-path: ([^,}\s]+)", text):
        assert (ROOT / file).is_file(), file


@BY_NAME
def test_a_matrix_of_pythons_has_all_supported_ones(path: Path) -> None:
    assert SUPPORTED == ["3.11", "3.12", "3.13"]
    for matrix in matrices(path):
        assert matrix.get("python", SUPPORTED) == SUPPORTED
    singles = [step["with"]["python-version"] for step in steps(path) if "setup-python" in step.get("uses", "")]
    assert set(singles) <= {"3.12", "${{ matrix.python }}"}


@BY_NAME
def test_jobs_have_limits_and_few_rights(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 350, name
        for step in job["steps"]:
            assert re.search(r"@[0-9a-f]{40}$", step.get("uses", "@" + "0" * 40)), "a tag can be moved"
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_releases_are_published_without_a_token() -> None:
    release = read(GITHUB / "workflows" / "release.yml")
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML 1.1 reads `on` as true
    publish = release["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "try"
    assert "secrets." not in (GITHUB / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert f"dist/{DISTRIBUTION.replace('-', '_')}-$version-py3-none-any.whl" in str(release["jobs"]["build"])


def test_labels_that_are_used_are_defined() -> None:
    defined = {label["name"] for label in yaml.safe_load((GITHUB / "labels.yml").read_text(encoding="utf-8"))}
    used = {label for update in read(GITHUB / "dependabot.yml")["updates"] for label in update["labels"]}
    for form in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml"):
        used.update(read(form).get("labels", ()))
    assert used <= defined
    assert {"good first issue", "help wanted"} <= defined


def test_bots_watch_folders_that_exist() -> None:
    for update in read(GITHUB / "dependabot.yml")["updates"]:
        assert (ROOT / update["directory"].lstrip("/")).is_dir(), update


def test_hooks_have_the_locked_ruff() -> None:
    hooks = {repo["repo"].rpartition("/")[2]: repo for repo in read(ROOT / ".pre-commit-config.yaml")["repos"]}
    assert hooks["ruff-pre-commit"]["rev"] == f"v{lock_version('ruff')}"
    assert [hook["id"] for hook in hooks["ruff-pre-commit"]["hooks"]] == ["ruff-check", "ruff-format"]


def test_the_changelog_keeps_its_form() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\S+)\]", text, re.MULTILINE)
    assert versions[0] == "Unreleased"
    assert versions[1] == rlinf.__version__
    assert len(re.findall(r"^## ", text, re.MULTILINE)) == len(versions)
    assert re.findall(rf"^## \[{re.escape(rlinf.__version__)}\] - (?:unreleased|20\d\d-\d\d-\d\d)$", text, re.MULTILINE)
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= kinds


def test_the_citation_has_the_version() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"] == rlinf.__version__
