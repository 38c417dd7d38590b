"""`rlinf doctor` draws something before it says that cameras work, and survives drivers that do not."""

from __future__ import annotations

import pytest

from rlinf.commands import doctor, graphics


def test_what_breaks_in_there_is_reported_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graphics._ask("print('ok', 'a GPU')", {}) == graphics.Drawn(True, "a GPU")
    assert graphics._ask("raise OSError('no driver')", {}) == graphics.Drawn(False, "OSError: no driver")
    assert graphics._ask("print('frames of one colour')", {}) == graphics.Drawn(False, "frames of one colour")
    assert graphics._ask("import os; os.abort()", {}).detail == "exit code -6"
    monkeypatch.setattr(graphics, "_TIMEOUT_S", 0.2)
    assert "no answer" in graphics._ask("import time; time.sleep(60)", {}).detail


def test_findings_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "installed", lambda module: True)
    monkeypatch.setattr(doctor, "find_library", lambda name: "libEGL.so.1" if name == "EGL" else None)
    monkeypatch.setattr(doctor, "mujoco_draws", lambda renderer: graphics.Drawn(False, "frames of one colour"))
    monkeypatch.setattr(doctor, "vulkan_devices", lambda: graphics.Drawn(False, "there is no device"))
    egl, vulkan = (str(finding) for finding in doctor._renderers())
    assert egl.startswith("missing")
    assert "frames of one colour" in egl
    assert "not even state observations" in vulkan
    assert "mesa-vulkan-drivers" in vulkan


def test_simulators_of_their_own_are_looked_for(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    output = [str(finding) for finding in doctor._own_environments()]
    assert any("make venvs/robosuite" in line for line in output)
    assert any("make venvs/libero" in line for line in output)
