"""`rlinf check` for simulators: gymnasium's own checker on the environment, and what its findings mean for training."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from rlinf.base.errors import UserError
from rlinf.commands.data_check import dataset_findings
from rlinf.commands.finding import Caveat
from rlinf.config import Config
from rlinf.config.derived import collects_episodes, evaluation_env, has_warm_start, training_env
from rlinf.config.extras import simulator_extra

if TYPE_CHECKING:
    from rlinf.rollouts.vec_env.offscreen import FilmingTrial
    from rlinf.schema import EnvConfig

_PATIENCE_S = 2.0
_LONG = 1_000
"""Decisions: gymnasium's own time limits are at most this long."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_REPEATS = (
    "Training runs. Without episodes that repeat, groups have no common start, evaluations begin elsewhere each time, "
    "and a resumed run is another one: call super().reset(seed=seed) first, and draw only from self.np_random."
)
_REWARD = "step must return a plain number as reward: float(reward)."
_STEP = "step must return five things: observation, reward, terminated, truncated, info."
_NO_NUMBER = "Such episodes are dropped and counted as env/nan: the reward must be a finite number."
_ROUNDED = "Three digits stay, and no number above 65504: declare the space as float32."
_BOUNDS = "Training reads no bounds of such numbers, and takes them as they are. Others may clip or refuse them."
_ARRAYS = "Harmless: no value changes. Others want numpy.asarray(observation, dtype=space.dtype)."
_SIGNATURE = "Write reset(self, *, seed=None, options=None), and call super().reset(seed=seed) first."
_RESET = "reset must return two things: observation, info."
_NO_SUCCESS, _NAMES_SUCCESS = "(env.success_key)", "set env.success_key:"
# A part of gymnasium's message -> whether training would go wrong, and what it means there. The first that fits counts.
_MEANINGS: tuple[tuple[str, bool, str], ...] = (
    (
        "not within the observation space",
        True,
        "The policy is built from the space: correct its shape, dtype or bounds, or what reset and step return.",
    ),
    ("The reward returned by `step()` must be", True, _REWARD),
    ("not enough values to unpack (expected 5", True, _STEP),
    ("instead of the 5 of gymnasium's interface", True, _STEP),
    ("old step API", True, _STEP),
    ("was not a tuple of the form `(obs, info)`", True, _RESET),
    ("values to unpack (expected 2", True, _RESET),
    ("did not return a 2-tuple", True, _RESET),
    ("reset() returned", True, _RESET),
    ("unexpected keyword argument 'seed'", True, _SIGNATURE),
    ("does not provide a `seed`", True, _SIGNATURE),
    ("unexpected keyword argument 'options'", True, _SIGNATURE),
    ("does not provide an `options`", True, _SIGNATURE),
    (
        "signal to be a boolean",
        False,
        "Harmless: numbers count as flags. Others want bool(terminated).",
    ),
    ("and must be a number", True, _REWARD),
    ("not finite in float32", True, "Policies compute in float32: such episodes are dropped. Scale it by a wrapper."),
    ("the reward of step", True, _NO_NUMBER),
    ("The reward is a", True, _NO_NUMBER),
    ("it has no ", True, "The policy is built from both: set them in __init__, to spaces of gymnasium.spaces."),
    (
        "did not return within",
        True,
        "Training would restart the environment and drop the episode each time; env.step_timeout_s is the limit.",
    ),
    (" raised ", True, "Training would restart the environment and drop the episode each time."),
    ("observations are not equal although similar", False, _REPEATS),
    ("not equal although similar", False, _REPEATS),
    ("step info are not equivalent", False, "Only the success flag of the info is read here; see that it repeats."),
    ("then `env.reset()` is non-deterministic", False, "Harmless: every episode here starts with a seed of its own."),
    ("non-deterministic", False, _REPEATS),
    ("not equivalent for the same seed", False, _REPEATS),
    ("random number generator", False, _REPEATS),
    ("super().reset(seed=seed)", False, _REPEATS),
    ("support for the `seed` function is dropped", False, "Harmless: reset(seed=seed) is called instead of it."),
    ("share an object", False, "Rollouts copy what they keep, so training is right; other users of the env may not."),
    ("truncates after 1 step", True, "Every episode would be one step long: check max_episode_steps."),
    (
        "symmetric and normalized",
        False,
        "Harmless with SAC, TD3 and policy.distribution: squashed_gaussian or beta, which scale to the bounds. A "
        "gaussian policy begins with actions of size 1 around 0: env.wrappers: [{RescaleAction: ...}] scales them.",
    ),
    ("maximum and minimum values are equal", False, "Harmless: an entry that never changes teaches nothing."),
    (
        "it masks invalid actions",
        False,
        "Masks are not read: an illegal action is chosen like any other. Set env.action_mask to their name: "
        "action_mask, or action_masks for a method.",
    ),
    (_NO_SUCCESS, False, "Without that key there is no rate of success."),
    (", and is read as ", False, _ARRAYS),
    (", and is rounded to ", False, _ROUNDED),
    ("numbers are out of bounds", False, _BOUNDS),
    (
        "A Box action space m",
        False,
        "A gaussian policy's actions are not cut there; SAC, TD3, squashed_gaussian and beta need finite bounds.",
    ),
    ("infinity", False, "Harmless; env.normalize_observations: true brings observations of any size to one scale."),
)
_UNKNOWN = "Compare with gymnasium's documentation of Env.reset and Env.step."


