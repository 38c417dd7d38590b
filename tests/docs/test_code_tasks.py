"""The generator of examples/code_tasks: its file is what it writes, and the programs that it shows pass their tests."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "code_tasks"


def test_the_file_is_what_the_generator_writes(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_tasks", FOLDER / "make_tasks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = module.FILE.read_bytes()
    module.FILE = tmp_path / "tasks.jsonl"
    module.main()
    assert module.FILE.read_bytes() == written
    for line in written.decode().splitlines()[:20]:
        row = json.loads(line)
        names: dict[str, object] = {}
        exec(row["response"], names)
        for test in row["tests"]:
            exec(test, names)
