"""The pictures of `rlinf ui` that the site shows: each view of a text run and of two simulator runs, in both themes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from report_runs import healthy, write_run

pytestmark = pytest.mark.browser
SCRIPT = Path(__file__).parents[2] / "docs" / "assets" / "screenshots.py"
EPISODE = {"key": 0, "total": 1.0, "length": 2, "start_seed": 5, "task": "", "decisions": 2, "chunk": 1}


def test_every_view_is_there_in_both_themes(tmp_path: Path) -> None:
    pytest.importorskip("selenium", reason="needs selenium (extra dev)")
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("needs chromium and chromium-driver")
    answer = {"group": 0, "reward": 1.0, "slots": 2, "prompt": "1 + 1 =", "response": "2", "advantage": 0.5}
    runs = tmp_path / "runs"
    write_run(runs / "text", [healthy(step) for step in range(1, 6)], samples=[answer])
    for name in ("first", "second"):
        write_run(runs / name, [healthy(step) for step in range(1, 6)])
        (runs / name / "episodes").mkdir()
        row = {**EPISODE, "discrete": False, "dimensions": 1, "trace": {"reward": [0.5, 0.5], "action 0": [0.1, 0.2]}}
        (runs / name / "episodes" / "step_000005.jsonl").write_text(json.dumps(row) + "\n")
    command = [sys.executable, str(SCRIPT), str(runs), str(tmp_path / "pictures")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert ended.returncode == 0, ended.stderr
    views = ("curves", "film", "list", "overview", "samples")
    expected = sorted(f"{view}-{theme}.png" for view in views for theme in ("dark", "light"))
    assert sorted(path.name for path in (tmp_path / "pictures").iterdir()) == expected
