"""Published ids of gymnasium's registry, and the modules that register them when they are imported."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rlinf.base.packages import EXTRA_OF, install_command

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

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

_MOVED: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(Fetch\w+)-v[1-3]"), r"\1-v4"),
    (re.compile(r"(Panda\w+)-v[12]"), r"\1-v3"),
)
"""Versions that packages other than gymnasium no longer have, and the one that follows them."""
_VERSIONS = 20
"""Numbers of versions that are tried."""
OF_GYM = (
    "gymnasium has replaced it, and has a registry of its own. Write `import gymnasium as gym` where it is registered, "
    "and gymnasium's reset and step. Or name a function of your own (module:function) that wraps it, by shimmy's "
    "GymV26CompatibilityV0"
)
"""What to do about an environment of gym."""


def registering_module(env_id: str) -> str | None:
    """Return the module that registers ``env_id``; None if none is known.

    >>> registering_module("PandaReach-v3")
    'panda_gym'
    """
    return next((module for pattern, module in _MODULES if pattern.fullmatch(env_id)), None)


def _registered(name: str) -> list[EnvSpec]:
    """List gymnasium's entries for the versions of a name, by version."""
    import gymnasium

    numbered = (gymnasium.registry.get(f"{name}-v{number}") for number in range(_VERSIONS))
    return [spec for spec in numbered if spec is not None]


def versions_instead(env_id: str) -> list[str]:
    """List the ids that differ from one that gymnasium does not make in their version alone, by version.

    >>> versions_instead("Hopper-v2"), versions_instead("CartPole-v1")
    (['Hopper-v4', 'Hopper-v5'], [])
    """
    module, colon, bare = env_id.rpartition(":")
    name, mark, version = bare.rpartition("-v")
    # gymnasium has entries for what it has moved, which raise.
    made = [one.id for one in _registered(name) if not getattr(one.entry_point, "__name__", "").startswith("_raise")]
    return [f"{module}{colon}{other}" for other in made] if mark and version.isdigit() and bare not in made else []


def newest_version(env_id: str) -> str:
    """Return the id that gymnasium takes for one without a version, its newest; empty for all else.

    >>> newest_version("Pendulum"), newest_version("Pendulum-v1")
    ('Pendulum-v1', '')
    """
    import gymnasium

    module, colon, bare = env_id.rpartition(":")
    made = _registered(bare)
    return f"{module}{colon}{made[-1].id}" if made and bare not in gymnasium.registry else ""


def made_id(env_id: str) -> str:
    """Return the id of the version that today's package has.

    >>> made_id("FetchReach-v1"), made_id("Hopper-v2"), made_id("LunarLander-v3")
    ('FetchReach-v4', 'Hopper-v4', 'LunarLander-v3')
    """
    following = versions_instead(env_id)
    renamed = (pattern.sub(now, env_id) for pattern, now in _MOVED if pattern.fullmatch(env_id))
    return next(renamed, following[0] if following else env_id)


def version_advice(env_id: str) -> str:
    """Return which versions of an id to write instead of one that gymnasium does not make; empty for all else."""
    others = versions_instead(env_id)
    return f"gymnasium makes no {env_id.rpartition(':')[2]}: write {' or '.join(others)}" if others else ""


def registered_in_gym(env_id: str) -> bool:
    """Return whether a module has registered ``env_id`` with gym."""
    gym = sys.modules.get("gym.envs.registration")
    registry = getattr(gym, "registry", {})
    return env_id.rpartition(":")[2] in getattr(registry, "env_specs", registry)  # the former before gym 0.26


def registration_advice(env_id: str) -> str:
    """Return how an id is written so that its module is imported, and how that is installed; empty if not known."""
    module = registering_module(env_id)
    if module is None:
        return ""
    write = f"write {module}:{made_id(env_id)}"
    if find_spec(module) is not None:
        return f" ({write})"
    extra = EXTRA_OF.get(module)
    return f" ({install_command(extra) if extra else f'install {module}'}, and {write})"
