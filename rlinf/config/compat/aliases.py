"""Other names for our keys, in one table: the flat vocabulary of ROLL and RLinf's words under ``algorithm:``.

A flat name is read at the top level; if it stands for an ``algorithm`` key it is read under ``algorithm:``
too. Names that depend on one another (``use_kl_loss`` with ``kl_loss_coef``) are in
:mod:`rlinf.config.compat.combined`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rlinf.config.compat.combined import NAMES as COMBINED_NAMES
from rlinf.config.problems import ConfigProblem, problem
from rlinf.config.tree import Branch, Located, drop, get, put

FLAT: Mapping[str, str] = {
    "exp_name": "run.name",
    "output_dir": "run.dir",
    "seed": "run.seed",
    "max_steps": "run.max_steps",
    "save_steps": "checkpoint.every",
    "eval_steps": "evaluation.every",
    "logging_steps": "logging.plain_every",
    "pretrain": "policy.path",
    "prompt_length": "data.max_prompt_length",
    "response_length": "rollout.max_new_tokens",
    "rollout_batch_size": "rollout.batch_size",
    # Its name before whole batches ahead and continuous generation were one thing.
    "rollout.ahead": "rollout.staleness",
    "actor_infer.generating_args.max_new_tokens": "rollout.max_new_tokens",
    "actor_infer.generating_args.temperature": "rollout.temperature",
    "actor_infer.generating_args.top_k": "rollout.top_k",
    "actor_infer.generating_args.top_p": "rollout.top_p",
    "actor_infer.generating_args.num_return_sequences": "algorithm.group_size",
    "actor_train.model_args.dtype": "policy.dtype",
    "actor_train.training_args.learning_rate": "learner.optimizer.lr",
    "actor_train.training_args.lr_scheduler_type": "learner.optimizer.schedule",
    "actor_train.training_args.warmup_steps": "learner.optimizer.warmup_steps",
    "actor_train.training_args.weight_decay": "learner.optimizer.weight_decay",
    "max_grad_norm": "learner.optimizer.grad_clip",
    "num_return_sequences_in_group": "algorithm.group_size",
    "adv_estimator": "algorithm.adv_type",
    "loss_agg_mode": "algorithm.loss_agg_func",
    "ppo_epochs": "algorithm.update_epochs",
    "whiten_advantages": "algorithm.normalize_advantages",
    "kl_loss_type": "algorithm.kl_penalty_type",
    "entropy_loss_coef": "algorithm.entropy_bonus",
    "lambd": "algorithm.gae_lambda",
    "pg_clip": "algorithm.ratio_clip_eps",
    "pg_clip_low": "algorithm.clip_ratio_low",
    "pg_clip_high": "algorithm.clip_ratio_high",
    "norm_mean_type": "algorithm.reward_norm.mean",
    "norm_std_type": "algorithm.reward_norm.std",
    # These keep their names and only move under `algorithm:`.
    "add_token_level_kl": "algorithm.add_token_level_kl",
    "advantage_clip": "algorithm.advantage_clip",
    "difficulty_mask": "algorithm.difficulty_mask",
    "difficulty_low_threshold": "algorithm.difficulty_low_threshold",
    "difficulty_high_threshold": "algorithm.difficulty_high_threshold",
    "gamma": "algorithm.gamma",
    "kl_horizon": "algorithm.kl_horizon",
    "max_len_mask": "algorithm.max_len_mask",
    "reward_clip": "algorithm.reward_clip",
    "reward_norm": "algorithm.reward_norm",
    "reward_scale": "algorithm.reward_scale",
    "reward_shift": "algorithm.reward_shift",
    "strict": "algorithm.strict",
    "target_kl": "algorithm.target_kl",
    "value_clip": "algorithm.value_clip",
    "whiten_rewards": "algorithm.whiten_rewards",
}

UNDER_ALGORITHM: Mapping[str, str] = {
    "sampling_params.max_new_tokens": "rollout.max_new_tokens",
    "sampling_params.repetition_penalty": "rollout.repetition_penalty",
    "sampling_params.temperature": "rollout.temperature",
    "sampling_params.top_k": "rollout.top_k",
    "sampling_params.top_p": "rollout.top_p",
    "len_reward_penalty": "algorithm.overlong_penalty.coef",
    "safe_length": "algorithm.overlong_penalty.safe_length",
    "max_length": "algorithm.overlong_penalty.max_length",
    "num_group_envs": "rollout.batch_size",
    "sac_tau": "algorithm.target_tau",
}

VALUES: Mapping[str, Mapping[object, object]] = {
    "algorithm.adv_type": {
        "math_grpo": "grpo",
        "embodied_grpo": "grpo",
        "embodied_gae": "gae",
        "math_reinpp": "reinforce_pp",
        "reinpp": "reinforce_pp",
        "reinforce++": "reinforce_pp",
        "reinforce_plus_plus": "reinforce_pp",
    },
    "algorithm.loss_type": {
        "math_ppo_actor": "actor",
        "ppo_actor": "actor",
        "ppo": "actor",
        "embodied_grpo": "actor",
        "ppo_actor_critic": "actor_critic",
        "embodied_ppo": "actor_critic",
        "embodied_actor_critic": "actor_critic",
        "embodied_sac": "sac",
    },
    "learner.optimizer.schedule": {"constant_with_warmup": "constant"},
    "policy.dtype": {"bf16": "bfloat16", "fp32": "float32"},
    # Earlier versions had it as a choice of its own; it is what a broadcast falls back on.
    "rollout.weight_transport": {"object_store": "auto"},
    # Other samplers mean "all tokens" by these.
    "rollout.top_k": {-1: 0, 1_000_000: 0},
}

TRL_LOSSES: Mapping[str, tuple[str, str]] = {
    "grpo": ("actor", "seq-mean-token-mean"),
    "dapo": ("actor", "token-mean"),
    "dr_grpo": ("actor", "seq-mean-token-sum-norm"),
    "bnpo": ("actor", "token-mean"),
    "cispo": ("cispo", "token-mean"),
    "sapo": ("sapo", "seq-mean-token-mean"),
}
"""TRL's names of losses -> loss_type and loss_agg_func."""

