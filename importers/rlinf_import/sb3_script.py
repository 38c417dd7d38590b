"""A script that builds a model of Stable-Baselines3: its arguments, and those of what makes its environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

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
_CALLBACKS = (
    "EvalCallback",
    "CheckpointCallback",
    "StopTrainingOnRewardThreshold",
    "StopTrainingOnMaxEpisodes",
    "StopTrainingOnNoModelImprovement",
    "EveryNTimesteps",
    "ProgressBarCallback",
    "LogEveryNTimesteps",
)
_NOISES = ("NormalActionNoise", "OrnsteinUhlenbeckActionNoise")
_OF_THE_ENVIRONMENT = ("env", "venv", "env_fns", "eval_env")


def read(path: Path, algorithm: str | None) -> tuple[Source, str, str | None]:
    """Read the first model that a script builds, with its algorithm and environment; none of it runs."""
    script = Script.read(path)
    names = [name for name, kind in CLASSES.items() if algorithm in (None, kind)]
    model = next((call for call in script.calls(*names) if call.positional or call.named), None)
    if model is None:
        kind = f"a script that builds no {' and no '.join(names)}"
        raise NotTrainingError(path, kind, "Import the script that builds and trains a model.")
    kind = CLASSES[model.name]
    if kind in MISSING:
        feature, near = MISSING[kind]
        raise NotOfferedError(path, [Missing(feature, f"{path}:{model.line}: {model.name}", near)])
    tree: Branch = {}
    given = dict(zip(_POSITIONS.get(kind, _OFF_POLICY), model.positional, strict=False)) | model.named
    named = given.pop("env", None)
    environment = named if isinstance(named, str) else None
    environment = _makers(script, path, tree) or environment if environment is None else environment
    for name, value in given.items():
        _add(tree, name, value, path, model.line)
    if named is None and environment is None:
        kinds = "a script that builds a model for no environment"
        raise NotTrainingError(path, kinds, "Import the script that trains it.")
    _learning(script, path, tree)
    _wrapped(script, path, tree)
    return Source(path, tree, []), kind, environment


def _add(tree: Branch, key: str, value: object, path: Path, line: int) -> None:
    put(tree, key, locate(_plain(value), Origin(str(path), line)))


def _plain(value: object) -> object:
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _makers(script: Script, path: Path, tree: Branch) -> str | None:
    """Read the first environment that is made by name, and every argument of its maker."""
    for call in script.calls(*_MAKERS):
        given = dict(zip(_MAKERS[call.name], call.positional, strict=False))
        given |= {_RENAMED.get(name, name): value for name, value in call.named.items()}
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


def _learning(script: Script, path: Path, tree: Branch) -> None:
    """Add the arguments of ``learn``, callbacks and action noise; the first call of each counts."""
    for call in script.calls("learn"):
        given = dict(zip(("total_timesteps", "callback", "log_interval"), call.positional, strict=False)) | call.named
        for name, value in given.items():
            if name not in tree:
                _add(tree, name, value, path, call.line)
    for call in script.calls(*_CALLBACKS):
        given = dict(zip(("eval_env",), call.positional, strict=False)) | call.named
        for name, value in given.items():
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


def _wrapped(script: Script, path: Path, tree: Branch) -> None:
    """Wrappers of the vector environment, and those of gymnasium, with their arguments."""
    for call in script.calls(*_WRAPPERS):
        given = dict(zip(_WRAPPERS[call.name], call.positional, strict=False)) | call.named
        settings = {name: value for name, value in given.items() if name not in _OF_THE_ENVIRONMENT}
        if not settings:
            put(tree, call.name, Located(True, Origin(str(path), call.line)))
        for name, value in settings.items():
            _add(tree, f"{call.name}.{name}", value, path, call.line)
    wrappers = [_wrapper(call) for call in script.calls_from("gymnasium.wrappers", "gym.wrappers")]
    if wrappers:
        _add(tree, "env_wrapper", wrappers, path, 1)


def _wrapper(call: Call) -> object:
    name = f"gymnasium.wrappers.{call.name}"
    return {name: dict(call.named)} if call.named else name


def reference(value: object) -> str:
    """Return the dotted name that a value of the script stands for."""
    if isinstance(value, Reference):
        return f"{value.module}.{value.name}"
    return value.text if isinstance(value, Code) else str(value)
