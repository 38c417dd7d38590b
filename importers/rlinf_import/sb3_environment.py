"""Environments of Stable-Baselines3: makers, wrappers, normalisation, callbacks."""

from __future__ import annotations

from rlinf.rollouts.vec_env.registered_by import made_id
from rlinf_import.python_calls import Reference, literal
from rlinf_import.sb3_script import reference
from rlinf_import.sb3_tables import ATARI, GAME, is_atari, with_module
from rlinf_import.sheet import Sheet
from rlinf_import.written import Code

_ATARI_WRAPPER = "stable_baselines3.common.atari_wrappers.AtariWrapper"
_SAME = {"clip_obs": 10.0, "clip_reward": 10.0, "epsilon": 1e-8}
"""Values that are the same here."""
_NORMALISED = {
    "clip_obs": "normalised observations are cut at 10",
    "clip_reward": "normalised rewards are cut at 10",
    "epsilon": "1e-8 is added to variances",
    "training": "statistics are updated while a run trains, and kept afterwards",
    "norm_obs_keys": "all parts of an observation are normalised",
    "gamma": "returns are discounted by algorithm.gamma",
}


_OBSERVERS = {
    "RecordVideo": "evaluation.video_every films evaluations",
    "RecordEpisodeStatistics": "metrics need no wrapper",
    "HumanRendering": "`rlinf watch` shows a policy",
}
"""Wrappers that change nothing of what is learned."""


def environment(sheet: Sheet, name: str | None, algorithm: str) -> int:
    """Set the environment with its wrappers; returns how many of them step side by side."""
    if name is None:
        sheet.put("env.id", "path.to.module:YourEnv")
        sheet.settings.pop("env.id")
        sheet.refuse(
            "an environment that the script makes itself",
            "env.id: module:Id, which you register and name with --env",
            "env_id",
        )
    elif is_atari(name):
        _atari(sheet, name)
    else:
        sheet.put("env.id", with_module(made_id(name)))
        if made_id(name) != name:
            sheet.differs.append(f"{sheet.source.path}: {name}: today's package has {made_id(name)}")
    run = "atari" if name in (None, "atari") else str(name).rpartition(":")[2].rpartition("/")[2]
    sheet.put("run.name", f"{run}_{algorithm}")
    envs = sheet.count("n_envs") or 1
    sheet.put("env.num_envs", envs, "n_envs")
    _arguments(sheet)
    _stack(sheet)
    _wrappers(sheet)
    _vector_wrappers(sheet)
    _normalisation(sheet)
    sheet.copy_as("max_episode_steps", "env.max_episode_steps")
    sheet.copy("seed")
    return envs


def _atari(sheet: Sheet, name: str) -> None:
    result = ATARI.fullmatch(name)
    game = GAME if result is None else result.group(1)
    sheet.put("env.id", f"ale_py:ALE/{game}-v5")
    sheet.put("env.kwargs.frameskip", 1)
    sheet.put("env.kwargs.repeat_action_probability", 0.0)
    if result is None:
        sheet.defer(f"env.id: the game ({game} stands for it)")


def _arguments(sheet: Sheet) -> None:
    located = sheet.written("env_kwargs")
    if located is None:
        return
    plain = located.plain()
    chosen = literal(plain) if isinstance(plain, str) else plain
    if not isinstance(chosen, dict):
        sheet.defer("env.kwargs: arguments of the environment", "env_kwargs")
        return
    for key, value in chosen.items():
        if isinstance(value, Code):
            sheet.defer(f"env.kwargs.{key}: {value.text} is known only when the script runs", f"env_kwargs.{key}")
        else:
            sheet.put(f"env.kwargs.{key}", value, f"env_kwargs.{key}")


def _stack(sheet: Sheet) -> None:
    for key in ("frame_stack", "VecFrameStack.n_stack"):
        _stacked(sheet, sheet.take(key), key)
    sheet.ignore("VecFrameStack.channels_order", "frames are stacked as the policy's encoder reads them")


def _stacked(sheet: Sheet, frames: object, key: str) -> None:
    if sheet.value("env.frame_stack") not in (None, 1) and frames not in (None, 1):
        sheet.defer("frames are stacked a second time there, and once here, by env.frame_stack", key)
    elif frames is not None:
        sheet.put("env.frame_stack", frames, key)
        if frames != 1:
            sheet.put("env.frame_padding", "zero", key)


def _wrappers(sheet: Sheet) -> None:
    """``env_wrapper`` of the Zoo, and ``wrapper_class`` with its arguments of a script."""
    wrappers: list[object] = []
    for key in ("env_wrapper", "wrapper_class"):
        if sheet.written(key) is None:
            continue
        for name, options in _listed(sheet, key):
            if key == "wrapper_class":
                options = sheet.take("wrapper_kwargs")
            wrappers += _wrapper(sheet, name, options, key)
        if wrappers:
            sheet.put("env.wrappers", wrappers, key)
        sheet.named.add(key)
        sheet.named.update(name for name, _ in sheet.source.leaves() if name.startswith((f"{key}.", "wrapper_kwargs")))