_CUT = "Such episodes, of evaluations too, are cut after 10,000 decisions: set env.max_episode_steps."


def examine_env(config: Config) -> list[Caveat]:
    """Has the environment of ``config`` checked, as it is and as it is trained on, and a policy made for it.

    A simulator that is not installed is left alone.
    """
    from rlinf.rollouts.isolation.process import EnvProcessError
    from rlinf.rollouts.vec_env.make_env import takes_env_as_it_is
    from rlinf.rollouts.vec_env.offscreen import offscreen
    from rlinf.schema import EnvConfig

    env = config.env
    extra = simulator_extra(env.id)
    if env.isolation == "none" and extra is not None and not extra.installed:
        return []
    if config.evaluation.video_every:
        os.environ.update(offscreen())
    whole = training_env(config)
    bare = EnvConfig(
        env.id,
        env.kwargs,
        isolation=env.isolation,
        python=env.python,
        action_mask=env.action_mask,
        success_key=env.success_key,
        step_timeout_s=env.step_timeout_s,
        start_timeout_s=whole.start_timeout_s,
    )
    try:
        findings = _remarks(bare)
        if not any(finding.serious for finding in findings):
            findings += [] if takes_env_as_it_is(whole) else _remarks(whole)
            findings += _unfit(config, whole)
    except EnvProcessError as error:
        return [Caveat(True, str(error), "Correct env.python, env.id or env.kwargs.")]
    except UserError as error:
        return [Caveat(True, str(error), "Correct env.id, env.kwargs or env.wrappers.")]
    except (Exception, SystemExit) as error:  # whatever a constructor raises is the finding
        words = f"it could not be made: {type(error).__name__}: {error}"
        return [Caveat(True, words, "Correct env.id, env.kwargs or env.wrappers.")]
    findings = _on_success(config, findings)
    if env.python is None:  # another interpreter may have other versions
        findings += _unversioned(env.id)
    if config.evaluation.video_every:
        trial = _try_filming(config)
        if trial.problem is not None:
            findings.append(Caveat(True, trial.problem, "Set evaluation.video_every: 0 to go without videos."))
        elif trial.remark is not None:
            findings.append(Caveat(False, trial.remark, "Videos may show nothing; training does not depend on it."))
    return merged(findings)


