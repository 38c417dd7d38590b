"""The notebooks of examples/ run from top to bottom."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_committed_without_outputs(path: Path) -> None:
    import json

    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel (extra notebook)")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root), str(root / "envs")]))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [cell.outputs[-1].get("data", {}) for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    assert any("image/svg+xml" in data for data in shown)
    numbers = [float(text) for data in shown if re.fullmatch(r"[\d.]+", text := data.get("text/plain", ""))]
    assert len(numbers) == 2
    assert min(numbers) > 100.0