def _listed(sheet: Sheet, key: str) -> list[tuple[str, object]]:
    """Return name and arguments (None: none written) of each wrapper of a key, which holds one or a list."""
    located = sheet.written(key)
    plain = None if located is None else located.plain()
    wrappers = plain if isinstance(plain, list) else [] if plain is None else [plain]
    pairs = (next(iter(one.items())) if isinstance(one, dict) else (reference(one), None) for one in wrappers)
    return [(str(name), options) for name, options in pairs]


def _wrapper(sheet: Sheet, name: str, options: object, key: str) -> list[object]:
    if name == _ATARI_WRAPPER or name.endswith(".AtariWrapper"):
        sheet.differ(key, "AtariWrapper is gymnasium's AtariPreprocessing with rewards clipped to [-1, 1]")
        settings = {"noop_max": 30, "frame_skip": 4, "screen_size": 84, "terminal_on_life_loss": True}
        return [{"AtariPreprocessing": settings}, {"ClipReward": {"min_reward": -1, "max_reward": 1}}]
    module, _, made = name.rpartition(".")
    if made in _OBSERVERS:
        sheet.ignored.append(f"{sheet.origin(key)}: {key}: {made}: {_OBSERVERS[made]}")
        return []
    settings = options if isinstance(options, dict) else {}
    if made == "VecFrameStack":
        _stacked(sheet, settings.get("n_stack"), key)
        return []
    for argument in [argument for argument, value in settings.items() if _runs(value)]:
        sheet.defer(f"{made}: {argument} is known only when the script runs", key)
        settings = {other: value for other, value in settings.items() if other != argument}
    known = module in ("gym.wrappers", "gymnasium.wrappers")
    path = made if known and not module.startswith("gymnasium") else f"{module}:{made}" if module else made
    if module.partition(".")[0] in ("stable_baselines3", "sb3_contrib", "rl_zoo3"):
        sheet.defer(f"{made} needs the package {module.partition('.')[0]}: gymnasium's wrappers have plain names", key)
    return [{path: settings} if settings else path]


def _vector_wrappers(sheet: Sheet) -> None:
    """``vec_env_wrapper`` of the Zoo: frames are stacked here as well, and others are left to a person."""
    key = "vec_env_wrapper"
    for name, options in _listed(sheet, key):
        made = name.rpartition(".")[2]
        if made == "VecFrameStack" and isinstance(options, dict) and isinstance(options.get("n_stack"), int):
            _stacked(sheet, options["n_stack"], key)
        elif made in sheet.names:
            sheet.ignored.append(f"{sheet.origin(key)}: {key}: {made}: {sheet.names[made].note}")
        else:
            sheet.defer(f"{made} wraps all environments together: env.wrappers are of single ones", key)
    if sheet.written(key) is not None:
        sheet.named.update(name for name, _ in sheet.source.leaves() if name.startswith(key))


def _runs(value: object) -> bool:
    """Whether a value, or a part of it, exists only while the script runs."""
    parts = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    return isinstance(value, Code | Reference) or any(map(_runs, parts))


def _normalisation(sheet: Sheet) -> None:
    key = "normalize"
    given = sheet.take(key)
    chosen = literal(given) if isinstance(given, str) else given
    if chosen is None and sheet.written("VecNormalize") is not None:
        key = "VecNormalize"
        whole = sheet.take(key)
        chosen = whole if isinstance(whole, dict) else {}
    if chosen is True or (isinstance(chosen, dict)):
        options = chosen if isinstance(chosen, dict) else {}
        names = [f"{key}.{part}" for part in ("norm_obs", "norm_reward") if part in options]
        sheet.put("env.normalize_observations", options.get("norm_obs", True), *(names or [key]))
        sheet.put("env.normalize_rewards", options.get("norm_reward", True), *(names or [key]))
        sheet.named.add(key)
        if isinstance(options.get("load_path"), str):
            sheet.put("env.normalize_from", options["load_path"], f"{key}.load_path")
        for name, why in _NORMALISED.items():
            if name in options:
                location = sheet.origin(key)
                same = options[name] == _SAME.get(name)
                (sheet.ignored if same else sheet.differs).append(f"{location}: {key}.{name}: {options[name]}: {why}")
                sheet.named.add(f"{key}.{name}")
    elif isinstance(chosen, Code):
        sheet.defer("env.normalize_observations and env.normalize_rewards", key)


def callbacks(sheet: Sheet, steps: int, envs: int) -> None:
    """Set evaluation and checkpoints of a script's callbacks, in training iterations."""
    for key, ours in (
        ("EvalCallback.eval_freq", "evaluation.every"),
        ("CheckpointCallback.save_freq", "checkpoint.every"),
    ):
        period = sheet.count(key)
        if period:
            sheet.put(ours, max(1, round(period * envs / steps)), key)
            sheet.differ(key, f"it counts steps of each environment; a training iteration is {steps} of all")
    sheet.copy_as("EvalCallback.n_eval_episodes", "evaluation.size")
    if sheet.take("EvalCallback.deterministic") is False:
        sheet.put("evaluation.temperature", 1.0, "EvalCallback.deterministic")
    if sheet.text("EvalCallback.best_model_save_path"):
        sheet.put("checkpoint.best_metric", "eval/return", "EvalCallback.best_model_save_path")
    ignored = {
        "EvalCallback": "evaluations and the best checkpoint are in the run directory",
        "CheckpointCallback": "checkpoints hold all that a run needs to go on, in the run directory",
    }
    for key, why in ignored.items():
        sheet.ignore(key, why)