def _unversioned(env_id: str) -> list[Caveat]:
    """Return the remark on an id that stands for whichever version is the newest one."""
    from rlinf.rollouts.vec_env.registered_by import newest_version

    newest = newest_version(env_id)
    if not newest:
        return []
    message = f"env.id: {env_id} names no version, and {newest} is made."
    return [Caveat(False, message, f"After an update it may be another one: write {newest}.")]


def _on_success(config: Config, findings: list[Caveat]) -> list[Caveat]:
    """Leave out that no info reports success, unless another key does or `checkpoint.best_metric` needs it.

    After a warm start infos may report what those of random actions do not.
    """
    metric = config.checkpoint.best_metric or ""
    if metric.startswith("eval/success_"):
        meaning = f"Training stops at the first evaluation without it: checkpoint.best_metric is {metric}."
        needed = [replace(each, serious=not has_warm_start(config), meaning=meaning) for each in findings]
        return [new if _NO_SUCCESS in old.message else old for old, new in zip(findings, needed, strict=True)]
    return [each for each in findings if _NO_SUCCESS not in each.message or _NAMES_SUCCESS in each.message]


def _remarks(options: EnvConfig) -> list[Caveat]:
    """Remarks of gymnasium's checker, and of random episodes, on the environment of ``options``."""
    from rlinf.rollouts.isolation.vec_env import remarks_in_process
    from rlinf.rollouts.vec_env.env_checker import remarks_on
    from rlinf.rollouts.vec_env.make_env import make_in_time

    remarks = (
        remarks_in_process(options)
        if options.isolation == "process"
        else remarks_on(make_in_time(options), options.success_key, options.step_timeout_s)
    )
    return [explain(remark.message, fatal=remark.fatal) for remark in remarks]


def _unfit(config: Config, options: EnvConfig) -> list[Caveat]:
    """Environments that differ from each other, or that the policy cannot be made for, or that never end."""
    from rlinf.data.goals import GOALS, GoalEnvironment, require_goals
    from rlinf.data.spaces import observation_leaves
    from rlinf.models.own import OwnClassError, is_own
    from rlinf.rollouts.env_errors import account_of
    from rlinf.rollouts.isolation.start_states import SAME_STARTS, SAME_STARTS_ADVICE, ignores_state_ids
    from rlinf.rollouts.vec_env.vec_env import require_alike
    from rlinf.rollouts.vec_env.vectorize import make_vec_env
    from rlinf.train.assemble.simulator_policy import make_policy, require_fit

    # Exceptions of environments were met before, by the checker.
    training, evaluation = (replace(each, vectorization="sync") for each in (options, evaluation_env(config)))
    vec_env = []
    try:
        for each, count in ((training, 2), (evaluation, 1)):
            vec_env.append(make_vec_env(each, count))
        made, other = ((result.observation_space, result.action_space) for result in vec_env)
        require_alike(made, other, "the evaluation (evaluation.env_kwargs)")
        policy = None
        if config.policy.name == "actor_critic" or is_own(config.policy.name):
            policy = make_policy(config, *made)
        elif config.policy.path is not None:
            require_fit(config, *made)
        if config.algorithm.hindsight != "none":
            require_goals(vec_env[0].observations, options.id)
            # Of another interpreter's environments too.
            cast(GoalEnvironment, vec_env[0]).goal_rewards(*(vec_env[0].observations[name] for name in GOALS))
        frames_a_second = getattr(vec_env[0], "metadata", {}).get("render_fps") or None
        of_data = dataset_findings(config, *made, policy, frames_a_second)
    except OwnClassError as error:
        return [Caveat(True, str(error), "Training would stop here.", "policy")]
    except UserError as error:
        loaded = config.policy.path is not None
        fix = "It is the policy of policy.path that must fit." if loaded else "The policy is built from the spaces."
        return [Caveat(True, str(error), fix)]
    except (Exception, SystemExit) as error:  # whatever a class of the user's own raises is the finding
        own = "Correct policy.name, policy.encoder or policy.distribution, or the options of its class."
        return [Caveat(True, f"it could not be made: {account_of(error)}", own, "policy")]
    finally:
        for opened in vec_env:
            opened.close()
    if any(ignores_state_ids(each) for each in (training, evaluation)):
        return [Caveat(True, SAME_STARTS, SAME_STARTS_ADVICE)]
    whole_episodes = collects_episodes(config) or config.evaluation.size > 0
    endless = _unlimited(options) if whole_episodes and options.isolation == "none" else []
    return [*of_data, *endless, *_unlabelled_goals(config, set(observation_leaves(made[0])))]


