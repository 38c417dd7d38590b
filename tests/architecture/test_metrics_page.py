"""Every metric that the code writes is documented, and every documented one is written."""

from __future__ import annotations

import ast
import functools
import json
import re
from pathlib import Path

from rlinf.cli import main
from rlinf.config import load
from rlinf.metrics.table import METRICS, SECTIONS, meaning

ROOT = Path(__file__).parents[2]
PREFIXES = {name.partition("/")[0] for name in METRICS} - {"step"}
# The names under these keys get their prefix elsewhere.
OFF_POLICY = [
    f"learners/off_policy/{name}.py" for name in ("learner", "sac", "td3", "dqn", "discrete_sac", "tqc", "ddpg", "iql")
]
UNDER = {
    "train": ["algorithms/losses", "algorithms/objective.py", *OFF_POLICY, "learners/minibatch.py"],
    "algorithm": ["algorithms/prepare.py"],
}
# Moments from which explained_variance is made, states that are saved, and the parts of a learner's answer.
INTERNAL = {
    "value_error_squared",
    "return_squared",
    "rollout_logprobs",
    "selected",
    "environment",
    "ref_logprobs",
    "values",
    "returns",
    "entropy",
    "kl",
    "rewards",
    "policy",
    "target",
    "actor_optimizer",
    "critic_optimizer",
    "log_alpha",
    "seen",
    "actor",
    "critic",
    "level",
    "offload_bytes",
    "offload_s",
}


def _strings(tree: ast.AST) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


@functools.cache
def _sources() -> dict[Path, ast.AST]:
    files = [*(ROOT / "rlinf").rglob("*.py"), *(ROOT / "envs").rglob("*.py")]
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in files if "rlinf/metrics" not in str(path)}


def test_every_name_in_the_code_is_documented() -> None:
    names = set()
    for tree in _sources().values():
        names |= {
            text
            for text in _strings(tree)
            if re.fullmatch(r"[a-z_]+/[a-z0-9_@/]*[a-z0-9_]", text) and text.partition("/")[0] in PREFIXES
        }
    # Beginnings of names that hold a number.
    names -= {name for name in names if any(other.startswith(name) for other in METRICS if other != name)} - set(
        METRICS
    )
    assert len(names) > 50
    names -= {"sft/step"}  # the axis of the warm start in a tracker
    assert sorted(name for name in names if meaning(name) is None) == []


def test_every_column_of_a_loss_is_documented() -> None:
    missing = []
    for prefix, folders in UNDER.items():
        for path, tree in _sources().items():
            if not any(folder in path.as_posix() for folder in folders):
                continue
            for node in ast.walk(tree):
                written = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
                keys = node.keys if isinstance(node, ast.Dict) else [node.slice] if written else []
                for key in keys:
                    if isinstance(key, ast.Constant) and isinstance(key.value, str) and key.value not in INTERNAL:
                        name = key.value if "/" in key.value else f"{prefix}/{key.value}"
                        missing += [] if meaning(name) else [f"{path.name}: {name}"]
    assert missing == []


def test_a_run_writes_documented_names_only(tmp_path: Path) -> None:
    config = ["run.max_steps=2", f"run.dir={tmp_path}/run", "cluster.backend=local", "evaluation.size=2"]
    small = ["env.num_envs=2", "rollout.num_steps=8", "logging.progress=none", "logging.tensorboard=false"]
    assert load("cartpole_ppo", [*config, *small]).run.max_steps == 2
    assert main(["train", "cartpole_ppo", *config, *small]) == 0
    written = {name for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines() for name in json.loads(line)}
    assert len(written) > 40
    assert sorted(name for name in written if meaning(name) is None) == []


def test_no_metric_is_in_two_sections() -> None:
    assert sum(len(table) for table in SECTIONS.values()) == len(METRICS)
