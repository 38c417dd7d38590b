"""Names of RLinf's first versions (0.1, 2025) as RLinf has them today."""

from __future__ import annotations

from collections.abc import Mapping

from rlinf.config.tree import Located, drop, get, put
from rlinf_import.sheet import Sheet, shown

_MOVED: Mapping[str, str] = {
    "env.train.simulator_type": "env.train.env_type",
    "env.eval.simulator_type": "env.eval.env_type",
    "algorithm.rollout_epoch": "env.train.rollout_epoch",
    "algorithm.n_eval_chunk_steps": "env.eval.max_steps_per_rollout_epoch",
    "algorithm.eval_rollout_epoch": "env.eval.rollout_epoch",
    "actor.model.model_name": "actor.model.model_type",
    "rollout.model_dir": "actor.model.model_path",
}


def rename(sheet: Sheet) -> None:
    """Move settings of simulators to their names of today, each with a line of the report."""
    tree = sheet.source.tree
    if get(tree, "env.train.simulator_type") is None:
        return
    for older, name in _MOVED.items():
        if get(tree, name) is None and (located := drop(tree, older)) is not None:
            put(tree, name, located)
            sheet.differs.append(f"{located.origin}: {older}: {shown(located.plain())}: read as {name}")
    _product(sheet, "env.train.total_num_envs", "algorithm.num_group_envs", "algorithm.group_size")
    steps, chunks = "algorithm.n_chunk_steps", "actor.model.num_action_chunks"
    _product(sheet, "env.train.max_steps_per_rollout_epoch", steps, chunks)


def _product(sheet: Sheet, name: str, *factors: str) -> None:
    """Set a number that is the product of two others."""
    written = [get(sheet.source.tree, factor) for factor in factors]
    numbers = [located.value for located in written if located is not None and isinstance(located.value, int)]
    if len(numbers) == len(factors) and get(sheet.source.tree, name) is None and written[0] is not None:
        put(sheet.source.tree, name, Located(numbers[0] * numbers[1], written[0].origin))
        for factor in factors:
            sheet.written(factor)