NOT_NEEDED: Mapping[str, str] = {
    "algorithm.logprob_forward_micro_batch_size": "learner.micro_batch_tokens decides",
    "algorithm.sampling_params.min_new_tokens": "responses may be as short as the policy makes them",
    "algorithm.training_batch_size_per_gpu": "learner.micro_batch_tokens decides",
    "algorithm.val_rollout_batch_size_per_gpu": "rollout.generation_batch_size decides",
    "actor_infer.generating_args.num_beams": "responses are sampled",
    "actor_train.training_args.gradient_accumulation_steps": "learner.micro_batch_tokens decides",
    "actor_train.training_args.num_train_epochs": "run.max_steps decides",
    "actor_train.training_args.per_device_train_batch_size": "learner.micro_batch_tokens decides",
    "generate_opt_level": "rollout.sampler decides",
    "is_num_return_sequences_expand": "a group always shares its prompt",
    "logging_dir": "everything of a run is in run.dir",
    "num_gpus_per_node": "GPUs are counted",
    "save_logging_board_dir": "TensorBoard events are in run.dir",
    "use_pg_clip_range": "the bounds decide where they are given",
}


def rename(tree: Branch, notes: list[str], problems: list[ConfigProblem]) -> None:
    """Rewrite the keys of one layer into our names, and report each renamed key."""
    renamed: dict[str, str] = {}
    for written, key in _written_names():
        located = drop(tree, written)
        if located is None:
            continue
        _move(tree, written, key, located, renamed, notes, problems)
    for written, reason in NOT_NEEDED.items():
        located = drop(tree, written)
        if located is not None:
            notes.append(f"{located.origin}: {written} is not needed: {reason}.")
    for emptied in ("actor_train", "actor_infer", "algorithm.sampling_params"):
        _prune(tree, emptied)


def synonyms(layers: Sequence[Branch]) -> Iterator[tuple[str, Located]]:
    """Every name, ours or another, of a key that was written, with what the highest layer wrote under any of them.

    Within one layer a name means what was written under that very name.
    """
    names: dict[str, list[str]] = {}
    for written, key in _written_names():
        names.setdefault(key, [key]).append(written)
    for group in names.values():
        for layer in reversed(layers):
            results = {name: located for name in group if (located := get(layer, name)) is not None}
            if results:
                first = next(iter(results.values()))
                yield from ((name, results.get(name, first)) for name in group)
                break


def translate_values(tree: Branch, notes: list[str]) -> None:
    """Replace other words for our values in ``tree``."""
    for key, words in VALUES.items():
        located = get(tree, key)
        if located is None or isinstance(located.value, bool | dict | list) or located.value not in words:
            continue
        ours = words[located.value]
        notes.append(f"{located.origin}: {key}: {located.value} is read as {ours}.")
        located.value = ours


def _written_names() -> list[tuple[str, str]]:
    pairs = list(FLAT.items())
    for name, key in FLAT.items():
        # `algorithm.reward_clip` is the key itself, not an alias of it.
        if key.startswith("algorithm.") and key != f"algorithm.{name}" and "." not in name:
            pairs.append((f"algorithm.{name}", key))
    pairs += [(f"algorithm.{name}", key) for name, key in UNDER_ALGORITHM.items()]
    return pairs + [(name, f"algorithm.{name}") for name in COMBINED_NAMES]


def _move(
    tree: Branch,
    written: str,
    key: str,
    located: Located,
    renamed: dict[str, str],
    notes: list[str],
    problems: list[ConfigProblem],
) -> None:
    existing = get(tree, key)
    if existing is not None and existing.plain() != located.plain():
        other = renamed.get(key, key)
        same_vocabulary = key in renamed or "." in written
        if same_vocabulary:
            message = f"{written} and {other} are two names for one thing, with different values"
            message += f" ({located.plain()} and {existing.plain()})."
            problems.append(problem(located.origin, key, message, f"Keep {key}."))
            return
        # A block of the flat vocabulary that was pasted into a file of ours is meant so.
        note = (
            f"{located.origin}: {written}: {located.plain()} replaces {other}: {existing.plain()} of {existing.origin}."
        )
        notes.append(note)
    elif written != key and key not in (f"algorithm.{name}" for name in COMBINED_NAMES):
        notes.append(f"{located.origin}: {written}: {_show(located)} is read as {key}.")
    renamed[key] = written
    parent = key.rpartition(".")[0]
    above = get(tree, parent)
    # `reward_norm: null` and then `reward_norm.mean`: there is nothing to keep of the null.
    if above is not None and above.branch is None and above.value is None:
        above.value = {}
    put(tree, key, located)


def _show(located: Located) -> str:
    plain = located.plain()
    if plain is None:
        return "null"
    return str(plain).lower() if isinstance(plain, bool) else str(plain)


def _prune(tree: Branch, dotted: str) -> None:
    """Take away a section of the other vocabulary that has nothing left in it."""
    located = get(tree, dotted)
    if located is None or located.branch is None:
        return
    for name in list(located.branch):
        _prune(tree, f"{dotted}.{name}")
    if not located.branch:
        drop(tree, dotted)
