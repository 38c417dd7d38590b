"""The algorithm's names, and options that the chosen functions would not read."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from rlinf.algorithms import catalog
from rlinf.algorithms.entries import OWN_ARGUMENTS, own_misfit
from rlinf.base.user_code import MODULE_PATH_ADVICE
from rlinf.config.compat.aliases import TRL_LOSSES
from rlinf.config.context import Context
from rlinf.config.derived import collects_episodes, compares_groups, is_off_policy, is_text, max_turns, text_envs
from rlinf.config.experiment import Config
from rlinf.config.names import facts_of, hints, nearest
from rlinf.config.plugins import plugins
from rlinf.schema import AlgorithmConfig, RewardNormConfig
from rlinf.schema.derived import is_agent

# Read by the loop, whatever the functions are.
_LOOP = {
    "adv_type",
    "loss_type",
    "loss_agg_func",
    "group_size",
    "update_epochs",
    "num_minibatches",
    "kl_controller",
    "ref_update_every",
    "dynamic_sampling",
    "max_resample",
    "early_stop_imp_ratio",
    "gamma",
    "reward_noise",
    "strict",
    "options",
    "reward_type",
    "logprob_type",
    "entropy_type",
}
# Pairs of bounds, what is left if they leave nothing between them, and what to write.
_BOUNDS = (
    ("rewards_lower_bound", "rewards_upper_bound", "no group would stay", "Exchange the two."),
    ("difficulty_low_threshold", "difficulty_high_threshold", "no group would stay", "Take 0.1 and 0.95, for example."),
    ("cov_lower_bound", "cov_upper_bound", "no position would be selected", "Take 1.0 and 5.0, for example."),
)


def check_algorithm(context: Context) -> None:
    """Names exist, group estimators have groups, every option has a reader, and options that need another have it."""
    known = [_check_name(context, *row) for row in _tables(context.config.algorithm)]
    if not all(known):
        return
    if is_off_policy(context.config) and is_text(context.config):
        name = context.config.algorithm.loss_type
        message = f"loss_type: {name} trains simulator policies, and this policy is causal_lm."
        context.error("algorithm.loss_type", message, "Choose loss_type: actor.")
    context.run(_check_groups)
    context.run(_check_readers)
    context.run(_check_noise)
    context.run(_check_own_options)
    if not is_off_policy(context.config):
        context.run(_check_conditions)
        context.run(_check_correction)
        context.run(_check_token_scale)


def _check_noise(context: Context) -> None:
    """Refuse noise on outcomes for an estimator that reads rewards of steps, or of terms."""
    algorithm = context.config.algorithm
    read = {"step_rewards", "reward_terms"} & set(catalog.estimator(algorithm.adv_type).needs)
    if algorithm.reward_noise and read:
        message = f"algorithm.reward_noise exchanges outcomes, and adv_type: {algorithm.adv_type} reads {read.pop()}."
        context.error("algorithm.reward_noise", message, "Take it out, or choose adv_type: grpo.")


def _tables(algorithm: AlgorithmConfig) -> list[tuple[str, Mapping[str, catalog.Entry], str]]:
    own_kl = [("token_kl_type", catalog.KL_PENALTIES, "kl")] if algorithm.token_kl_type is not None else []
    return [
        *own_kl,
        ("adv_type", catalog.ADVANTAGES, "advantages"),
        ("loss_type", {**catalog.LOSSES, **catalog.OFF_POLICY}, "losses"),
        ("loss_agg_func", catalog.AGGREGATIONS, "aggregations"),
        ("kl_penalty_type", catalog.KL_PENALTIES, "kl"),
    ]


_IN_SEVERAL_KEYS = {
    **{name: "adv_type: grpo, loss_type: {} and loss_agg_func: {}".format(*keys) for name, keys in TRL_LOSSES.items()},
    "dapo": "adv_type: grpo, loss_type: actor, clip_ratio_high: 0.28, dynamic_sampling: true (config/math/dapo.yaml)",
    "dr_grpo": "adv_type: grpo, loss_type: actor, normalize_by_std: false "
    f"and loss_agg_func: {TRL_LOSSES['dr_grpo'][1]} (config/math/dr_grpo.yaml)",
    "ppo": "adv_type: gae and loss_type: actor_critic",
    "vanilla": "loss_type: actor",
}
"""Names that TRL and verl have for what several keys choose."""


def _check_name(context: Context, key: str, table: Mapping[str, catalog.Entry], listing: str) -> bool:
    name = getattr(context.config.algorithm, key)
    if name in table:
        return True
    try:
        catalog.choose(key, name, table)
    except ValueError as error:
        brought = plugins(f"rlinf.{listing}")
        close = nearest(name.lower(), [*table, *brought])
        hint = f"Did you mean {close[0]}?" if close else f"`rlinf list {listing}` explains each."
        if name.lower() in _IN_SEVERAL_KEYS.keys() - table.keys():
            hint = f"Write {_IN_SEVERAL_KEYS[name.lower()]}."
        message = f"algorithm.{key}: {name} does not exist; there are {', '.join([*table, *brought])}."
        if ":" in name:
            message, hint = f"algorithm.{key}: {error}.", _own_hint(key, str(error))
        context.error(f"algorithm.{key}", message, hint)
        context.broken.add(f"algorithm.{key}")
        return False
    return True


def _own_hint(key: str, message: str) -> str:
    """Describe the form that a user's own function has, or where its module must be."""
    if "cannot be imported" in message:
        return MODULE_PATH_ADVICE
    argument = OWN_ARGUMENTS[key]
    if key in ("loss_agg_func", "kl_penalty_type", "token_kl_type"):
        return f"It has one argument, {argument}, and no options."
    return f"Write def NAME(x: {argument}, *, OPTION=DEFAULT), with what it needs as x.COLUMN."


