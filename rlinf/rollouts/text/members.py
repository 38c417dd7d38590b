"""The environments of a run, one or a mixture of several, as its rollout uses them; and figures of their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from rlinf.data.messages import Metrics
from rlinf.models.vision.reading import PictureReader
from rlinf.rollouts.text.conversation import Row
from rlinf.rollouts.text.env_worker import EnvFacts
from rlinf.rollouts.text.tokens.prompts import PromptRenderer
from rlinf.schema import DataConfig
from rlinf.schema.derived import TextEnv


@dataclass(frozen=True)
class TextMixtureEnv:
    """One environment: how its conversations are written, and how much of a run belongs to it."""

    name: str
    """What metrics call it; empty where it is the only one."""
    renderer: PromptRenderer
    num_tasks: int
    max_turns: int = 1
    """Responses of the policy in a conversation."""
    weight: float = 1.0
    """Its share of the groups of a batch is this over the sum of all weights."""
    evaluation_size: int | None = None
    """Held-out tasks of an evaluation; None: as many as every other environment."""


def members_of(
    environments: Sequence[TextEnv],
    facts: EnvFacts,
    tokenizer: Any,
    data: DataConfig,
    *,
    stop: Sequence[str] = (),
    end_token_ids: Collection[int] = (),
    reader: PictureReader | None = None,
) -> list[TextMixtureEnv]:
    """List the environments of a run, in the order of `env.tasks`; ``data.system_prompt`` goes before their own.

    Raises:
        ChatTemplateError: the chat template can't render the conversations of one of them.
    """
    members = []
    for env, own in zip(environments, facts.members or (facts,), strict=True):
        renderer = PromptRenderer(
            tokenizer,
            chat_template=data.chat_template,
            system_prompt=data.system_prompt or own.system_prompt,
            system_key="data.system_prompt" if data.system_prompt else "env.kwargs.system_prompt",
            instruction=data.instruction,
            instructions=own.instructions,
            tools=own.tools,
            # Without a template only the first prompt is the environment's own to the end.
            example=own.example if env.max_turns == 1 else "",
            template_kwargs=data.chat_template_kwargs,
            end_token_ids=end_token_ids,
            stop=stop,
            reader=reader,
        )
        if env.max_turns > 1:
            renderer.require_turns()
        members.append(
            TextMixtureEnv(env.name, renderer, own.num_tasks, env.max_turns, env.weight, env.evaluation_size)
        )
    return members


def evaluation_tasks(members: Sequence[TextMixtureEnv], size: int) -> list[int]:
    """Task ids of an evaluation of ``size`` tasks, the environments in turn: equally many of each that names no number
    of its own, and never more than it has.

    Ids name the environment: of m environments, id t is task ``t // m`` of environment ``t % m``.
    """
    share, more = divmod(size, len(members))
    requested = [
        min(member.num_tasks, share + (number < more) if member.evaluation_size is None else member.evaluation_size)
        for number, member in enumerate(members)
    ]
    return [
        own * len(members) + number
        for own in range(max(requested))
        for number, count in enumerate(requested)
        if own < count
    ]  # fmt: skip


def metrics_by_member(members: Sequence[TextMixtureEnv], rows: Sequence[Row]) -> Metrics:
    """Compute rewards, verdicts and lengths of each environment of a mixture; nothing if there is only one."""
    if len(members) == 1:
        return {}
    metrics: Metrics = {}
    for number, member in enumerate(members):
        own = [row for row in rows if row.task_id % len(members) == number]
        answered = [row for row in own if not row.lost]
        metrics[f"rollout/groups/{member.name}"] = float(len({row.group for row in own}))
        if not answered:
            continue
        metrics |= {
            f"rollout/accuracy/{member.name}": sum(row.verdict == "correct" for row in answered) / len(answered),
            f"rollout/response_length/{member.name}": sum(len(row.tokens) for row in answered) / len(answered),
            f"reward/mean/{member.name}": sum(row.total_reward for row in answered) / len(answered),
            f"reward/constant_groups/{member.name}": _constant_groups(answered),
        }
    return metrics


def summary(rows: Sequence[Row]) -> Metrics:
    """Rewards, verdicts and lengths; shares are of all rows that the environment answered."""
    failures = {
        "rollout/masked": sum(row.finish_reason == "masked" for row in rows) / max(1, len(rows)),
        **_sums(rows, "reward_failures/"),
    }
    rows = [row for row in rows if not row.lost] or rows
    count = max(1, len(rows))
    rewards = torch.tensor([row.total_reward for row in rows], dtype=torch.float64)
    lengths = torch.tensor([len(row.tokens) for row in rows], dtype=torch.float64)
    verdicts = [row.verdict for row in rows]
    return {
        "reward/mean": float(rewards.mean()),
        "reward/std": float(rewards.std(correction=0)),
        "reward/constant_groups": _constant_groups(rows),
        "rollout/accuracy": verdicts.count("correct") / count,
        "rollout/prompt_length": sum(len(row.prompt_ids) for row in rows) / count,
        "rollout/response_length": float(lengths.mean()),
        "rollout/response_length_max": float(lengths.max()),
        "rollout/cut_by_length": sum(row.cut_by_length for row in rows) / count,
        "rollout/cut_by_conversation_length": sum(row.finish_reason == "conversation_length" for row in rows) / count,
        "rollout/cut_by_turns": sum(row.finish_reason == "turns" for row in rows) / count,
        "rollout/tokens": float(lengths.sum()),
        "speed/context_cached": sum(row.cached for row in rows) / max(1, sum(row.contexts for row in rows)),
        **{f"verdict/{name}": verdicts.count(name) / count for name in ("correct", "wrong", "unparsable", "timeout")},
        "verdict/quarantined": float(sum(bool(row.facts.get("quarantined", False)) for row in rows)),
        **{f"reward_terms/{n.removeprefix('reward/')}": total / count for n, total in _sums(rows, "reward/").items()},
        **_step_scores(rows),
        **failures,
    }


def _step_scores(rows: Sequence[Row]) -> Metrics:
    """Compute the mean score of a response's steps, and how many have one; nothing without a scorer of steps."""
    scores = [score for row in rows for score in row.step_rewards.values()]
    if not scores:
        return {}
    return {"reward_steps/mean": sum(scores) / len(scores), "reward_steps/scored": len(scores) / len(rows)}


def _constant_groups(rows: Sequence[Row]) -> float:
    """Compute the share of groups whose rows all have the same reward."""
    groups: dict[int, set[float]] = {}
    for row in rows:
        groups.setdefault(row.group, set()).add(row.total_reward)
    return sum(len(rewards) == 1 for rewards in groups.values()) / max(1, len(groups))


def _sums(rows: Sequence[Row], prefix: str) -> Metrics:
    """Sum over rows what the environment reports under names that begin with ``prefix``."""
    names = sorted({name for row in rows for name in row.facts if name.startswith(prefix)})
    return {name: sum(float(row.facts.get(name, 0.0)) for row in rows) for name in names}
