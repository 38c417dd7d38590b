"""Which kind of sub-environments: in this process, a process each, another interpreter, or the environment's own
vector kind."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, field, replace

import gymnasium
import numpy as np

from rlinf.rollouts.isolation.vec_env import IsolatedVecEnv, needs_process
from rlinf.rollouts.vec_env.make_env import EnvConstructionError, make_env, takes_env_as_it_is
from rlinf.rollouts.vec_env.native import NativeVecEnv
from rlinf.rollouts.vec_env.seeded_batch import SeededBatchVecEnv, seeds_each
from rlinf.rollouts.vec_env.seeded_native import SeededNativeVecEnv, can_be_seeded
from rlinf.rollouts.vec_env.sync import SyncVecEnv
from rlinf.rollouts.vec_env.vec_env import VecEnv, close_quietly
from rlinf.rollouts.wrappers import random_action
from rlinf.schema.env import EnvConfig, Vectorization

# What a message to a process and back costs, measured at 30 to 60 microseconds a sub-environment; below ten times that,
# processes cannot win even on many cores.
_WORTH_A_PROCESS_S = 500e-6
_PROBE_STEPS = 30
# Sub-environments that are probed one after the other: their cost per sub-environment does not depend on how many there
# are.
_PROBE_ENVS = 8


@dataclass(frozen=True)
class VectorizationChoice:
    """The chosen `env.vectorization`, and the measurements it was chosen by."""

    kind: Vectorization
    step_us: dict[str, float] = field(default_factory=dict)
    """Microseconds of one step of one sub-environment, for each kind that was measured."""
    reason: str = ""

    def __str__(self) -> str:
        figures = ", ".join(f"{kind} {us:.1f}" for kind, us in self.step_us.items())
        measured = f" (microseconds a step and sub-environment: {figures})" if figures else ""
        return f"{self.kind}{measured}{': ' if self.reason else ''}{self.reason}"


def make_vec_env(options: EnvConfig, num_envs: int, *, cores: int = 1) -> VecEnv:
    """Build ``num_envs`` environments as ``options.vectorization`` states (`auto`: as :func:`choose_vec_env` finds).

    `sync` ones share a process: this one, or one of their own if that is needed (:func:`needs_process`).
    """
    kind = options.vectorization
    if kind == "auto":
        kind = choose_vec_env(options, num_envs, cores=cores).kind
    if kind == "async":
        return IsolatedVecEnv(options, num_envs, processes=num_envs)
    if kind == "native":
        native = takes_env_as_it_is(options) and can_be_seeded(options)
        made: VecEnv = (SeededNativeVecEnv if native else NativeVecEnv)(options, num_envs)
    else:
        made = IsolatedVecEnv(options, num_envs) if needs_process(options) else SyncVecEnv(options, num_envs)
    _require_torch_defaults(options.id)
    return made


def _require_torch_defaults(env_id: str) -> None:
    """Raise EnvConstructionError if an environment set what all tensors of this process begin as, networks' too."""
    torch = sys.modules.get("torch")
    if torch is None:
        return
    if torch.is_inference_mode_enabled():
        raise EnvConstructionError(
            f"env.id {env_id!r} leaves torch.inference_mode on, in which no policy of this process learns: end it with "
            "each call (`with torch.inference_mode():`), or set env.isolation: process"
        )
    defaults = {"dtype": str(torch.get_default_dtype()), "device": torch.get_default_device().type}
    for name, usual in (("dtype", "torch.float32"), ("device", "cpu")):
        if defaults[name] != usual:
            raise EnvConstructionError(
                f"env.id {env_id!r} calls torch.set_default_{name} ({defaults[name]}), and the policy's networks are "
                f"made in this process: give {name}= to its own tensors instead, or set env.isolation: process"
            )


def make_seeded_vec_env(options: EnvConfig, num_envs: int, *, cores: int = 1) -> VecEnv:
    """Build the same for whole episodes from given seeds.

    `native` if its sub-environments take one each, else `auto`."""
    if options.vectorization != "native":
        return make_vec_env(options, num_envs, cores=cores)
    if seeds_each(options):
        return SeededBatchVecEnv(options, num_envs)
    return make_vec_env(replace(options, vectorization="auto"), num_envs, cores=cores)


