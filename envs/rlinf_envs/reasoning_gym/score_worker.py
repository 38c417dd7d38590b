"""Runs in a scoring process. Importing it loads reasoning-gym, so that no answer pays for that from its time."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from rlinf_envs.reasoning_gym.families import Family, make_family, names

names()


def score(recipe: str, answer: str, entry: dict[str, Any]) -> float:
    """Score ``answer`` by the family that ``recipe`` (see ``scoring.FamilySpec``) makes."""
    return float(_family(recipe).score_answer(answer, entry))


@lru_cache(maxsize=64)
def _family(recipe: str) -> Family:
    task, seed, size, params, curriculum = json.loads(recipe)
    return make_family(task, seed=seed, size=size, params=params, curriculum=curriculum)
