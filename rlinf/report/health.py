"""What a run's numbers say about its health, in words.

Each check reads a :class:`RunRecord` and returns a finding, or None where the run does not log what it reads. "Early"
and "late" are the means over the first and the last fifth of the steps, so that no single step decides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlinf.report.runs import RunRecord

WORST_FIRST = {"bad": 0, "watch": 1, "ok": 2}


@dataclass(frozen=True)
class Finding:
    """``level``: ok, watch or bad; ``title`` says what was looked at, ``words`` what was seen and what to try."""

    level: str
    title: str
    words: str


def examine(run: RunRecord) -> list[Finding]:
    """All findings about a run, the worst first."""
    findings = [finding for check in CHECKS if (finding := check(run)) is not None]
    return sorted(findings, key=lambda finding: WORST_FIRST[finding.level])


def early(values: Sequence[float]) -> float:
    """The mean of the first fifth."""
    count = max(1, len(values) // 5)
    return sum(values[:count]) / count


def late(values: Sequence[float]) -> float:
    """The mean of the last fifth.

    >>> late([0.0, 0.0, 0.0, 0.0, 1.0])
    1.0
    """
    count = max(1, len(values) // 5)
    return sum(values[-count:]) / count


def noise(values: Sequence[float]) -> float:
    """The standard error of the mean of a fifth, from differences of neighbouring steps (a trend does not enter)."""
    if len(values) < 3:
        return math.inf
    jumps = [(after - before) ** 2 for before, after in itertools.pairwise(values)]
    return math.sqrt(sum(jumps) / len(jumps) / 2 / max(1, len(values) // 5))


def risen(values: Sequence[float]) -> int:
    """1 or -1 where late differs from early by more than twice the noise of the difference, else 0."""
    change = late(values) - early(values)
    if len(values) < 5 or abs(change) <= 2 * math.sqrt(2) * noise(values):
        return 0
    return 1 if change > 0 else -1


def _progress(run: RunRecord) -> Finding | None:
    for name in ("eval/accuracy", "eval/success_once", "eval/return"):
        values = run.values(name)
        lows, highs = run.values(f"{name}/ci_low"), run.values(f"{name}/ci_high")
        if len(values) < 2 or not lows:
            continue
        told = f"{name} went from {values[0]:.3g} to {values[-1]:.3g} (95% interval {lows[-1]:.3g} to {highs[-1]:.3g})."
        if lows[-1] > highs[0]:
            return Finding("ok", "Progress", f"{told} The intervals before and after do not touch.")
        if highs[-1] < lows[0]:
            return Finding("bad", "Progress", f"{told} The policy is worse than before training.")
        return Finding("watch", "Progress", f"{told} That is within the noise of the evaluation.")
    return None


def _entropy(run: RunRecord) -> Finding | None:
    values = run.values("train/entropy")
    if len(values) < 5:
        return None
    before, after = early(values), late(values)
    told = f"Entropy went from {before:.3g} to {after:.3g} nats per decision."
    if min(values) < 0:
        return Finding(
            "ok", "Entropy", f"{told} It is differential (continuous actions): judge its curve, not its zero."
        )
    if after < 0.1 * before:
        fix = "The policy has all but stopped exploring: try a lower learning rate, an entropy bonus or a KL term."
        return Finding("bad", "Entropy collapse", f"{told} {fix}")
    if after < 0.3 * before:
        return Finding("watch", "Entropy", f"{told} It falls fast; groups will soon agree with themselves.")
    return Finding("ok", "Entropy", told)


def _clipping(run: RunRecord) -> Finding | None:
    low, high = run.values("train/clip_fraction_low"), run.values("train/clip_fraction_high")
    if not low or not high:
        return None
    share = late(low) + late(high)
    told = f"Of the late decisions {share:.1%} were clipped."
    if share > 0.3:
        fix = "Most of such a batch teaches nothing: fewer epochs, fewer minibatches or a lower learning rate."
        return Finding("bad", "Clip fraction too high", f"{told} {fix}")
    if share > 0.15:
        return Finding("watch", "Clip fraction", f"{told} The updates are large for the clip range.")
    if share == 0 and max(*low, *high) == 0:
        once = run.setting("algorithm.update_epochs") == 1 and run.setting("algorithm.num_minibatches") == 1
        why = "each batch is used for one optimiser step" if once else "the updates are small for the clip range"
        return Finding("ok", "Clip fraction", f"Nothing was ever clipped: {why}.")
    return Finding("ok", "Clip fraction", told)


def _constant_groups(run: RunRecord) -> Finding | None:
    values = run.values("reward/constant_groups")
    if not values or not (run.setting("algorithm.group_size") or 0) > 1:
        return None
    share = late(values)
    told = f"In {share:.0%} of the late groups every member had the same reward."
    if share > 0.95:
        fix = "Almost no group teaches anything: change the difficulty of the tasks, or set algorithm.dynamic_sampling."
        return Finding("bad", "All groups constant", f"{told} {fix}")
    if share > 0.7:
        fix = "The signal gets thin; larger groups, other tasks or algorithm.dynamic_sampling would help."
        return Finding("watch", "Constant groups", f"{told} {fix}")
    return Finding("ok", "Constant groups", told)


def _mismatch(run: RunRecord) -> Finding | None:
    values = run.values("train/sampler_logprob_gap")
    if not values:
        return None
    gap = late(values)
    told = f"Sampler and learner differ by {gap:.2g} nats per decision on average."
    if gap > 0.1:
        fix = "They do not run the same policy: check precision, chat template and temperature, or correct for it."
        return Finding("bad", "Sampler and learner disagree", f"{told} {fix}")
    if gap > 0.02:
        fix = "That is more than rounding; algorithm.rollout_correction weighs it out."
        return Finding("watch", "Sampler and learner", f"{told} {fix}")
    return Finding("ok", "Sampler and learner", told)


def _length(run: RunRecord) -> Finding | None:
    values = run.values("rollout/response_length")
    if len(values) < 5:
        return None
    before, after = early(values), late(values)
    cut = run.values("rollout/cut_by_length")
    share = late(cut) if cut else 0.0
    told = (
        f"Responses went from {before:.0f} to {after:.0f} tokens; {share:.0%} of the late ones were cut by the limit."
    )
    if share > 0.5 or (after > 2 * before and share > 0.2):
        fix = "Raise rollout.max_new_tokens, or make length cost something (algorithm.overlong_penalty)."
        return Finding("bad", "Length explosion", f"{told} {fix}")
    if after > 1.5 * before or share > 0.2:
        return Finding("watch", "Length", f"{told} See whether accuracy grows with it.")
    if after < 0.4 * before:
        return Finding("watch", "Length", f"{told} Very short responses can be a shortcut: read some samples.")
    return Finding("ok", "Length", told)


def _reward_hacking(run: RunRecord) -> Finding | None:
    reward = run.values("reward/mean")
    names = [name for name in ("rollout/accuracy", "eval/accuracy") if len(run.values(name)) >= 5]
    if len(reward) < 5 or not names:
        return None
    for name in names:
        accuracy = run.values(name)
        told = f"Reward went from {early(reward):.3g} to {late(reward):.3g}, {name} from {early(accuracy):.3g} "
        told += f"to {late(accuracy):.3g}."
        if risen(reward) > 0 and risen(accuracy) < 0:
            fix = "Reward rises while accuracy falls: the policy found something that pays without being right."
            return Finding("bad", "Signs of reward hacking", f"{told} {fix}")
        if risen(reward) > 0 and risen(accuracy) == 0 and late(accuracy) < 0.95:
            fix = "Reward rises and accuracy does not: look at the reward's terms and read some samples."
            return Finding("watch", "Signs of reward hacking", f"{told} {fix}")
    return Finding("ok", "Reward and accuracy", f"{told} They move together.")


def _generalisation(run: RunRecord) -> Finding | None:
    train, held_out = run.values("rollout/accuracy"), run.values("eval/accuracy")
    if len(train) < 5 or len(held_out) < 2:
        return None
    gap = late(train) - held_out[-1]
    if gap < 0.15:
        return None
    told = f"Training tasks are solved {late(train):.0%} of the time, held-out tasks {held_out[-1]:.0%}."
    return Finding("watch", "Held-out tasks lag behind", f"{told} The policy may be learning its tasks by heart.")


def _gradients(run: RunRecord) -> Finding | None:
    values = run.values("train/grad_norm")
    if len(values) < 5:
        return None
    middle, largest = sorted(values)[len(values) // 2], max(values)
    skipped = sum(run.values("train/skipped_minibatches"))
    told = f"Gradient norm: median {middle:.3g}, largest {largest:.3g}; {skipped:.0f} minibatches were skipped."
    missing = run.series["train/grad_norm"][1:].count(None)
    if missing:
        return Finding("bad", "Gradients", f"{told} In {missing} steps it was not a number.")
    if middle > 0 and largest > 20 * middle:
        return Finding("watch", "Gradient spikes", f"{told} Some steps are far larger than the others.")
    return Finding("ok", "Gradients", told)


def _critic(run: RunRecord) -> Finding | None:
    values = run.values("train/explained_variance")
    if len(values) < 5:
        return None
    share = late(values)
    told = f"The critic explains {share:.0%} of the variance of the late returns."
    if share < 0:
        return Finding(
            "bad", "Critic", f"{told} It is worse than a constant: its learning rate, or the returns' scale."
        )
    return Finding("ok" if share > 0.3 else "watch", "Critic", told)


def _failures(run: RunRecord) -> Finding | None:
    counts = {
        "samplers restarted": max(run.values("failures/samplers"), default=0.0),
        "environment workers restarted": max(run.values("failures/env_workers"), default=0.0),
        "environments restarted": max(run.values("env/failures"), default=0.0),
        "environment steps timed out": max(run.values("env/timeouts"), default=0.0),
        "rewards that were not numbers": sum(run.values("verdict/quarantined")),
    }
    told = ", ".join(f"{count:.0f} {what}" for what, count in counts.items() if count)
    return Finding("watch", "Failures on the way", f"{told[:1].upper()}{told[1:]}.") if told else None


CHECKS: tuple[Callable[[RunRecord], Finding | None], ...] = (
    _progress,
    _entropy,
    _clipping,
    _constant_groups,
    _mismatch,
    _length,
    _reward_hacking,
    _generalisation,
    _gradients,
    _critic,
    _failures,
)
