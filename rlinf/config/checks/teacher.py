"""A teacher: that there is one if it is read, that it is read, and that its numbers mean what the policy's mean."""

from __future__ import annotations

from rlinf.algorithms.catalog import columns_of
from rlinf.config.checks.sampler import check_api_key
from rlinf.config.context import Context
from rlinf.config.derived import is_text
from rlinf.schema.derived import is_agent

_SOURCES = ("path", "base_url", "past_policy")
_SERVER = ("model", "api_key_env", "timeout_s", "concurrency")


def check_teacher(context: Context) -> None:
    """One source of log-probabilities, for an algorithm that reads them, over the policy's own tokens."""
    config = context.config
    teacher, algorithm = config.teacher, config.algorithm
    reads = ("algorithm.adv_type", "algorithm.opd_coef", *(f"teacher.{name}" for name in _SOURCES))
    if context.is_broken(*reads) or not is_text(config):
        return
    pure = "teacher_logprobs" in columns_of(algorithm.adv_type)
    requested = pure or algorithm.opd_coef > 0
    sources = [name for name in _SOURCES if getattr(teacher, name) not in (None, "none")]
    if requested and not sources:
        by = f"adv_type: {algorithm.adv_type}" if pure else f"algorithm.opd_coef {algorithm.opd_coef:g}"
        message = f"{by} learns from a teacher, and there is none."
        context.error("teacher.path", message, "Set teacher.path to a model, or teacher.base_url.")
        return
    for name in (*sources, "hint") if not requested else ():
        fix = "Choose adv_type: opd, or set algorithm.opd_coef: 0.1."
        context.unread(f"teacher.{name}", "is not read by this algorithm.", fix)
    if not requested:
        return
    if len(sources) > 1:
        message = f"teacher: {' and '.join(sources)} name several teachers."
        context.error(f"teacher.{sources[1]}", message, "Keep one.")
    read_by = {"path": ("dtype",), "base_url": _SERVER, "past_policy": ("average_decay",)}
    for name in (key for source, keys in read_by.items() if source not in sources for key in keys):
        context.unread(f"teacher.{name}", "is not read by this kind of teacher.", "Take it out.")
    if pure and algorithm.opd_coef > 0:
        message = f"algorithm.opd_coef adds the teacher to another estimator: {algorithm.adv_type} has it already."
        context.error("algorithm.opd_coef", message, "Take it out, or choose adv_type: grpo.")
    context.run(check_api_key, "teacher.api_key_env", teacher.api_key_env)
    context.run(_check_distribution)
    context.run(_check_hint)
    if teacher.past_policy == "none":
        context.run(_check_tokenizer)
    else:
        context.run(_check_past_policy, pure)


def _check_past_policy(context: Context, pure: bool) -> None:
    """Check a teacher that is the policy: without a hint it teaches nothing; its weights are the reference policy's."""
    config = context.config
    current, chosen = config.teacher.past_policy == "current", f"teacher.past_policy: {config.teacher.past_policy}"
    if config.teacher.hint is None and (pure or current):
        by = f"adv_type: {config.algorithm.adv_type}" if pure else "algorithm.opd_coef"
        message = f"{chosen} is the policy itself{'' if current else ' at first'}, so that {by} moves nothing."
        fix = "Set teacher.hint, or learn from a reward and a past policy: adv_type: grpo, opd_coef: 0.1."
        context.error("teacher.past_policy", message, fix)
    if config.algorithm.ref_update_every and not current:
        message = f"{chosen} replaces the reference policy, which algorithm.ref_update_every would replace."
        fix = "Take ref_update_every out."
        context.error("algorithm.ref_update_every", message, fix)
    rounded = config.learner.backend == "megatron" and config.policy.dtype != "float32"
    if config.teacher.past_policy == "average" and rounded:
        message = "teacher.past_policy: average would be rounded to the bfloat16 that learner.backend: megatron keeps."
        fix = "Set policy.dtype: float32, or learner.backend: fsdp."
        context.error("teacher.past_policy", message, fix)


def _check_hint(context: Context) -> None:
    """Check that a hint holds the question, and more than that."""
    config = context.config
    hint, key, fix = config.teacher.hint, "teacher.hint", 'For example "{prompt}\\nThe right answer is {answer}."'
    if hint is None:
        return
    if hint.count("{prompt}") != 1:
        times = hint.count("{prompt}")
        message = f"{key} must have {{prompt}} once, where the question stands; it has it {times} times."
        context.error(key, message, fix)
    if not any(name in hint for name in ("{answer}", "{solution}", "{demonstration}")):
        message = (
            f"{key} has none of {{answer}}, {{solution}} and {{demonstration}}: "
            "the teacher would read no more than the policy."
        )
        context.error(key, message, fix)
    if "{solution}" in hint and config.algorithm.group_size < 2:
        message = f"{key} names {{solution}}, another response of the group, and algorithm.group_size is 1."
        context.error(key, message, "Set algorithm.group_size: 8, or name {answer} or {demonstration}.")
    if is_agent(config.env.id):
        message = f"{key}: an agent writes the prompts of its calls itself, and no hint can be put into them."
        context.error(key, message, "Take it out.")


def _check_distribution(context: Context) -> None:
    """Both models' log-probabilities are of the same distribution: nothing is cut off, and a server has no other."""
    rollout = context.config.rollout
    off = {"top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}
    for name, value in off.items():
        result = getattr(rollout, name)
        if result != value:
            message = f"rollout.{name} {result} reshapes the policy's distribution, and the teacher's is whole."
            context.error(f"rollout.{name}", message, f"Set it to {value}.")
    if context.config.teacher.base_url is not None and rollout.temperature != 1.0:
        message = f"teacher.base_url: a server returns log-probabilities at temperature 1, not {rollout.temperature:g}."
        fix = "Set rollout.temperature: 1.0, or teacher.path."
        context.error("teacher.base_url", message, fix)


def _check_tokenizer(context: Context) -> None:
    """Check that the tokenizer is not trained when the run starts: no teacher has it.

    Others are compared when they are read."""
    policy, teacher = context.config.policy, context.config.teacher
    if policy.path is None and policy.tokenizer.path is None:
        fix = f"Set policy.tokenizer.path: {teacher.path or 'the tokenizer of the server'}."
        message = "the policy would train a tokenizer of its own, and the teacher has another one."
        context.error("policy.tokenizer.path", message, fix)
