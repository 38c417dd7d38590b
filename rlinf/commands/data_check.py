"""`rlinf check` for data: files of conversations and datasets of robots, opened and held against the run as training
does it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlinf.base.errors import UserError
from rlinf.base.plain_text import folded
from rlinf.base.terminal import printable
from rlinf.commands.finding import Caveat
from rlinf.commands.policy_check import local_files, require_architecture, require_tokenizer_fits
from rlinf.config import Config
from rlinf.planning.describe import rank_memory

if TYPE_CHECKING:
    from gymnasium import spaces

    from rlinf.datasets.conversation_messages import Message
    from rlinf.datasets.conversation_rows import Conversation
    from rlinf.rollouts.text.imitation import Encoded

_SHOWN = 2
_WHOLE = 2_000
"""Conversations up to which all are encoded; of more, some are."""
_SOME = 200
_REPEATED_CHARACTERS = 20
"""Characters of a prompt from which on an answer that begins with it is odd."""
_FRAMES = 50_000
"""Frames up to which a dataset of a robot is read whole; of a longer one its first episodes are."""
_EPISODES = 20


def conversation_findings(config: Config) -> tuple[list[Caveat], list[str]]:
    """Collect findings on `sft.data` and `sft.eval_data`, and lines on the first conversations and what is imitated.

    Raises whatever a reader or a chat template raises.
    """
    from rlinf.datasets.conversation_files import read_answers, unread_columns, unread_splits
    from rlinf.rollouts.text.counted_marks import written_marks
    from rlinf.rollouts.text.imitation import ConversationEncoder
    from rlinf.train.assemble.conversations import policy_reader
    from rlinf.train.assemble.supervised import supervised_data
    from rlinf.train.assemble.tokenizer import policy_tokenizer
    from rlinf.train.assemble.tokenizer_texts import file_texts

    sft, data = config.sft, config.data
    pairs = sft.loss == "dpo"
    rows = read_answers(str(sft.data), pairs=pairs)
    others = [] if sft.eval_data is None else read_answers(sft.eval_data, pairs=pairs, split="eval")
    lines = [f"Supervised training: {len(rows)} {'pairs' if pairs else 'conversations'} of {sft.data}"]
    left = unread_splits(str(sft.data))
    lines += [f"  splits that are not read: {left}"] if left else []
    path = config.policy.tokenizer.path or config.policy.path
    if path is not None and local_files(path) is None:
        return [], lines
    tokenizer = policy_tokenizer(config, functools.partial(file_texts, config))
    require_tokenizer_fits(config, tokenizer)
    require_architecture(config, tokenizer)
    encoder = ConversationEncoder(
        tokenizer,
        chat_template=data.chat_template,
        system_prompt=data.system_prompt,
        template_kwargs=data.chat_template_kwargs,
        reader=policy_reader(config, tokenizer),
    )
    marks = written_marks(itertools.chain(*rows, *others), encoder.marks)
    encoded = [encoder.encode(one) for row in (*rows[:_SOME], *others[:_SOME]) for one in row]
    long = sum(len(one) > sft.max_tokens for one in encoded)
    unread = unread_columns(rows)
    if unread:
        lines.append(f"  columns that are not read: {_counted(unread, len(rows))}")
    findings = [
        *_odd_answers([one.conversation for one in encoded]),
        *_equal_pairs([*rows, *others] if pairs else []),
        *_shared_prompts(rows, others),
    ]
    different = len({tuple(_key(one.messages) for one in row) for row in rows})
    lines += [f"  {different:,} of them are different"] if different < len(rows) else []
    findings += [Caveat(False, what, meaning, "sft.data") for what, meaning in marks.remarks()]
    if long:
        message = f"{long} of {len(encoded)} conversations are longer than sft.max_tokens {sft.max_tokens}."
        findings.append(Caveat(long == len(encoded), message, "They are left out, never cut.", "sft.data"))
    if len(rows) + len(others) <= _WHOLE and not any(finding.serious for finding in findings):
        supervised_data(config, tokenizer, marks)
    longest = max(map(len, encoded))
    needed = rank_memory(config, longest * sft.batch_size)
    if needed:
        lines.append(f"  the longest read has {longest} tokens: with such rows a learner rank needs at most {needed}")
    return findings, lines + _imitated(encoded[:_SHOWN], tokenizer)


def _odd_answers(conversations: Sequence[Conversation]) -> list[Caveat]:
    """Find answers that are hardly meant to be taught: thoughts without an end, and prompts repeated in the answer."""
    from rlinf.rollouts.text.tokens.thoughts import OPENING, closing_of

    answers = [(one, message.content) for one in conversations for message in one.messages if message.imitated]
    findings = []
    unclosed = [one.location for one, text in answers if OPENING in text and closing_of(OPENING) not in text]
    if unclosed:
        message = f"{len(unclosed)} answers open their thoughts ({OPENING}) and never close them: {unclosed[0]}."
        fix = f"Close them with {closing_of(OPENING)}: what stands in thoughts is no answer."
        findings.append(Caveat(False, message, fix, "sft.data"))
    repeated = [
        one.location
        for one, text in answers
        if len(one.messages[0].content) >= _REPEATED_CHARACTERS and text.startswith(one.messages[0].content)
    ]
    if repeated:
        message = f"{len(repeated)} answers begin with the whole prompt: {repeated[0]}."
        findings.append(Caveat(False, message, "Take the prompt out of the answer's column.", "sft.data"))
    return findings


def _equal_pairs(pairs: Sequence[Sequence[Conversation]]) -> list[Caveat]:
    """Find pairs of a preferred and a rejected answer that are one and the same."""
    equal = [chosen.location for chosen, rejected in pairs if chosen.messages == rejected.messages]
    if not equal:
        return []
    message = f"{len(equal)} of {len(pairs)} pairs have the same answer as chosen and as rejected: {equal[0]}."
    return [Caveat(len(equal) == len(pairs), message, "They teach nothing: take them out.", "sft.data")]


def _shared_prompts(rows: Sequence[Sequence[Conversation]], others: Sequence[Sequence[Conversation]]) -> list[Caveat]:
    """Report prompts of `sft.eval_data` that are learned from too."""
    learned = {_key(_prompt(row[0])) for row in rows}
    shared = [row[0].location for row in others if _key(_prompt(row[0])) in learned]
    if not shared:
        return []
    message = f"{len(shared)} of {len(others)} prompts of sft.eval_data are in sft.data too: {shared[0]}."
    return [
        Caveat(
            False, message, "An evaluation shows no progress on what is learned by heart: take them out.", "sft.data"
        )
    ]


def _prompt(conversation: Conversation) -> Sequence[Message]:
    """Return the messages in front of the first that is imitated."""
    return list(itertools.takewhile(lambda message: not message.imitated, conversation.messages))


def _key(messages: Sequence[Message]) -> tuple[tuple[str, str, str], ...]:
    """Return the same for messages that differ in white space and capitals alone."""
    return tuple((one.role, folded(one.content), repr(one.calls)) for one in messages)


def _counted(counts: Mapping[str, int], everywhere: int) -> str:
    """Names; one that not all rows have with its count."""
    return ", ".join(name if count == everywhere else f"{name} ({count:,} rows)" for name, count in counts.items())


def _imitated(encoded: list[Encoded], tokenizer: Any) -> list[str]:
    lines = []
    for one in encoded:
        tokens = [token for token, counts in zip(one.tokens, one.mask, strict=True) if counts]
        lines.append(f"  {one.conversation.location}: {len(one)} tokens, of which {len(tokens)} are imitated")
        lines += [f"    | {line}" for line in printable(tokenizer.decode(tokens)).split("\n")]
    return lines


def dataset_findings(
    config: Config, observation_space: spaces.Space, action_space: spaces.Space, policy: Any, fps: float | None
) -> list[Caveat]:
    """Read `sft.dataset` and `algorithm.prior_data` for these spaces.

    ``policy``: the one that learns from them, None if it is too large to be made here; ``fps``: frames of a
    second that the environment declares.
    """
    named = {"sft.dataset": config.sft.dataset if config.sft.steps else None, "algorithm.prior_data": None}
    if config.facts.off_policy:
        named["algorithm.prior_data"] = config.algorithm.prior_data
    findings = []
    for key, path in named.items():
        if path is None:
            continue
        try:
            findings += _of_dataset(config, key, path, (observation_space, action_space), policy, fps)
        except UserError as error:
            findings.append(Caveat(True, str(error), "Training would stop here.", key))
    return findings


def _of_dataset(
    config: Config, key: str, path: str, both: tuple[Any, Any], policy: Any, fps: float | None
) -> list[Caveat]:
    from rlinf.datasets.robot_data.decisions import decisions
    from rlinf.datasets.robot_data.leaves import environment_actions, observation_arrays
    from rlinf.datasets.robot_data.outcomes import positive_frames
    from rlinf.datasets.robot_data.reading import count_episodes, dataset_instructions, dataset_statistics, read_dataset
    from rlinf.datasets.robot_data.remarks import missing_remark
    from rlinf.train.assemble.simulator import prior_batch

    dataset_statistics(path)
    dataset_instructions(path)
    count = count_episodes(path)
    result = read_dataset(path, range(min(count, _EPISODES)))
    if count > _EPISODES and result.num_frames / _EPISODES * count <= _FRAMES:
        result = read_dataset(path)
    chunk = config.env.num_action_chunks
    if key == "sft.dataset":
        decisions(result, chunk=chunk, stride=config.sft.dataset_stride)
        environment_actions(result, both[1], config.sft.rename)
        observation_arrays(result, both[0], config.sft.rename)
        if config.facts.labelled:
            positive_frames(path, range(count), result.lengths)
    elif policy is not None:
        prior_batch(result, config, policy, both)
    missing = missing_remark(path)
    findings = [] if missing is None else [Caveat(False, missing, "What is there is learned from.", key)]
    if fps is None or result.fps == fps or not result.fps:
        return findings
    message = (
        f"{path} was recorded at {result.fps:g} steps a second, and {config.env.id} declares {fps:g} (render_fps)."
    )
    meaning = "The policy would learn motions of another speed: take every N-th frame, or correct what is declared."
    return [*findings, Caveat(False, message, meaning, key)]
