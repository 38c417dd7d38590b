"""Locations of tests: under the same path as the module that they test."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
OF_MANY_MODULES = {
    "architecture": "rules about the source",
    "browser": "pages of real runs in Chromium",
    "docs": "pages, README and examples",
    "faults": "damage, signals, bad data",
    "package": "the distribution, its dependencies and CI",
    "parallel": "learners over several ranks",
    "properties": "what holds whatever the input",
    "runs": "whole runs",
    "sim": "simulators that are packages of their own",
}
"""Folders whose tests span modules."""
HELPERS = {"support"}


def modules_of(folder: Path) -> set[str]:
    """Names that tests in a folder may begin with: the modules and packages of the folder that it mirrors."""
    own = {"envs": ROOT / "envs" / "rlinf_envs", "importers": ROOT / "importers" / "rlinf_import"}
    first, *rest = folder.parts or ("",)
    source = own[first] / Path(*rest) if first in own else ROOT / "rlinf" / folder
    found = {path.stem for path in source.glob("*.py")} | {path.name for path in source.glob("*/")}
    # Two modules of one name in different packages: the test's name includes its package.
    return found | {f"{folder.name}_{name}" for name in found}


def test_a_test_is_named_after_the_module_that_it_tests() -> None:
    """`test_MODULE.py`, or `test_MODULE_ASPECT.py` where a module has several files."""
    lost = []
    for path in sorted(TESTS.rglob("test_*.py")):
        path_in_tests = path.relative_to(TESTS)
        if path_in_tests.parts[0] in OF_MANY_MODULES or "node_modules" in path_in_tests.parts:
            continue
        name = path.stem.removeprefix("test_")
        if not any(name == module or name.startswith(f"{module}_") for module in modules_of(path_in_tests.parent)):
            lost.append(str(path_in_tests))
    assert not lost, "\n".join(lost)


def test_what_several_tests_import_is_in_a_folder_of_its_own() -> None:
    """Everything else in tests/ is a test, a conftest.py, or data; tests import helpers by their short names."""
    helpers = [
        path.relative_to(TESTS)
        for path in TESTS.rglob("*.py")
        if not path.name.startswith("test_") and path.name != "conftest.py" and "node_modules" not in path.parts
    ]
    lost = [str(path) for path in helpers if path.parts[0] not in HELPERS and "peers" not in path.parts]
    assert not lost, "\n".join(lost)


def test_every_test_of_faults_is_run_by_the_target_of_its_name() -> None:
    """`make test` leaves out what is marked `faults`: a file that `make test-faults` does not name would never run."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (words,) = re.findall(r"^FAULT_TESTS := (.*)$", makefile, re.MULTILINE)
    named = {f"tests/{name}" for name in re.findall(r"[a-z_/]+\.py", words)}
    marked = {
        path.relative_to(ROOT).as_posix()
        for path in TESTS.rglob("test_*.py")
        if "pytest.mark.faults" in path.read_text(encoding="utf-8") and path != Path(__file__)
    }
    assert {path for path in marked if not path.startswith("tests/faults/")} == named
