"""The images install what the lock pins, and both locks agree; there is no Docker in these tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "requirements"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
IMAGES = sorted((ROOT / "docker").glob("*.Dockerfile"))
PIN = re.compile(r"^([\w.-]+)==([^\s;]+)", re.MULTILINE)
BY_NAME = pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.stem)


def pins(name: str) -> set[tuple[str, str]]:
    """Each package of a lock with its version; some have several, by markers."""
    return set(PIN.findall((REQUIREMENTS / name).read_text(encoding="utf-8")))


def test_both_locks_have_the_same_versions_and_every_file_a_hash() -> None:
    hashed, lock = pins("lock-hashes.txt"), pins("lock.txt")
    assert lock - hashed == {pin for pin in lock if pin[0] == "torch"}
    assert hashed <= lock
    entries = re.split(r"^(?=[\w.-]+==)", (REQUIREMENTS / "lock-hashes.txt").read_text(encoding="utf-8"), flags=re.M)[
        1:
    ]
    assert len(entries) >= len(hashed)
    assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []


@BY_NAME
def test_an_image_is_built_from_the_lock(image: Path) -> None:
    text = image.read_text(encoding="utf-8")
    lock = dict(pins("lock.txt"))
    assert text.count("-c /src/requirements/lock-hashes.txt") == text.count("uv pip install") == 1
    # Of the packages that an image names itself, those of the lock have its version.
    named = dict(re.findall(r"\b([a-z][\w-]*)==([\d.]+)", text))
    assert {name: lock[name] for name in named if name in lock} == {name: named[name] for name in named if name in lock}
    assert set(named) <= {"uv", *lock}
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)$", text, re.MULTILINE)
    assert set(extras.split(",")) <= EXTRAS.keys()


def test_images_take_the_same_uv_and_the_cpu_image_the_locked_torch() -> None:
    texts = {image.stem: image.read_text(encoding="utf-8") for image in IMAGES}
    assert len({version for text in texts.values() for version in re.findall(r"\buv==([\d.]+)", text)}) == 1
    # vLLM pins the build of torch that it was compiled against.
    assert "vllm" not in texts["cpu"]
    assert f"torch=={dict(pins('lock.txt'))['torch']}" in texts["cpu"]
    assert any(requirement.startswith("vllm==") for requirement in EXTRAS["vllm"])


def test_the_locked_versions_are_within_the_bounds_of_the_package() -> None:
    packaging = pytest.importorskip("packaging.requirements")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lock: dict[str, list[str]] = {}
    for name, version in pins("lock.txt"):
        lock.setdefault(name, []).append(version)
    wrong = []
    for line in (*project["dependencies"], *(one for extra in EXTRAS.values() for one in extra)):
        requirement = packaging.Requirement(line)
        versions = lock.get(requirement.name.lower(), [])
        if versions and not any(requirement.specifier.contains(version) for version in versions):
            wrong.append(f"{line}: the lock has {', '.join(versions)}")
    assert wrong == []