def choose_vec_env(options: EnvConfig, num_envs: int, *, cores: int = 1) -> VectorizationChoice:
    """Choose the fastest kind by measurement, among those that give the same episodes.

    A native vector env is a candidate only if its sub-environments take seeds. Its episodes must also have just
    been found to be those of single environments: so the choice has no influence on the result.
    """
    if options.vectorization != "auto":
        return VectorizationChoice(options.vectorization, reason="as configured")
    if options.isolation == "process":
        return VectorizationChoice("sync", reason="isolated: the sub-environments of a worker share one process")
    if takes_env_as_it_is(options) and can_be_seeded(options):
        return _native_or_not(options, num_envs)
    if num_envs == 1:
        return VectorizationChoice("sync", reason="one environment per worker")
    if cores == 1:
        return VectorizationChoice("sync", reason="one CPU core per worker")
    spent = _step_seconds(options)
    return VectorizationChoice("async" if spent > _WORTH_A_PROCESS_S else "sync", {"sync": spent * 1e6})


def _native_or_not(options: EnvConfig, num_envs: int) -> VectorizationChoice:
    """Plays the same episodes on both kinds of sub-environments, with random actions, and compares what came and how
    long it took.

    Native sub-environments are timed together and the others one by one, which is how their costs grow.
    """
    probed = min(num_envs, _PROBE_ENVS)
    # What gets here is an environment of gymnasium's own, which needs no time limit.
    single = SyncVecEnv(replace(options, step_timeout_s=0.0), probed)
    native = make_vec_env(replace(options, vectorization="native"), num_envs)
    try:
        native_s, seen_native = _play(native, probed)
        single_s, seen_single = _play(single, probed)
    finally:
        native.close()
        single.close()
    figures = {"sync": single_s / probed * 1e6, "native": native_s / num_envs * 1e6}
    if not all(np.array_equal(one, other) for one, other in zip(seen_native, seen_single, strict=True)):
        return VectorizationChoice("sync", figures, "the environment's own vector implementation gives other episodes")
    return VectorizationChoice("native" if figures["native"] < figures["sync"] else "sync", figures)


def _play(vec_env: VecEnv, watched: int) -> tuple[float, list[np.ndarray]]:
    """Seconds of the fastest step (slower ones had to wait for something) of all sub-environments together, and all
    that the
    first ``watched`` of them gave, ends and new starts included.
    """
    generator = np.random.default_rng(0)
    everyone = range(vec_env.num_envs)
    vec_env.reset(everyone, list(everyone))
    seen, fastest = [], math.inf
    for step in range(_PROBE_STEPS):
        vec_env.action_space.seed(int(generator.integers(2**31)))
        played = np.stack([np.asarray(vec_env.action_space.sample()) for _ in range(watched)])
        actions = np.concatenate([played, np.repeat(played[:1], vec_env.num_envs - watched, axis=0)])
        began = time.perf_counter()
        result = vec_env.step(everyone, actions)
        fastest = min(fastest, time.perf_counter() - began)
        seen += [leaf[:watched].copy() for leaf in vec_env.observations.values()]
        seen += [column[:watched].copy() for column in (result.rewards, result.terminated, result.truncated)]
        over = np.nonzero(result.terminated | result.truncated)[0].tolist()
        vec_env.reset(over, [1_000 * step + env_index for env_index in over])
        seen += [leaf[:watched].copy() for leaf in vec_env.observations.values()]
    return fastest, seen


def _step_seconds(options: EnvConfig) -> float:
    """Wall-clock seconds of one step under random actions, resets not counted."""
    env: gymnasium.Env = make_env(options)
    try:
        env.reset(seed=0)
        env.action_space.seed(0)
        spent = 0.0
        for _ in range(_PROBE_STEPS):
            started = time.perf_counter()
            _, _, terminated, truncated, _ = env.step(random_action(env))
            spent += time.perf_counter() - started
            if terminated or truncated:
                env.reset()
        return spent / _PROBE_STEPS
    finally:
        close_quietly(env)
