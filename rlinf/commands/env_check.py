"""`rlinf check` for simulators: gymnasium's own checker on the environment, and what its findings mean for training."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass

from rlinf.config import Config
from rlinf.config.extras import simulator_extra

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_REPEATS = (
    "Groups of equal starts, evaluation on fixed starts and exact resuming need resets and steps that repeat: call "
    "super().reset(seed=seed) first, and draw only from self.np_random."
)
# A part of gymnasium's message -> whether training would go wrong, and what it means there. The first that fits counts.
_MEANINGS: tuple[tuple[str, bool, str], ...] = (
    (
        "not within the observation space",
        True,
        "The policy is built from the space: correct its shape, dtype or bounds, or what reset and step return.",
    ),
    ("observations are not equal although similar", False, _REPEATS),
    ("not equal although similar", False, _REPEATS),
    ("step info are not equivalent", False, "Only the success flag of the info is read here; see that it repeats."),
    ("non-deterministic", True, _REPEATS),
    ("not equivalent for the same seed", True, _REPEATS),
    ("random number generator", True, _REPEATS),
    ("super().reset(seed=seed)", True, _REPEATS),
    ("`seed`", True, _REPEATS),
    ("share an object", False, "Rollouts copy what they keep, so training is right; other users of the env may not."),
    ("truncates after 1 step", True, "Every episode would be one step long: look at max_episode_steps."),
    (
        "symmetric and normalized",
        False,
        "A gaussian policy begins with actions of size 1 around 0; policy.distribution: squashed_gaussian or beta "
        "fills the bounds instead.",
    ),
    ("maximum and minimum values are equal", False, "Harmless: an entry that never changes teaches nothing."),
    ("infinity", False, "Harmless; env.normalize_observations: true brings observations of any size to one scale."),
    ("`options`", False, "Harmless: starts are chosen by seeds here."),
)
_UNKNOWN = "Compare with gymnasium's documentation of Env.reset and Env.step."


@dataclass(frozen=True)
class EnvFinding:
    """One remark. ``serious``: training would be wrong, or would not start."""

    serious: bool
    message: str
    meaning: str

    def __str__(self) -> str:
        return f"! environment: {self.message}\n  {self.meaning}"


def examine_env(config: Config) -> list[EnvFinding]:
    """Makes the environment of ``config`` once and has it checked; a simulator that is not installed is left alone."""
    from gymnasium.utils.env_checker import check_env

    from rlinf.rollouts.make_env import EnvOptions, make_env
    from rlinf.rollouts.offscreen import offscreen

    if config.evaluation.video_every:
        os.environ.update(offscreen())
    extra = simulator_extra(config.env.id)
    if extra is not None and not extra.installed:
        return []
    try:
        env = make_env(EnvOptions(config.env.id, config.env.kwargs)).unwrapped
    except Exception as error:  # whatever a constructor raises is the finding
        return [EnvFinding(True, f"it could not be made: {error}", "Correct env.id or env.kwargs.")]
    told: list[tuple[str, bool]] = []
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            check_env(env, skip_render_check=True)
        except Exception as error:
            told.append((str(error) or type(error).__name__, True))
        finally:
            env.close()
    told += [(str(warning.message), False) for warning in heard if "WARN:" in str(warning.message)]
    # A Dict has the same remark for each of its parts.
    findings = [explain(message, fatal=fatal) for message, fatal in told]
    if config.evaluation.video_every and (problem := _filming_problem(config)) is not None:
        findings.append(EnvFinding(True, problem, "Set evaluation.video_every: 0 to go without videos."))
    return list(dict.fromkeys(findings))


def _filming_problem(config: Config) -> str | None:
    """Why evaluations could not be filmed on this machine; a missing extra is told with the other extras."""
    from rlinf.rollouts.filmable import filming_problem
    from rlinf.rollouts.make_env import EnvOptions

    kwargs = {**config.env.kwargs, **(config.evaluation.env_kwargs or {})}
    return filming_problem(EnvOptions(config.env.id, kwargs))


def explain(message: str, *, fatal: bool) -> EnvFinding:
    """Gymnasium's words and ours. ``fatal``: the checker stopped there."""
    plain = _COLOUR.sub("", message).strip().removeprefix("WARN:").strip()
    for part, serious, meaning in _MEANINGS:
        if part in plain:
            return EnvFinding(serious and fatal, plain, meaning)
    return EnvFinding(fatal, plain, _UNKNOWN)
