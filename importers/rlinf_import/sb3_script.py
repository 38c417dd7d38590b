"""A script that builds a model of Stable-Baselines3: its arguments, and those of what makes its environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import gymnasium

from rlinf.base.user_code import own_parameters
from rlinf.config.problems import Origin
from rlinf.config.tree import Branch, Located, locate, put
from rlinf_import.python_calls import Call, Reference, Script
from rlinf_import.refusal import Missing, NotOfferedError, NotTrainingError
from rlinf_import.sb3_tables import CLASSES, MISSING
from rlinf_import.written import Code, Source

_POSITIONS = {
    "ppo": ("policy", "env", "learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda"),
    "maskable_ppo": ("policy", "env", "learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda"),
    "ppo_lstm": ("policy", "env", "learning_rate", "n_steps", "batch_size", "n_epochs", "gamma", "gae_lambda"),
    "a2c": ("policy", "env", "learning_rate", "n_steps", "gamma", "gae_lambda"),
}
_OFF_POLICY = ("policy", "env", "learning_rate", "buffer_size", "learning_starts", "batch_size", "tau", "gamma")
_MAKERS: Mapping[str, tuple[str, ...]] = {
    "make_vec_env": ("env_id", "n_envs", "seed"),
    "make_atari_env": ("env_id", "n_envs", "seed"),
    "make_vec": ("env_id", "n_envs"),
    "make": ("env_id",),
}
_RENAMED = {"id": "env_id", "num_envs": "n_envs"}
_WRAPPERS: Mapping[str, tuple[str, ...]] = {
    "VecNormalize": ("venv", "training", "norm_obs", "norm_reward", "clip_obs", "clip_reward", "gamma"),
    "VecFrameStack": ("venv", "n_stack", "channels_order"),
    "VecTransposeImage": ("venv",),
    "VecMonitor": ("venv", "filename"),
    "VecCheckNan": ("venv",),
    "VecVideoRecorder": ("venv", "video_folder", "record_video_trigger"),
    "VecExtractDictObs": ("venv", "key"),
    "Monitor": ("env", "filename"),
    "DummyVecEnv": ("env_fns",),
    "SubprocVecEnv": ("env_fns",),
}
_CHANGING = ("VecNormalize", "VecFrameStack", "VecExtractDictObs")
"""Wrappers that change what the policy reads."""
_CALLBACKS: Mapping[str, tuple[str, ...]] = {
    "EvalCallback": ("eval_env", "callback_on_new_best", "callback_after_eval", "n_eval_episodes", "eval_freq"),
    "CheckpointCallback": ("save_freq", "save_path", "name_prefix"),
    "StopTrainingOnRewardThreshold": ("reward_threshold",),
    "StopTrainingOnMaxEpisodes": ("max_episodes",),
    "StopTrainingOnNoModelImprovement": ("max_no_improvement_evals", "min_evals"),
    "EveryNTimesteps": ("n_steps", "callback"),
    "ProgressBarCallback": (),
    "LogEveryNTimesteps": ("n_steps",),
}
_EVALUATIONS = {"EvalCallback": ("eval_env",), "evaluate_policy": ("model", "env")}
"""Parameters up to the environment."""
_NOISES = ("NormalActionNoise", "OrnsteinUhlenbeckActionNoise")
_OF_THE_ENVIRONMENT = ("env", "venv", "env_fns", "eval_env")


def read(path: Path, algorithm: str | None) -> tuple[Source, str, str | None]:
    """Read the first model that a script builds, with its algorithm and environment; none of it runs."""
    script = Script.read(path)
    names = [name for name, kind in CLASSES.items() if algorithm in (None, kind)]
    models = [call for call in script.calls(*names) if call.positional or call.named]
    model = models[0] if models else None
    if model is None:
        kind = f"a script that builds no model of Stable-Baselines3, as {names[0]}(...) does"
        raise NotTrainingError(path, kind, "Import the script that builds and trains a model.")
    kind = CLASSES[model.name]
    if kind in MISSING:
        feature, near = MISSING[kind]
        raise NotOfferedError(path, [Missing(feature, f"{path}:{model.line}: {model.name}", near)])
    tree: Branch = {}
    given = model.arguments(*_POSITIONS.get(kind, _OFF_POLICY))
    named = given.pop("env", None)
    environment = named if isinstance(named, str) else None
    environment = _makers(script, path, tree, named) or environment if environment is None else environment
    for name, value in given.items():
        _add(tree, name, value, path, model.line)
    if named is None and environment is None:
        kinds = "a script that builds a model for no environment"
        raise NotTrainingError(path, kinds, "Import the script that trains it.")
    remarks = [
        f"{path}:{call.line}: {call.name}: the model of line {model.line} is read, and this one is not"
        for call in models[1:]
    ]
    _learning(script, path, tree, remarks)
    _wrapped(script, path, tree, remarks)
    return Source(path, tree, remarks), kind, environment


def _add(tree: Branch, key: str, value: object, path: Path, line: int) -> None:
    put(tree, key, locate(_plain(value), Origin(str(path), line)))


def _plain(value: object) -> object:
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _makers(script: Script, path: Path, tree: Branch, trained: object) -> str | None:
    """Read the first environment that is made by name, and every argument of its maker.

    One of an evaluation counts only if there is no other."""
    evaluated = _evaluation_lines(script, trained)
    for call in sorted(script.calls(*_MAKERS), key=lambda call: call.line in evaluated):
        given = {_RENAMED.get(name, name): value for name, value in call.arguments(*_MAKERS[call.name]).items()}
        name = given.pop("env_id", None)
        if not isinstance(name, str):
            continue
        if call.name == "make":
            settings = {key: given.pop(key) for key in list(given) if key not in ("render_mode", "max_episode_steps")}
            given |= {"env_kwargs": settings} if settings else {}
        for key, value in given.items():
            _add(tree, key, value, path, call.line)
        return name
    return None


def _evaluation_lines(script: Script, trained: object) -> set[int]:
    """Return the lines that assign environments of evaluations only; ``trained``: the one that the model is given."""
    environments = [
        call.arguments(*names).get(names[-1]) for name, names in _EVALUATIONS.items() for call in script.calls(name)
    ]
    return script.assigning_lines({one.text for one in environments if isinstance(one, Code) and one != trained})


def _learning(script: Script, path: Path, tree: Branch, remarks: list[str]) -> None:
    """Add the arguments of ``learn``, callbacks and action noise; the first call of each counts."""
    for number, call in enumerate(script.calls("learn")):
        given = call.arguments("total_timesteps", "callback", "log_interval")
        steps = given.get("total_timesteps")
        if number:
            remarks.append(f"{path}:{call.line}: learn: total_timesteps: {reference(steps)}: the first call counts")
        elif call.looped:
            given["total_timesteps"] = Code(f"{reference(steps)}, in a loop")
        for name, value in given.items():
            if name not in tree:
                _add(tree, name, value, path, call.line)
    for call in script.calls("set_random_seed"):
        if call.positional and "seed" not in tree:
            _add(tree, "seed", call.positional[0], path, call.line)
    for call in script.calls(*_CALLBACKS):
        for name, value in call.arguments(*_CALLBACKS[call.name]).items():
            if name not in _OF_THE_ENVIRONMENT:
                _add(tree, f"{call.name}.{name}", value, path, call.line)
    for call in script.calls(*_NOISES):
        kind = "normal" if call.name.startswith("Normal") else "ornstein-uhlenbeck"
        _add(tree, "noise_type", kind, path, call.line)
        sigma = call.named.get("sigma", call.positional[1] if len(call.positional) > 1 else None)
        _add(tree, "noise_std", _scale(sigma), path, call.line)
        tree.pop("action_noise", None)


def _scale(sigma: object) -> object:
    """Read the number in ``0.1 * np.ones(n)``."""
    if isinstance(sigma, Code):
        first = sigma.text.partition("*")[0].strip()
        try:
            return float(first)
        except ValueError:
            return sigma
    return sigma


def _wrapped(script: Script, path: Path, tree: Branch, remarks: list[str]) -> None:
    """Wrappers of the vector environment, and those of gymnasium, with their arguments.

    The first call of each counts, and one that does not update its statistics, of an evaluation, only if it is alone.
    """
    read: dict[str, tuple[int, Mapping[str, object]]] = {}
    for call in sorted(script.calls(*_WRAPPERS), key=_evaluates):
        given = call.arguments(*_WRAPPERS[call.name])
        settings = {name: value for name, value in given.items() if name not in _OF_THE_ENVIRONMENT}
        if call.name in read:
            line, others = read[call.name]
            if call.name in _CHANGING and settings != others and not _evaluates(call):
                remarks.append(f"{path}:{call.line}: {call.name}: that of line {line} is read, and this one is not")
            continue
        read[call.name] = call.line, settings
        if not settings:
            put(tree, call.name, Located(True, Origin(str(path), call.line)))
        makers = given.get("env_fns")
        if makers is not None and "n_envs" not in tree:
            _add(tree, "n_envs", len(makers) if isinstance(makers, list) else makers, path, call.line)
        for name, value in settings.items():
            _add(tree, f"{call.name}.{name}", value, path, call.line)
    for call in script.calls("load"):
        # Of a script that normalises afresh it is what it evaluates with afterwards.
        if call.owner.rpartition(".")[2] == "VecNormalize" and "VecNormalize" not in tree:
            settings = {f"VecNormalize.{name}": value for name, value in call.arguments("load_path", "venv").items()}
            settings.pop("VecNormalize.venv", None)
            for name, value in settings.items():
                _add(tree, name, value, path, call.line)
    wrappers: list[object] = []
    for call in script.calls_from("gymnasium.wrappers", "gym.wrappers"):
        wrapper = _wrapper(call)
        if wrapper not in wrappers:  # evaluations wrap an environment of their own alike
            wrappers.append(wrapper)
    if wrappers:
        _add(tree, "env_wrapper", wrappers, path, 1)


def _evaluates(call: Call) -> bool:
    """Whether a wrapper leaves its statistics as they are: it is of an evaluation."""
    return call.arguments(*_WRAPPERS[call.name]).get("training") is False


def _wrapper(call: Call) -> object:
    """Return a wrapper with its arguments by name, as gymnasium's class of that name has them."""
    name = f"gymnasium.wrappers.{call.name}"
    made = getattr(gymnasium.wrappers, call.name, None)
    names = [] if made is None else [one.name for one in own_parameters(made, behind=1)]
    settings = {key: value for key, value in call.arguments("env", *names).items() if key != "env"}
    return {name: settings} if settings else name


def reference(value: object) -> str:
    """Return the dotted name that a value of the script stands for."""
    if isinstance(value, Reference):
        return f"{value.module}.{value.name}"
    return value.text if isinstance(value, Code) else str(value)
