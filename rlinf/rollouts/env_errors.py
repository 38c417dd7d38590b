"""Exceptions of environments in the words of their author: what was raised, and at which lines of their code."""

from __future__ import annotations

import os
import re
import traceback
from pathlib import Path

import gymnasium

# Frames in here do not help to find a mistake in an environment.
_CARRIERS = (str(Path(__file__).parents[1]), str(Path(gymnasium.__file__).parent))
_LIBRARY = os.path.dirname(os.__file__)
"""Of Python's own modules; installed packages may be below it."""
_MOST_FRAMES = 4
_MOST_CHARS = 500
_OF_GYM: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"(?<!NoneType)' object has no attribute 'seed'"),
        "environments of gymnasium have no seed(): reset(seed=seed) seeds self.np_random",
    ),
    (
        re.compile(r"Generator' object has no attribute '(rand|randn|randint|random_sample)'"),
        "self.np_random is numpy's Generator: it has random, normal and integers",
    ),
    (
        re.compile(r"reset\(\) got an unexpected keyword argument '(seed|options)'"),
        "gymnasium calls reset(self, *, seed=None, options=None), and takes an observation and an info",
    ),
    (
        re.compile(r"'dict' object has no attribute '(all|env_specs)'"),
        "gymnasium.registry is a dictionary of specifications",
    ),
    (re.compile(r"argument '(timestep_limit|tags)'"), "register of gymnasium takes max_episode_steps"),
    (
        re.compile(r"name '(discrete|rendering)' from 'gymnasium\.envs"),
        "gymnasium has neither DiscreteEnv nor a viewer: derive from gymnasium.Env, and draw with pygame",
    ),
    (
        re.compile(r"'gymnasium\.utils\.seeding' has no attribute"),
        "gymnasium.utils.seeding has np_random alone",
    ),
)
"""A part of an exception of code that is written for gym -> what gymnasium has instead."""
_RAISED_WARNING = "a warning; a module that calls warnings.filterwarnings('error') makes exceptions of all of them"


def account_of(error: BaseException, words: str | None = None) -> str:
    """Describe the exception and what caused it, then the innermost frames of the environment's own code.

    ``words`` replace the exception if they explain more.
    """
    text = words or _named(error)
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None and words is None:
        text += f" (after {_named(cause)})"
    frames = _own_frames(error) or (_own_frames(cause) if cause is not None else [])
    return f"{text}, at\n{''.join(traceback.format_list(frames)).rstrip()}" if frames else text


def _named(error: BaseException) -> str:
    text = str(error)
    text = text if len(text) <= _MOST_CHARS else f"{text[:_MOST_CHARS]} ..."
    text += "".join(f" ({advice})" for pattern, advice in _OF_GYM if pattern.search(text))
    if isinstance(error, Warning):
        text += f" ({_RAISED_WARNING})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [frame for frame in frames if _is_own(frame.filename)][-_MOST_FRAMES:]


def _is_own(file: str) -> bool:
    of_python = file.startswith(_LIBRARY) and "site-packages" not in file
    return not (of_python or file.startswith((*_CARRIERS, "<frozen")))