def _check_groups(context: Context) -> None:
    """Refuse groups of one where members are compared: by the estimator, the rewards' norm, or a filter."""
    config, algorithm = context.config, context.config.algorithm
    if algorithm.group_size > 1 or not (is_text(config) or collects_episodes(config)):
        return
    fix = "Set algorithm.group_size to 2 or more (8 is common)"
    refused = algorithm.singleton_group == "error"
    if compares_groups(config) and refused:
        message = f"adv_type: {algorithm.adv_type} compares the members of a group, and algorithm.group_size is 1."
        context.error("algorithm.group_size", message, f"{fix}, or choose adv_type: reinforce.")
    elif refused and "group" in _norm_scopes(algorithm.reward_norm):
        message = "algorithm.reward_norm: group compares the members of a group, and algorithm.group_size is 1."
        context.error("algorithm.group_size", message, f"{fix}, or choose reward_norm: batch.")
    alone = {
        "dynamic_sampling": "discards groups whose rewards are all equal",
        "difficulty_mask": "leaves out tasks that are always or never solved",
    }
    for name in (name for name in alone if getattr(algorithm, name)):
        message = f"algorithm.{name} {alone[name]}: with algorithm.group_size 1, all of them."
        context.error(f"algorithm.{name}", message, f"{fix}, or take it out.")


def _norm_scopes(norm: object) -> set[object]:
    """Collect the scopes that a reward norm names, in whichever form it is written."""
    if isinstance(norm, RewardNormConfig):
        return {norm.mean, norm.std}
    return set().union(*map(_norm_scopes, norm.values())) if isinstance(norm, Mapping) else {norm}


def _check_readers(context: Context) -> None:
    algorithm = context.config.algorithm
    read = _options_read(context.config)
    chosen = f"loss_type: {algorithm.loss_type}"
    if not is_off_policy(context.config):
        chosen = f"adv_type: {algorithm.adv_type} with {chosen}"
    for name in hints(AlgorithmConfig):
        if name in read or not context.changed(f"algorithm.{name}"):
            continue
        result = catalog.readers(name)
        readers = [reader for reader in result if ":" in reader]
        fix = f"It is read by {', '.join(readers)}." if readers else "Take it out."
        context.unread(
            f"algorithm.{name}",
            f"is not read by {chosen}.",
            fix,
        )


