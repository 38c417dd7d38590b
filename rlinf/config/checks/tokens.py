"""Token arithmetic: the longest row must fit the micro-batch, the model, and the sampler."""

from __future__ import annotations

from rlinf.config.context import Context
from rlinf.config.derived import conversation_tokens, is_text, max_turns, trains_on_files_alone
from rlinf.config.experiment import Config
from rlinf.models.architecture_numbers import most_positions


def check_tokens(context: Context) -> None:
    """Prompt limit plus response limit against everything that bounds a row; files alone have neither."""
    if not is_text(context.config) or trains_on_files_alone(context.config):
        return
    config = context.config
    prompt, response, key = config.data.max_prompt_length, conversation_tokens(config), _limit(config)
    total, lengths = prompt + response, ("data.max_prompt_length", "rollout.max_new_tokens", key, "env.max_turns")
    sum_words = f"data.max_prompt_length {prompt} + {key} {response} = {total} tokens"
    context.run(_check_conversation)
    if total > config.learner.micro_batch_tokens:
        limit = config.learner.micro_batch_tokens
        message = f"learner.micro_batch_tokens {limit} cannot hold one row of {sum_words}."
        fix = f"Set learner.micro_batch_tokens to {total} or more, or shorten the rows."
        context.error("learner.micro_batch_tokens", message, fix, at=lengths)
    positions = most_positions(config.policy)
    if positions is not None and total > positions:
        message = f"the model sees at most {positions} tokens (max_position_embeddings), but {sum_words}."
        fix = f"Set {key} to {positions - prompt} or less." if positions > prompt else "Shorten both."
        context.error(key, message, fix, at=(*lengths, "policy.architecture"))
    longest = config.rollout.vllm.max_model_len
    if longest is not None and total > longest:
        message = f"rollout.vllm.max_model_len {longest} cannot hold {sum_words}."
        context.error("rollout.vllm.max_model_len", message, f"Set it to {total}, or to null.", at=lengths)
    context.run(_check_overlong)


def _limit(config: Config) -> str:
    """Return the key that limits a row after its first prompt."""
    return "rollout.max_new_tokens" if max_turns(config) == 1 else "rollout.max_conversation_tokens"


def _check_conversation(context: Context) -> None:
    config, key = context.config, "rollout.max_conversation_tokens"
    limit, turn = config.rollout.max_conversation_tokens, config.rollout.max_new_tokens
    if limit is None:
        return
    if max_turns(config) == 1:
        context.unread(key, "is not read with env.max_turns: 1.", "Set rollout.max_new_tokens.")
    if limit < turn:
        message = f"{key} {limit} is less than one response may have (rollout.max_new_tokens {turn})."
        context.error(key, message, f"Set it to {turn} or more, or to null.")


def _check_overlong(context: Context) -> None:
    penalty, response = context.config.algorithm.overlong_penalty, conversation_tokens(context.config)
    key = "algorithm.overlong_penalty"
    if penalty.coef == 0:
        return
    if penalty.safe_length >= penalty.max_length:
        message = f"{key}: safe_length {penalty.safe_length} must be below max_length {penalty.max_length}."
        fix, key = f"For example safe_length: {max(penalty.max_length * 4 // 5, 1)}.", f"{key}.safe_length"
        context.error(key, message, fix, at=(key,))
    elif penalty.safe_length >= response:
        message = f"{key}.safe_length {penalty.safe_length} is never exceeded: responses end at {response} tokens."
        fix = f"Set it below rollout.max_new_tokens, for example {response * 4 // 5}."
        context.error(f"{key}.safe_length", message, fix)
