"""RLinf's ``cluster.component_placement``: how many GPUs a component has, as far as the file states it."""

from __future__ import annotations

import re

from rlinf_import.sheet import Sheet

_NODE = 8
"""GPUs of a machine where ``all`` is written, as in RLinf's examples."""
_SPAN = re.compile(r"(\d+)(?:-(\d+))?")


def gpus(sheet: Sheet, component: str) -> set[int] | None:
    """Return the numbers of a component's GPUs; None if the file does not give them."""
    placed = sheet.take("cluster.component_placement")
    if not isinstance(placed, dict):
        return None
    for names, value in placed.items():
        if component in [name.strip() for name in str(names).split(",")]:
            return _numbers(sheet, value)
    return None


def set_layout(sheet: Sheet, parallel: int) -> None:
    """Set ranks, samplers and whether they share GPUs."""
    actor, rollout = gpus(sheet, "actor"), gpus(sheet, "rollout")
    keys = [f"cluster.component_placement.{name}" for name in _written(sheet, "actor", "rollout")]
    if actor:
        sheet.put("learner.num_workers", len(actor), *(keys or ["cluster.component_placement"]))
    if rollout:
        sheet.put("rollout.num_samplers", max(1, len(rollout) // parallel), *(keys or ["cluster.component_placement"]))
    if actor and rollout and not actor & rollout:
        sheet.put("cluster.placement", "separate", *(keys or ["cluster.component_placement"]))
    if not actor:
        sheet.defer("learner.num_workers and rollout.num_samplers: how many GPUs train and generate")


def _written(sheet: Sheet, *components: str) -> list[str]:
    placed = sheet.take("cluster.component_placement")
    names = placed if isinstance(placed, dict) else {}
    return [str(name) for name in names if set(components) & {part.strip() for part in str(name).split(",")}]


def _numbers(sheet: Sheet, value: object) -> set[int] | None:
    if isinstance(value, dict):
        return _numbers(sheet, value.get("placement"))
    nodes = sheet.count("cluster.num_nodes") or 1
    if value == "all":
        sheet.differ("cluster.num_nodes", f"`all` is read as {nodes * _NODE} GPUs, {_NODE} of each machine")
        return set(range(nodes * _NODE))
    text = str(value).partition(":")[0]
    if not re.fullmatch(r"[\d,\s-]+", text):
        return None
    results: set[int] = set()
    for first, last in _SPAN.findall(text):
        results.update(range(int(first), int(last or first) + 1))
    return results
