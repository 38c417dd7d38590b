"""Findings about a run's health, in words, from its numbers.

Each check reads a :class:`RunRecord` and returns a finding, or None if the run does not log what it reads.
"Early" and "late" are means over the first and the last fifth of the steps; `trends` defines what counts as a
change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rlinf.report import causes
from rlinf.report.first_steps import FIRST_STEPS, early_warnings, unpaid_answers
from rlinf.report.hacking import movements
from rlinf.report.large_updates import TITLE, destroyed
from rlinf.report.runs import RunRecord
from rlinf.report.trends import early, late, lost, peak
from rlinf.train.evaluation.intervals import beyond_noise

_CEILING = 0.95
"""A rate from which on training can hardly show a gain."""
_EQUAL_RETURNS = 0.05
"""A standard deviation of the returns, as a share of their mean, below which explained variance means nothing."""
HACKING = "Signs of reward hacking"
WORST_FIRST = {"bad": 0, "watch": 1, "ok": 2}


@dataclass(frozen=True)
class Finding:
    """``level``: ok, watch or bad; ``title`` states what was checked, ``words`` what was found and what to try."""

    level: str
    title: str
    words: str


def examine(run: RunRecord) -> list[Finding]:
    """All findings about a run, the worst first. What follows from another finding is left out."""
    cause = destroyed({name: run.values(name) for name in run.series}, run.setting("learner.optimizer.lr"))
    checks = [check for check in CHECKS if not (cause and check in _OF_LARGE_UPDATES)]
    findings = [Finding("bad", TITLE, cause)] if cause else []
    findings += [finding for check in checks if (finding := check(run)) is not None]
    return sorted(findings, key=lambda finding: WORST_FIRST[finding.level])


@dataclass(frozen=True)
class _Limit:
    """Above ``value`` the finding is ``title``, and ``fix`` is what one can try."""

    value: float
    title: str
    fix: str


def graded(value: float, text: str, *, bad: _Limit, watch: _Limit, fine: str = "") -> Finding:
    """Build a finding from ``text`` and the first limit that ``value`` exceeds; ``fine`` if it exceeds none."""
    for level, limit in (("bad", bad), ("watch", watch)):
        if value > limit.value:
            return Finding(level, limit.title, f"{text} {limit.fix}")
    return Finding("ok", watch.title, f"{text} {fine}".rstrip())


def _first_steps(run: RunRecord) -> Finding | None:
    """Return the findings that the terminal showed after the first training iterations."""
    steps = [
        {name: value for name, values in run.series.items() if (value := values[index]) is not None}
        for index, step in enumerate(run.steps)
        if 1 <= step <= FIRST_STEPS
    ]
    warnings = early_warnings(steps, run.config)
    return Finding("bad", warnings[0].title, warnings[0].words) if warnings else None


def _progress(run: RunRecord) -> Finding | None:
    for name in ("eval/accuracy", "eval/success_once", "eval/return"):
        values = run.values(name)
        lows, highs = run.values(f"{name}/ci_low"), run.values(f"{name}/ci_high")
        if len(values) < 2 or not lows:
            continue
        first, last = (values[0], lows[0], highs[0]), (values[-1], lows[-1], highs[-1])
        text = f"{name} went from {first[0]:.3g} to {last[0]:.3g} (95% interval {last[1]:.3g} to {last[2]:.3g})."
        direction = beyond_noise(first, last)
        if direction > 0:
            return Finding("ok", "Progress", f"{text} The difference is larger than the noise of both evaluations.")
        if direction < 0:
            words = f"{text} The policy is worse than at the first evaluation. {causes.of_decline(run)}"
            return Finding("bad", "Progress", words)
        if name != "eval/return" and first[0] >= _CEILING:
            fix = "There was next to nothing to learn: take harder tasks, or a shorter warm start (sft.steps)."
            return Finding("watch", "At the ceiling from the start", f"{text} {fix}")
        return Finding("watch", "Progress", f"{text} That is within the noise of the evaluation.")
    return None


def _entropy(run: RunRecord) -> Finding | None:
    values = run.values("train/entropy")
    if len(values) < 5:
        return None
    before, after = early(values), late(values)
    text = f"Entropy went from {before:.3g} to {after:.3g} nats per decision."
    if min(values) < 0:
        return Finding(
            "ok", "Entropy", f"{text} It is differential (continuous actions): judge its curve, not its zero."
        )
    if after < 0.1 * before:
        fix = (
            "The policy has all but stopped exploring: try a lower learner.optimizer.lr "
            f"(now {run.setting('learner.optimizer.lr')}), an entropy bonus (algorithm.entropy_bonus) or a KL term."
        )
        return Finding("bad", "Entropy collapse", f"{text} {fix}")
    if after < 0.3 * before:
        return Finding("watch", "Entropy", f"{text} It falls fast; groups will soon agree with themselves.")
    return Finding("ok", "Entropy", text)


def _collapse(run: RunRecord) -> Finding | None:
    """Training undone: what was gained is lost again."""
    for name, what in (
        ("rollout/accuracy", "Accuracy"),
        ("rollout/success_once", "Success"),
        ("rollout/return", "Return"),
    ):
        values = run.values(name)
        if len(values) < 10 or not any(values):
            continue
        share = lost(values)
        text = f"{name} rose from {early(values):.3g} to {peak(values):.3g} and ended at {late(values):.3g}."
        if not share:
            text = f"{name} ended near its best."
        fix = f"Go back to the best checkpoint. {causes.of_decline(run)}"
        return graded(
            share,
            text,
            bad=_Limit(0.5, f"{what} collapse", fix),
            watch=_Limit(0.25, f"{what} over training", "checkpoint.best_metric keeps the best checkpoint."),
        )
    return None


def _clipping(run: RunRecord) -> Finding | None:
    low, high = run.values("train/clip_fraction_low"), run.values("train/clip_fraction_high")
    if not low or not high:
        return None
    if max(*low, *high) == 0:
        once = run.setting("algorithm.update_epochs") == 1 and run.setting("algorithm.num_minibatches") == 1
        why = "each batch is used for one optimiser step" if once else "the updates are small for the clip range"
        return Finding("ok", "Clip fraction", f"Nothing was ever clipped: {why}.")
    share = late(low) + late(high)
    fix = "Most of such a batch teaches nothing: fewer epochs, fewer minibatches or a lower learning rate."
    return graded(
        share,
        f"Of the late decisions {share:.1%} were clipped.",
        bad=_Limit(0.3, "Clip fraction too high", fix),
        watch=_Limit(0.15, "Clip fraction", "The updates are large for the clip range."),
    )


def _constant_groups(run: RunRecord) -> Finding | None:
    values = run.values("reward/constant_groups") or run.values("algorithm/constant_group_fraction")
    # With a scorer of steps, responses of equal rewards differ in their steps.
    if not values or run.values("reward_steps/mean") or not (run.setting("algorithm.group_size") or 0) > 1:
        return None
    share = late(values)
    accuracy = run.values("rollout/accuracy")
    spreads = run.values("algorithm/reward_std")
    all_alike = not spreads or late(spreads) == 0  # of the late steps, in whatever group
    fix = unpaid_answers(late(accuracy), run.config) if accuracy and all_alike else ""
    if causes.worsened(run):
        fix = f"The policy has lost what it could do, not the tasks their difficulty. {causes.of_decline(run)}"
    fix = fix or (
        "Almost no group teaches anything: change the difficulty of the tasks, or set algorithm.dynamic_sampling."
    )
    thin = "The signal gets thin; larger groups, other tasks or algorithm.dynamic_sampling would help."
    return graded(
        share,
        f"In {share:.0%} of the late groups every member had the same reward.",
        bad=_Limit(0.95, "All groups constant", fix),
        watch=_Limit(0.7, "Constant groups", thin),
    )


def _mismatch(run: RunRecord) -> Finding | None:
    ages = run.series.get("train/sampler_logprob_gap_age", [])
    column = run.series.get("train/sampler_logprob_gap", [])
    # Tokens of older weights differ by what was learned since, too.
    fresh = [gap for index, gap in enumerate(column) if not (ages[index] if ages else 0)]
    values = [gap for gap in fresh if gap is not None]
    if not values:
        return None
    gap = late(values)
    fix = "They do not run the same policy: check precision, chat template and temperature, or correct for it."
    slight = "That is more than rounding; algorithm.rollout_correction weighs it out."
    return graded(
        gap,
        f"Sampler and learner differ by {gap:.2g} nats per decision on average.",
        bad=_Limit(0.1, "Sampler and learner disagree", fix),
        watch=_Limit(0.02, "Sampler and learner", slight),
    )


def _length(run: RunRecord) -> Finding | None:
    values = run.values("rollout/response_length")
    if len(values) < 5:
        return None
    before, after = early(values), late(values)
    cut = run.values("rollout/cut_by_length")
    share = late(cut) if cut else 0.0
    text = (
        f"Responses went from {before:.0f} to {after:.0f} tokens; {share:.0%} of the late ones were cut by the limit."
    )
    if share > 0.5 or (after > 2 * before and share > 0.2):
        fix = "Raise rollout.max_new_tokens, or make length cost something (algorithm.overlong_penalty)."
        title = "Length explosion" if after > 1.5 * before else "Most responses are cut"
        return Finding("bad", title, f"{text} {fix}")
    if after > 1.5 * before or share > 0.2:
        return Finding("watch", "Length", f"{text} See whether accuracy grows with it.")
    if after < 0.4 * before:
        return Finding("watch", "Length", f"{text} Very short responses can be a shortcut: read some samples.")
    return Finding("ok", "Length", text)


def _reward_hacking(run: RunRecord) -> Finding | None:
    together = None
    for movement in movements(run):
        if movement.hacked:
            fix = (
                "What is paid rises while what is meant falls: the policy found something that pays without it. Read "
                "samples of the last step, and pay nothing where the verifier finds no answer (env.kwargs.reward: "
                "{only_if: answered})."
            )
            return Finding("bad", HACKING, f"{movement.words} {fix}")
        if movement.paid > 0 and movement.meant == 0 and movement.goal < 0.95:
            fix = "What is paid rises and what is meant does not: check the reward's terms, and read some samples."
            return Finding("watch", HACKING, f"{movement.words} {fix}")
        together = Finding("ok", "Reward and goal", f"{movement.words} Neither runs away from the other.")
    return together


def _generalisation(run: RunRecord) -> Finding | None:
    train, held_out = run.values("rollout/accuracy"), run.values("eval/accuracy")
    if len(train) < 5 or len(held_out) < 2:
        return None
    gap = late(train) - held_out[-1]
    if gap < 0.15:
        return None
    text = f"Training tasks are solved {late(train):.0%} of the time, held-out tasks {held_out[-1]:.0%}."
    return Finding("watch", "Held-out tasks lag behind", f"{text} The policy may be learning its tasks by heart.")


def _gradients(run: RunRecord) -> Finding | None:
    values = run.values("train/grad_norm")
    if len(values) < 5:
        return None
    middle, largest = sorted(values)[len(values) // 2], max(values)
    skipped = sum(run.values("train/skipped_minibatches"))
    text = f"Gradient norm: median {middle:.3g}, largest {largest:.3g}; {skipped:.0f} minibatches were skipped."
    # Neither the evaluation before training (step 0) nor a warm start (below 0) has this number.
    column = zip(run.steps, run.series["train/grad_norm"], strict=True)
    missing = sum(norm is None for step, norm in column if step > 0)
    if missing:
        return Finding("bad", "Gradients", f"{text} In {missing} steps it was not a number.")
    if middle > 0 and largest > 20 * middle:
        return Finding("watch", "Gradient spikes", f"{text} Some steps are far larger than the others.")
    return Finding("ok", "Gradients", text)


def _critic(run: RunRecord) -> Finding | None:
    returns, spreads = run.values("train/return"), run.values("train/return_std")
    if len(spreads) >= 5 and late(spreads) < _EQUAL_RETURNS * abs(late(returns)):
        text = f"The late returns hardly vary: mean {late(returns):.3g}, standard deviation {late(spreads):.2g}."
        return Finding("ok", "Critic", f"{text} There is next to nothing for the critic to explain.")
    values = run.values("train/explained_variance")
    if len(values) < 5:
        return None
    share = late(values)
    text = f"The critic explains {share:.0%} of the variance of the late returns."
    if share < 0:
        return Finding(
            "bad", "Critic", f"{text} It is worse than a constant: its learning rate, or the returns' scale."
        )
    return Finding("ok" if share > 0.3 else "watch", "Critic", text)


def _failures(run: RunRecord) -> Finding | None:
    counts = {
        "samplers restarted": max(run.values("failures/samplers"), default=0.0),
        "environment workers restarted": max(run.values("failures/env_workers"), default=0.0),
        "environments restarted": max(run.values("env/failures"), default=0.0),
        "environment steps timed out": max(run.values("env/timeouts"), default=0.0),
        "observations or rewards that were not numbers": max(run.values("env/nan"), default=0.0),
        "rewards that were not numbers": sum(run.values("verdict/quarantined")),
    }
    text = ", ".join(f"{count:.0f} {what}" for what, count in counts.items() if count)
    return Finding("watch", "Failures on the way", f"{text[:1].upper()}{text[1:]}.") if text else None


CHECKS: tuple[Callable[[RunRecord], Finding | None], ...] = (
    _first_steps,
    _reward_hacking,
    _progress,
    _collapse,
    _entropy,
    _clipping,
    _constant_groups,
    _mismatch,
    _length,
    _generalisation,
    _gradients,
    _critic,
    _failures,
)
_OF_LARGE_UPDATES = (_collapse, _entropy, _clipping, _constant_groups, _length, _reward_hacking, _critic)
"""Checks whose findings are effects of a learning rate that is too high: their advice would lead away from it."""