def _options_read(config: Config) -> set[str]:
    """Collect the schema's names of all options that the chosen functions read."""
    algorithm = config.algorithm
    if is_off_policy(config):
        entry = catalog.off_policy(algorithm.loss_type)
        shared = catalog.OFFLINE_OPTIONS if entry.offline else catalog.REPLAY_OPTIONS
        return {"loss_type", "strict", "group_size", "dynamic_sampling", *shared, *entry.reads}
    options: set[str] = set(_LOOP)
    options.update(catalog.ADVANTAGE_OPTIONS, catalog.REWARD_OPTIONS, catalog.STEP_OPTIONS, catalog.LOSS_OPTIONS)
    options.update(catalog.estimator(algorithm.adv_type).reads, catalog.loss(algorithm.loss_type).reads)
    # Only one of the aggregations reads it, although all are handed it.
    options.discard("sum_norm_divide_by_batch")
    options.update(catalog.choose("loss_agg_func", algorithm.loss_agg_func, catalog.AGGREGATIONS).reads)
    return options


def _check_own_options(context: Context) -> None:
    """``algorithm.options`` holds what the chosen functions require or read, and what is no key of the section."""
    algorithm = context.config.algorithm
    for key, table, _ in _tables(algorithm):
        name = getattr(algorithm, key)
        if ":" not in name:
            continue
        entry = catalog.choose(key, name, table)
        groups = [option.argument for option in entry.options if not isinstance(option, str)]
        misfit = own_misfit(entry, key, (*hints(AlgorithmConfig), *algorithm.options, *groups))
        if misfit:
            fix = f"{_own_hint(key, misfit)} Options are keys of algorithm, or are set in algorithm.options."
            context.error(f"algorithm.{key}", f"algorithm.{key}: {name} {misfit}.", fix)
    read = () if is_off_policy(context.config) else _options_read(context.config)
    for name in algorithm.options:
        key = f"algorithm.options.{name}"
        if name in hints(AlgorithmConfig):
            context.error(key, f"{key} is a key of the section itself.", f"Write algorithm.{name}.")
        elif name not in read:
            own = sorted(set(read) - set(hints(AlgorithmConfig)))
            fix = f"Options of their own are {', '.join(own)}." if own else "They have no options of their own."
            chosen = f"adv_type: {algorithm.adv_type} with loss_type: {algorithm.loss_type}"
            context.error(key, f"{key} is not read by {chosen}.", fix)


def _check_token_scale(context: Context) -> None:
    """Check that the global scale is used only with a mean over tokens, which no other aggregation is."""
    algorithm = context.config.algorithm
    on = algorithm.use_valid_token_scale and algorithm.token_scale == "global"
    if on and algorithm.loss_agg_func != "token-mean":
        message = "algorithm.token_scale: global divides the sum of all losses by all valid tokens,"
        message += f" and loss_agg_func: {algorithm.loss_agg_func} divides otherwise."
        fix = "Set loss_agg_func: token-mean, or leave use_valid_token_scale out."
        context.error("algorithm.token_scale", message, fix)


def _check_correction(context: Context) -> None:
    """Keys of the correction that its level, mode and limit do not use, and bounds that leave nothing."""
    section = "algorithm.rollout_correction"
    correction = context.config.algorithm.rollout_correction
    if correction.level == "none":
        for name in ("mode", "cap", "floor"):
            fix = f"Set {section}.level: token, or a preset."
            context.unread(f"{section}.{name}", "is not read without a level.", fix)
    if correction.reject_above is None:
        fix = f"Set {section}.reject_above: 0.05, for example."
        context.unread(f"{section}.reject_by", "is not read without reject_above.", fix)
    if correction.level != "none" and correction.floor >= correction.cap:
        message = f"{section}.floor {correction.floor:g} is not below cap {correction.cap:g}: no weight fits."
        fix = "Weights are near 1: floor: 0.5 with cap: 5 is what IcePop takes."
        context.error(f"{section}.floor", message, fix)


def _check_conditions(context: Context) -> None:
    """Check options that mean something only together with another one."""
    for name in hints(AlgorithmConfig):
        needed = facts_of(f"algorithm.{name}").needs
        if needed:
            context.run(_check_needed, name, needed, None)
    for name, (holds, needed) in _conditions(context.whole.algorithm).items():
        context.run(_check_needed, name, needed, holds)
    context.run(_check_filters)
    algorithm = context.config.algorithm
    if algorithm.add_token_level_kl and algorithm.kl_coef == 0:
        message = "algorithm.add_token_level_kl subtracts kl_coef times the KL, and kl_coef is 0: it does nothing."
        fix = "Set algorithm.kl_coef, to 0.001 for example (ROLL's default is 0.2), or take add_token_level_kl out."
        context.error("algorithm.add_token_level_kl", message, fix)


