"""The contract of text environments: our classes fulfil it, and the rollout uses nothing that it does not name."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from pathlib import Path

import gymnasium
import rlinf_envs  # noqa: F401 (registers the environments)
from rlinf_envs.contract import TextVectorEnv, TextVectorEnvExtras

from rlinf.schema import EnvConfig

ROOT = Path(__file__).parents[2]
TEXT = ROOT / "rlinf" / "rollouts" / "text"
READERS = [TEXT / "env_worker.py", TEXT / "envs" / "make_env.py", TEXT / "envs" / "mixture.py"]
ENVIRONMENTS = ("env", "self._env(split)")
OTHERS = {"unwrapped", "action_space", "observation_space", "spec", "metadata", "members"}
"""Members of gymnasium's classes and of a mixture."""


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
    of_the_section = {field.name for field in dataclasses.fields(EnvConfig)}  # a configuration is called `env` too
    assert read - members(TextVectorEnvExtras) - OTHERS - of_the_section == set()


def test_an_environment_has_the_members_with_the_same_arguments() -> None:
    env = gymnasium.make_vec("rlinf/ReasoningGym-v0", num_envs=2, task="chain_sum", size=20).unwrapped
    assert isinstance(env, TextVectorEnv)
    shared = [name for name in members(TextVectorEnvExtras) if hasattr(env, name)]
    assert {"max_turns", "system_prompt", "steps_in_part"} <= set(shared)
    for name in shared:
        wanted = getattr(TextVectorEnvExtras, name, None)
        if inspect.isfunction(wanted) and name != "close":  # gymnasium's own takes options
            given = list(inspect.signature(getattr(env, name)).parameters)
            assert given == list(inspect.signature(wanted).parameters)[1:], name
    env.close()
