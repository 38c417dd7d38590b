"""What refusals and reports point to exists: keys of the schema, names of the catalogue, and pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from rlinf.algorithms.catalog import TABLES
from rlinf.config.names import leaves

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "importers" / "rlinf_import"
SECTIONS = (
    "algorithm|checkpoint|cluster|data|env|evaluation|learner|logging|policy|reward_model|rollout|run|sft|teacher"
)
KEY = re.compile(rf"(?<![\w./])(?:{SECTIONS})\.[a-z_\d]+(?:\.[a-z_\d]+)*")
THEIRS = ("data.train_files", "reward_model.ground_truth")
"""Names of verl's that sentences have."""


def sentences() -> Iterator[tuple[str, str]]:
    """Every text of more than one word, without what documents a module, class or function."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        loose = [node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)]
        for node in ast.walk(tree):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and " " in text and node not in loose:
                yield path.name, text


def test_keys_exist() -> None:
    parts = [key.split(".") for key in leaves()]
    known = {".".join(names[:count]) for names in parts for count in range(1, len(names) + 1)}
    found = [(name, key) for name, text in sentences() for key in KEY.findall(text)]
    assert len(found) > 200
    lost = [(name, key) for name, key in found if key not in known and key not in THEIRS]
    assert [entry for entry in lost if not entry[1].startswith("env.kwargs.")] == []


def test_estimators_and_losses_exist() -> None:
    offered = {"adv_type": TABLES["advantages"], "loss_type": {**TABLES["losses"], **TABLES["off_policy"]}}
    for name, text in sentences():
        for kind, value in re.findall(r"\b(adv_type|loss_type): ([a-z_]\w*)", text):
            # `loss_type: grpo, dapo, ... of TRL` are that framework's.
            assert value in offered[kind] or "of TRL" in text, (name, text)


def test_pages_exist() -> None:
    pages = {page for _, text in sentences() for page in re.findall(r"docs/\w+\.md", text)}
    assert pages
    assert [page for page in pages if not (ROOT / page).is_file()] == []
