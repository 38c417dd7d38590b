"""Published ids of gymnasium's registry, and the modules that register them when they are imported."""

from __future__ import annotations

import re
from importlib.util import find_spec

from rlinf.base.packages import EXTRA_OF, install_command

_MODULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"ALE/.+|\w+NoFrameskip-v\d+"), "ale_py"),
    (re.compile(r"(MiniGrid|BabyAI)-.+"), "minigrid"),
    (
        re.compile(r"(Fetch|HandReach|HandManipulate|AdroitHand|AntMaze|PointMaze|FrankaKitchen)\w*-v\d+"),
        "gymnasium_robotics",
    ),
    (re.compile(r"Panda(Reach|Push|Slide|Stack|Flip|PickAndPlace).*"), "panda_gym"),
    (re.compile(r"(parking|highway|merge|roundabout|intersection|racetrack)[\w-]*-v\d+"), "highway_env"),
    (re.compile(r".*Bullet(Duck)?Env-v\d+"), "pybullet_envs_gymnasium"),
    (re.compile(r"dm_control/.+"), "shimmy"),
    (re.compile(r"Meta-World/.+"), "metaworld"),
    (re.compile(r"donkey-.*"), "gym_donkeycar"),
)


def registering_module(env_id: str) -> str | None:
    """Return the module that registers ``env_id``; None if none is known.

    >>> registering_module("PandaReach-v3")
    'panda_gym'
    """
    return next((module for pattern, module in _MODULES if pattern.fullmatch(env_id)), None)


def registration_advice(env_id: str) -> str:
    """Return how an id is written so that its module is imported, and how that is installed; empty if not known."""
    module = registering_module(env_id)
    if module is None:
        return ""
    write = f"write {module}:{env_id}"
    if find_spec(module) is not None:
        return f" ({write})"
    extra = EXTRA_OF.get(module)
    return f" ({install_command(extra) if extra else f'install {module}'}, and {write})"