def _unlabelled_goals(config: Config, leaves: set[str]) -> list[Caveat]:
    """Return the remark on goals that a replay buffer does not relabel."""
    from rlinf.data.goals import GOALS

    if not config.facts.off_policy or config.algorithm.hindsight != "none" or not leaves.issuperset(GOALS):
        return []
    return [
        Caveat(
            False,
            "it observes achieved_goal and desired_goal",
            "Goals are not relabelled: with a sparse reward, set algorithm.hindsight: future.",
        )
    ]


def _unlimited(options: EnvConfig) -> list[Caveat]:
    """Return a remark on an environment without a time limit whose random episodes are long, or do not end.

    A policy that goes in circles makes them endless even if random actions get out in the end.
    """
    from rlinf.rollouts.env_errors import account_of
    from rlinf.rollouts.vec_env.make_env import make_env
    from rlinf.rollouts.vec_env.vec_env import close_quietly
    from rlinf.rollouts.wrappers import random_action

    env = make_env(options)
    steps = 0
    try:
        if env.has_wrapper_attr("_max_episode_steps"):  # gymnasium's TimeLimit
            return []
        env.reset(seed=0)
        env.action_space.seed(0)
        began = time.monotonic()
        while time.monotonic() - began < _PATIENCE_S:
            _, _, terminated, truncated, _ = env.step(random_action(env))
            steps += 1
            if terminated or truncated:
                lasted = f"lasted {steps:,} decisions"
                return [_endless(lasted)] if steps > _LONG else []
        return [_endless(f"did not end in {_PATIENCE_S:.0f} s")]
    except (Exception, SystemExit) as error:
        return [explain(f"step {steps + 1} of a random episode raised {account_of(error)}", fatal=True)]
    finally:
        close_quietly(env)


def _endless(lasted: str) -> Caveat:
    return Caveat(False, f"it has no time limit, and an episode of random actions {lasted}.", _CUT)


def merged(findings: list[Caveat]) -> list[Caveat]:
    """One finding for all that mean the same: the checker and the walk see a fault each in its own way."""
    by_meaning: dict[str, list[Caveat]] = {}
    for finding in findings:
        by_meaning.setdefault(finding.meaning, []).append(finding)
    return [
        Caveat(
            any(finding.serious for finding in same),
            "\n  ".join(dict.fromkeys(finding.message for finding in same)),
            meaning,
            same[0].subject,
        )
        for meaning, same in by_meaning.items()
    ]


def _try_filming(config: Config) -> FilmingTrial:
    """Whether evaluations can be filmed on this machine; a missing extra is reported with the other extras."""
    from rlinf.rollouts.video.filmable import try_filming
    from rlinf.schema import EnvConfig

    env = evaluation_env(config)
    return try_filming(EnvConfig(env.id, env.kwargs, isolation=env.isolation, python=env.python))


def explain(message: str, *, fatal: bool) -> Caveat:
    """Gymnasium's words and ours. ``fatal``: the checker stopped there."""
    plain = _COLOUR.sub("", message).strip().removeprefix("WARN:").strip()
    for part, serious, meaning in _MEANINGS:
        if part in plain:
            return Caveat(serious and fatal, plain, meaning)
    return Caveat(fatal, plain, _UNKNOWN)
