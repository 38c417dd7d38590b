"""Goals of a LIBERO scene: its task's own, and the same with another thing of the scene instead of the task's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Goal:
    """Predicates that must hold together, as LIBERO's parser gives them, and the words for them."""

    predicates: tuple[tuple[str, ...], ...]
    instruction: str


def own_and_other_goal(problem: Mapping[str, Any], instruction: str) -> tuple[Goal, Goal | None]:
    """Return a task's own goal, and that of the thing which its file lists next; None without such a thing.

    ``problem`` is LIBERO's parsed file. There is another goal if the task is one predicate of a thing that the
    instruction names by its kind, and another kind stands on the same surface.

    >>> file = {"goal_state": [["in", "ketchup_1", "basket_1_contain_region"]], "initial_state": [
    ...     ["on", "ketchup_1", "floor_target_region"], ["on", "bbq_sauce_1", "floor_other_region"],
    ...     ["on", "basket_1", "floor_bin_region"]]}
    >>> own, other = own_and_other_goal(file, "put the ketchup in the basket")
    >>> other.instruction, other.predicates
    ('put the bbq sauce in the basket', (('in', 'bbq_sauce_1', 'basket_1_contain_region'),))
    """
    own = Goal(tuple(map(tuple, problem["goal_state"])), instruction)
    if len(own.predicates) != 1 or len(own.predicates[0]) != 3:
        return own, None
    relation, thing, target = own.predicates[0]
    surfaces = {entry[1]: entry[2].partition("_")[0] for entry in problem["initial_state"] if entry[0] == "on"}
    around = [name for name in surfaces if surfaces[name] == surfaces.get(thing) and not target.startswith(name)]
    things = [name for name in around if name == thing or _kind(name) != _kind(thing)]
    if thing not in things or len(things) == 1 or _kind(thing) not in instruction:
        return own, None
    other = things[(things.index(thing) + 1) % len(things)]
    return own, Goal(((relation, other, target),), instruction.replace(_kind(thing), _kind(other)))


def _kind(thing: str) -> str:
    return thing.rpartition("_")[0].replace("_", " ")
