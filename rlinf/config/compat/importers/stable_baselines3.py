"""Stable-Baselines3: an entry of RL Zoo's hyper-parameter files, or a script that builds PPO or SAC.

Zoo's keys: ``hyperparams/*.yml`` and ``rl_zoo3/exp_manager.py`` of github.com/DLR-RM/rl-baselines3-zoo, 23 April 2026;
arguments and defaults of PPO and SAC: Stable-Baselines3 2.9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from rlinf.config.compat.importers.batches import minibatches
from rlinf.config.compat.importers.python_calls import Call, Script, literal
from rlinf.config.compat.importers.sheet import Sheet
from rlinf.config.compat.importers.written import Code, Source, document
from rlinf.config.compat.names.meaning import Meaning, nothing
from rlinf.config.problems import Origin
from rlinf.config.tree import Branch, locate
from rlinf.errors import UserError

ALGORITHMS = ("ppo", "sac")
_COMMON: Mapping[str, object] = {"learning_rate": 3e-4, "gamma": 0.99, "n_envs": 1}
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "ppo": {
        **_COMMON,
        "n_steps": 2048,
        "batch_size": 64,
        "n_epochs": 10,
        "gae_lambda": 0.95,
        "clip_range": 0.2,
        "normalize_advantage": True,
        "ent_coef": 0.0,
        "vf_coef": 0.5,
        "max_grad_norm": 0.5,
    },
    "sac": {
        **_COMMON,
        "buffer_size": 1_000_000,
        "learning_starts": 100,
        "batch_size": 256,
        "tau": 0.005,
        "train_freq": 1,
        "gradient_steps": 1,
        "ent_coef": "auto",
    },
}
"""What Stable-Baselines3 does where nobody writes anything."""

NAMES: Mapping[str, Meaning] = {
    "policy": nothing("actor_critic takes a CNN for image observations by itself"),
    "callback": nothing("evaluation and checkpoints are sections of the file"),
    "verbose": nothing("the terminal shows what logging.progress says"),
    "device": nothing("a GPU is used where there is one (cluster.gpus_per_learner)"),
}
"""Beside :data:`rlinf.config.compat.names.stable_baselines3.STABLE_BASELINES3`."""

_COLLECTED = 16
"""Decisions of every environment in a training iteration of SAC: a longer one costs fewer messages, updates stay."""
_CLASSES = {"PPO": "ppo", "SAC": "sac"}
_POSITIONS = {"ppo": ("policy", "env", "learning_rate", "n_steps", "batch_size", "n_epochs"), "sac": ("policy", "env")}
_MAKERS = ("make_vec_env", "make", "make_vec", "SubprocVecEnv", "DummyVecEnv", "VecNormalize", "make_atari_env")


def zoo(path: Path, environment: str | None, algorithm: str | None) -> tuple[Source, str, str]:
    """One entry of a Zoo file, with its algorithm and its environment."""
    words = path.stem.lower().split("_")
    named = next((word for word in ALGORITHMS if word in words and "lstm" not in words), path.stem)
    name = algorithm or named
    if name not in ALGORITHMS:
        raise UserError(f"{path}: {name} is not offered here: {', '.join(ALGORITHMS)} (--algorithm says which it is)")
    tree = document(path)
    entries = [entry for entry, located in tree.items() if located.branch is not None]
    if environment is None and len(entries) == 1:
        environment = entries[0]
    if environment is None:
        raise UserError(
            f"{path} holds {len(entries)} environments: say which with --env, for example --env {entries[0]}"
        )
    chosen = get_entry(tree, environment)
    if chosen is None:
        from rlinf.config.names import nearest

        close = nearest(environment, entries)
        raise UserError(f"{path} holds no {environment}.{f' Did you mean {close[0]}?' if close else ''}")
    return Source(path, dict(chosen), []), name, environment


def zoo_entries(path: Path) -> list[str]:
    """The environments that a Zoo file has an entry of."""
    return [entry for entry, located in document(path).items() if located.branch is not None]


def get_entry(tree: Branch, environment: str) -> Branch | None:
    """The mapping of one environment; ids hold dots, so the tree is not walked."""
    located = tree.get(environment)
    return None if located is None else located.branch


def script(path: Path, algorithm: str | None) -> tuple[Source, str, str | None]:
    """The first PPO or SAC that a script builds, with what ``learn`` and the makers of environments are given."""
    read = Script.read(path)
    names = [name for name, kind in _CLASSES.items() if algorithm in (None, kind)]
    model = next(read.calls(*names), None)
    if model is None:
        raise UserError(f"{path} builds no {' and no '.join(names)}.")
    kind = _CLASSES[model.name]
    written: dict[str, tuple[object, int]] = {}
    for name, value in zip(_POSITIONS[kind], model.positional, strict=False):
        written[name] = (value, model.line)
    written.update({name: (value, model.line) for name, value in model.named.items()})
    environment = _environment(read, written)
    for call in read.calls("learn"):
        if call.positional:
            written["total_timesteps"] = (call.positional[0], call.line)
        written.update({name: (value, call.line) for name, value in call.named.items()})
    tree = {name: locate(value, Origin(str(path), line)) for name, (value, line) in written.items()}
    return Source(path, tree, []), kind, environment


def _environment(read: Script, written: dict[str, tuple[object, int]]) -> str | None:
    given = written.pop("env", (None, 0))[0]
    environment = given if isinstance(given, str) else None
    for call in read.calls(*_MAKERS):
        if call.name == "VecNormalize":
            written["normalize"] = (_normalised(call), call.line)
        elif call.positional and isinstance(call.positional[0], str):
            environment = environment or call.positional[0]
            if "n_envs" in call.named:
                written.setdefault("n_envs", (call.named["n_envs"], call.line))
            elif len(call.positional) > 1 and call.name == "make_vec_env":
                written.setdefault("n_envs", (call.positional[1], call.line))
    return environment


def _normalised(call: Call) -> dict[str, object]:
    return {"norm_obs": call.named.get("norm_obs", True), "norm_reward": call.named.get("norm_reward", True)}


def translate(sheet: Sheet) -> None:
    """Put the hyper-parameters, and what Stable-Baselines3 does by default, into our keys."""
    algorithm, environment = sheet.options.algorithm, sheet.options.environment
    if environment:
        sheet.put("env.id", environment)
        sheet.put("run.name", f"{Path(environment.replace(':', '/')).name}_{algorithm}")
    else:
        sheet.ask("env.id: the environment")
    envs = sheet.count("n_envs") or 1
    sheet.put("env.num_envs", envs, "n_envs")
    sheet.put("policy.name", "actor_critic")
    steps = _sac(sheet, envs) if algorithm == "sac" else _ppo(sheet, envs)
    _rate(sheet)
    _normalisation(sheet)
    _network(sheet, algorithm == "sac")
    _wrappers(sheet)
    for key in ("n_timesteps", "total_timesteps"):
        total = sheet.number(key)
        if total is not None:
            sheet.put("run.max_steps", max(1, math.ceil(total / steps)), key)
            sheet.differ(key, f"a training iteration is {steps} environment steps here")
    if "run.max_steps" not in sheet.settings:
        sheet.ask(f"run.max_steps: of {steps} environment steps each")
    sheet.copy("seed")


def _ppo(sheet: Sheet, envs: int) -> int:
    each = sheet.count("n_steps") or 2048
    sheet.put("rollout.num_steps", each, "n_steps")
    sheet.put("algorithm.adv_type", "gae")
    sheet.put("algorithm.loss_type", "actor_critic")
    sheet.copy("gamma", "gae_lambda", "n_epochs", "normalize_advantage", "vf_coef", "max_grad_norm")
    sheet.copy_as("ent_coef", "algorithm.entropy_bonus")
    sheet.put("learner.optimizer.eps", 1e-5)
    size = sheet.count("batch_size") or 64
    minibatches(sheet, envs * each, min(size, envs * each), "batch_size", "n_steps", "n_envs")
    for key, ours in (("clip_range", "algorithm.ratio_clip_eps"), ("clip_range_vf", "algorithm.value_clip")):
        clip = sheet.take(key)
        if isinstance(clip, str) and clip.startswith("lin_"):
            sheet.put(ours, float(clip.removeprefix("lin_")), key)
            sheet.differ(key, "it falls to 0 there and is constant here")
        elif clip is not None:
            sheet.put(ours, clip, key)
    sheet.differs.append(
        f"{sheet.source.path}: Stable-Baselines3 normalises advantages in each minibatch, we over the whole batch; a "
        "truncated episode is bootstrapped in both"
    )
    return envs * each


def _sac(sheet: Sheet, envs: int) -> int:
    sheet.put("algorithm.loss_type", "sac")
    sheet.copy("gamma", "buffer_size", "learning_starts", "tau")
    sheet.copy_as("batch_size", "algorithm.replay_batch_size")
    sheet.copy_as("n_steps", "algorithm.n_step")
    frequency, updates = sheet.take("train_freq"), sheet.count("gradient_steps")
    if isinstance(frequency, int):
        ratio = 1.0 if updates == -1 else (updates or 1) / (frequency * envs)
        sheet.put("algorithm.replay_ratio", ratio, "gradient_steps", "train_freq")
    else:
        sheet.ask("algorithm.replay_ratio: updates per environment step", "train_freq")
    each = max(1, (frequency if isinstance(frequency, int) else 1), _COLLECTED // envs)
    sheet.put("rollout.num_steps", each, "train_freq")
    if frequency != each:
        sheet.differ("train_freq", f"{each} decisions of every environment are collected, then as many updates follow")
    alpha, target = sheet.take("ent_coef"), sheet.take("target_entropy")
    if isinstance(alpha, int | float):
        sheet.put("algorithm.sac_alpha", float(alpha), "ent_coef")
    elif isinstance(alpha, str) and alpha != "auto":
        sheet.differ("ent_coef", "the temperature is learned from 1")
    if isinstance(target, int | float):
        sheet.put("algorithm.sac_target_entropy", target, "target_entropy")
    return envs * each


def _rate(sheet: Sheet) -> None:
    rate = sheet.take("learning_rate")
    if isinstance(rate, str) and rate.startswith("lin_"):
        sheet.put("learner.optimizer.lr", float(rate.removeprefix("lin_")), "learning_rate")
        if sheet.options.algorithm == "sac":
            sheet.differ("learning_rate", "it falls to 0 there and is constant here")
        else:
            sheet.put("learner.optimizer.schedule", "linear", "learning_rate")
    elif rate is not None:
        sheet.put("learner.optimizer.lr", rate, "learning_rate")


def _normalisation(sheet: Sheet) -> None:
    given = sheet.take("normalize")
    chosen = literal(given) if isinstance(given, str) else given
    if chosen is True:
        chosen = {"norm_obs": True, "norm_reward": True}
    if isinstance(chosen, dict):
        sheet.put("env.normalize_observations", chosen.get("norm_obs", True), "normalize")
        sheet.put("env.normalize_rewards", chosen.get("norm_reward", True), "normalize")


def _network(sheet: Sheet, off_policy: bool) -> None:
    sheet.put("policy.hidden_sizes", [256, 256] if off_policy else [64, 64])
    sheet.put("policy.activation", "relu" if off_policy else "tanh")
    located = sheet.written("policy_kwargs")
    if located is None:
        return
    plain = located.plain()
    chosen = literal(plain) if isinstance(plain, str) else plain
    if not isinstance(chosen, dict):
        sheet.ask("policy.hidden_sizes, policy.activation, policy.init_log_std", "policy_kwargs")
        return
    for name, value in chosen.items():
        if name == "net_arch":
            _layers(sheet, value)
        elif name == "activation_fn":
            text = value.text if isinstance(value, Code) else str(value)
            sheet.put("policy.activation", text.rpartition(".")[2].lower(), "policy_kwargs")
        elif name == "log_std_init":
            sheet.put("policy.init_log_std", value, "policy_kwargs")
            if off_policy:
                sheet.settings.pop("policy.init_log_std")
                sheet.ignored.append(f"{located.origin}: policy_kwargs.log_std_init: SAC's deviation is learned from 1")
        elif name == "ortho_init":
            sheet.ignored.append(f"{located.origin}: policy_kwargs.ortho_init: layers are always orthogonal at first")
        else:
            sheet.decide.append(f"{located.origin}: policy_kwargs.{name}: {value}: see the keys of `policy`")


def _layers(sheet: Sheet, arch: object) -> None:
    sizes = arch.get("pi", arch.get("qf")) if isinstance(arch, dict) else arch
    if isinstance(sizes, list) and all(isinstance(size, int) for size in sizes):
        sheet.put("policy.hidden_sizes", sizes, "policy_kwargs")
    if isinstance(arch, dict) and len({str(size) for size in arch.values()}) > 1:
        sheet.differ("policy_kwargs", "actor and critic have the same hidden layers here: those of the actor are taken")


def _wrappers(sheet: Sheet) -> None:
    sheet.copy_as("frame_stack", "env.frame_stack")
    located = sheet.written("env_wrapper")
    if located is None:
        return
    plain = located.plain()
    wrappers = []
    for wrapper in plain if isinstance(plain, list) else [plain]:
        name, options = next(iter(wrapper.items())) if isinstance(wrapper, dict) else (wrapper, None)
        module, _, made = str(name).rpartition(".")
        path = f"{module}:{made}" if module else made
        wrappers.append({path: options} if options else path)
    sheet.put("env.wrappers", wrappers, "env_wrapper")
    if any("stable_baselines3" in str(wrapper) or "sb3_" in str(wrapper) for wrapper in wrappers):
        sheet.differ("env_wrapper", "wrappers of Stable-Baselines3 need that package; gymnasium's have plain names")
