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


def version_advice(env_id: str) -> str:
    """Return which versions of an id to write instead, if gymnasium makes others of its name alone; empty for all else.

    >>> version_advice("Hopper-v2")
    'gymnasium makes no Hopper-v2 any more: write Hopper-v4 or Hopper-v5'
    >>> version_advice("CartPole-v1")
    ''
    """
    import gymnasium

    module, colon, bare = env_id.rpartition(":")
    name, mark, version = bare.rpartition("-v")
    if not mark or not version.isdigit():
        return ""
    made = [
        spec
        for spec in gymnasium.registry.values()
        if spec.id.rpartition("-v")[0] == name and not getattr(spec.entry_point, "__name__", "").startswith("_raise")
    ]
    numbers = sorted(spec.version for spec in made if spec.version is not None)
    if not numbers or int(version) in numbers:
        return ""
    since = " any more" if int(version) < numbers[0] else ""
    others = " or ".join(f"{module}{colon}{name}-v{number}" for number in numbers)
    return f"gymnasium makes no {bare}{since}: write {others}"


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
