"""Choices that installed packages add: entry points by name, each a ``module:name`` that a file may also write.

A package declares, for example::

    [project.entry-points."rlinf.advantages"]
    centred = "my_package.algorithms:centred"

Then ``adv_type: centred`` is read as ``adv_type: my_package.algorithms:centred``. Names of our own come first, so that
no package changes what a file means. Of ``rlinf.envs`` the value is an environment's class, or a module that
registers the environment of that name.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from rlinf.algorithms import catalog
from rlinf.config.defaults import SomeConfig, value_of, with_value

GROUPS: Mapping[str, str] = {
    "rlinf.advantages": "algorithm.adv_type",
    "rlinf.losses": "algorithm.loss_type",
    "rlinf.aggregations": "algorithm.loss_agg_func",
    "rlinf.kl": "algorithm.kl_penalty_type",
    "rlinf.samplers": "rollout.sampler",
    "rlinf.envs": "env.id",
    "rlinf.policies": "policy.name",
    "rlinf.encoders": "policy.encoder",
    "rlinf.distributions": "policy.distribution",
    "rlinf.sinks": "logging.sinks",
    "rlinf.rewards": "env.kwargs.reward.custom",
}
"""Group of entry points -> the key that they are a choice of."""
_ENVS, _REWARDS, _SINKS = "rlinf.envs", "rlinf.rewards", "rlinf.sinks"


@dataclass(frozen=True)
class _Plugin:
    """One entry point."""

    name: str
    target: str
    """What replaces the name in the configuration: ``module:name``."""
    package: str
    version: str

    @property
    def origin(self) -> str:
        """`my-package 1.0`."""
        return f"{self.package} {self.version}"


@functools.cache
def plugins(group: str) -> Mapping[str, _Plugin]:
    """Read the entry points of a group by name; of two packages with the same name the first that is found."""
    results: dict[str, _Plugin] = {}
    for entry in metadata.entry_points(group=group):
        target = f"{entry.value}:{entry.name}" if group == _ENVS and ":" not in entry.value else entry.value
        package = entry.dist.name if entry.dist is not None else "?"
        version = entry.dist.version if entry.dist is not None else "?"
        results.setdefault(entry.name, _Plugin(entry.name, target, package, version))
    return results


OWN_SAMPLERS = ("auto", "hf", "vllm", "server")
OWN_POLICIES = ("causal_lm", "actor_critic", "vla", "flow")
OWN_ENCODERS = ("auto", "mlp", "cnn")
OWN_DISTRIBUTIONS = ("auto", "categorical", "gaussian", "squashed_gaussian", "beta")
_OWN: Mapping[str, Container[str]] = {
    "rlinf.advantages": catalog.ADVANTAGES,
    "rlinf.losses": (*catalog.LOSSES, *catalog.OFF_POLICY),
    "rlinf.aggregations": catalog.AGGREGATIONS,
    "rlinf.kl": catalog.KL_PENALTIES,
    "rlinf.samplers": OWN_SAMPLERS,
    "rlinf.envs": (),
    "rlinf.policies": OWN_POLICIES,
    "rlinf.encoders": OWN_ENCODERS,
    "rlinf.distributions": OWN_DISTRIBUTIONS,
}


def with_plugins(config: SomeConfig) -> SomeConfig:
    """Return ``config`` with ``module:name`` instead of every name that a package brings."""
    for group, own in _OWN.items():
        key = GROUPS[group]
        name = str(value_of(config, key))
        if name and ":" not in name and name not in own and name in plugins(group):
            config = with_value(config, key, plugins(group)[name].target)
    if config.logging.sinks:
        config = with_value(config, GROUPS[_SINKS], _renamed(config.logging.sinks, _SINKS))
    for key in ("env.kwargs", "evaluation.env_kwargs"):
        kwargs = value_of(config, key)
        if isinstance(kwargs, dict):
            config = with_value(config, key, _with_rewards(kwargs))
    return config


def _with_rewards(kwargs: dict[str, Any]) -> dict[str, Any]:
    reward = kwargs.get("reward")
    own = reward.get("custom") if isinstance(reward, dict) else None
    if not isinstance(reward, dict) or not isinstance(own, dict):
        return kwargs
    return {**kwargs, "reward": {**reward, "custom": _renamed(own, _REWARDS)}}


def _renamed(chosen: Mapping[str, object], group: str) -> dict[str, object]:
    return {
        plugins(group)[name].target if ":" not in name and name in plugins(group) else name: value
        for name, value in chosen.items()
    }
