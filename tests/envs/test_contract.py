"""The contract of text environments: our classes fulfil it, and the rollout uses nothing that it does not name."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import gymnasium
import pytest
import rlinf_envs  # noqa: F401 (registers the environments)
from rlinf_envs.contract import TextVectorEnv, TextVectorEnvExtras

ROOT = Path(__file__).parents[2]
READERS = [*sorted((ROOT / "rlinf/rollouts/text/envs").glob("*.py")), ROOT / "rlinf/rollouts/text/env_worker.py"]
ENVIRONMENTS = ("env", "self._env(split)")
OF_GYMNASIUM = {"unwrapped", "action_space", "observation_space", "spec", "metadata"}


def members(protocol: type) -> set[str]:
    kinds = [kind for kind in protocol.__mro__ if kind.__module__ == protocol.__module__]
    return {name for kind in kinds for name in (*vars(kind), *kind.__annotations__) if not name.startswith("_")}


def names_that_are_read() -> set[str]:
    """Return each attribute of a variable `env` or `self._env(...)` in the modules that drive environments."""
    found = set()
    for node in (node for path in READERS for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ENVIRONMENTS:
            found.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            owner, name = node.args[:2]
            if ast.unparse(owner) in ENVIRONMENTS and isinstance(name, ast.Constant):
                found.add(str(name.value))
    return found


def test_the_rollout_uses_members_of_the_contract_alone() -> None:
    read = names_that_are_read()
    assert {"step_row", "mark_cut", "prompt", "demonstrations", "tool_schemas"} <= read
    assert read - members(TextVectorEnvExtras) - OF_GYMNASIUM - {"members"} == set()


@pytest.mark.parametrize("env_id", ["rlinf/ReasoningGym-v0", "rlinf/CodeBook-v0", "rlinf/GuessNumber-v0"])
def test_an_environment_has_the_members_with_the_same_arguments(env_id: str) -> None:
    env = gymnasium.make_vec(env_id, num_envs=2).unwrapped
    assert isinstance(env, TextVectorEnv)
    shared = [name for name in members(TextVectorEnvExtras) if hasattr(env, name)]
    assert {"max_turns", "system_prompt", "steps_in_part"} <= set(shared)
    for name in shared:
        wanted = getattr(TextVectorEnvExtras, name, None)
        if inspect.isfunction(wanted):
            given = list(inspect.signature(getattr(env, name)).parameters)
            assert given == list(inspect.signature(wanted).parameters)[1:], name
    env.close()