def _check_needed(context: Context, name: str, needed: str, holds: bool | None) -> None:
    """Report ``name`` unless the option that it needs has its value; ``holds`` decides if more than that one does."""
    option, _, value = needed.partition(": ")
    written = getattr(context.config.algorithm, option)
    if not (written == yaml.safe_load(value) if holds is None else holds):
        context.unread(f"algorithm.{name}", f"is not read without {needed}.", f"Add {needed}.")


def _check_filters(context: Context) -> None:
    """Bounds of groups that are kept: they exist, and leave something between them."""
    algorithm = context.config.algorithm
    unbounded = algorithm.rewards_lower_bound is None and algorithm.rewards_upper_bound is None
    whole = is_text(context.config) or collects_episodes(context.config)
    if algorithm.filter_rewards and whole and unbounded:
        message = "algorithm.filter_rewards has no bounds: every group would stay."
        fix = "Set algorithm.rewards_lower_bound, rewards_upper_bound, or both."
        context.error("algorithm.filter_rewards", message, fix)
    for bounds in _BOUNDS:
        context.run(_check_bounds, *bounds)


def _check_bounds(context: Context, low: str, high: str, left: str, fix: str) -> None:
    lower, upper = getattr(context.config.algorithm, low), getattr(context.config.algorithm, high)
    if lower is not None and upper is not None and lower >= upper:
        message = f"algorithm.{low} {lower} is not below {high} {upper}: {left}."
        context.error(f"algorithm.{low}", message, fix)


def check_environment_tokens(context: Context) -> None:
    """Check that what `environment_coef` learns from is there, and that the policy's distribution has it whole."""
    config = context.config
    if not config.algorithm.environment_coef or not is_text(config):
        return
    name = "algorithm.environment_coef"
    if any(is_agent(env.id) for env in text_envs(config)):
        message = f"{name} learns from what an environment writes, and an agent's rows hold its own program's words."
        context.error(name, message, "Take it out.")
    elif max_turns(config) == 1:
        message = f"{name} learns from what the environment writes in conversations, and they have one turn."
        context.error(name, message, "Take it out, or set env.max_turns: 2 or more.")
    if config.learner.backend == "megatron":
        message = f"{name} is not supported by learner.backend: megatron, which scores the policy's tokens alone."
        context.error(name, message, "Set learner.backend: fsdp or torch.")
    reshaped = {"top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
    for key, value in reshaped.items():
        if getattr(config.rollout, key) != value:
            message = f"rollout.{key} takes tokens out of the distribution that {name} finds the environment's in."
            context.error(f"rollout.{key}", message, f"Set it to {value}.")


def _conditions(algorithm: AlgorithmConfig) -> dict[str, tuple[bool, str]]:
    estimator = catalog.estimator(algorithm.adv_type)
    token_kl = estimator.penalises_tokens(algorithm)
    # The switch without a weight is reported itself.
    weighed = (
        (token_kl and (algorithm.kl_coef > 0 or algorithm.add_token_level_kl)),
        ("kl_coef: 0.001" if token_kl else "add_token_level_kl: true"),
    )
    one_word = isinstance(algorithm.reward_norm, str)
    entropy = algorithm.entropy_bonus != 0 or algorithm.calculate_entropy
    whitened = algorithm.normalize_advantages or estimator.whitens
    return {
        "kl_coef": (token_kl, "add_token_level_kl: true"),
        "token_kl_type": weighed,
        "kl_controller": weighed,
        "ref_update_every": (token_kl or algorithm.kl_beta > 0, "kl_beta: 0.001 (no reference policy is kept)"),
        "entropy_type": (entropy, "calculate_entropy: true"),
        "reward_shift": (one_word, "reward_norm: group"),
        "reward_scale": (one_word, "reward_norm: group"),
        "clip_after_norm": (bool(algorithm.reward_clip), "reward_clip: 10"),
        "kl_after_norm": weighed,
        "keep_zero_groups": (whitened, "normalize_advantages: true"),
        "value_clip_schedule": (bool(algorithm.value_clip), "value_clip: 0.2"),
    }
