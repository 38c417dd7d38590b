"""Inputs that a policy listens to: evaluations with other questions, pictures, words and tool answers, as one table."""

from __future__ import annotations

from typing import Any

from rlinf.report.runs import RunRecord
from rlinf.train.evaluation.intervals import Measured, beyond_noise, wilson

# Metric of a changed evaluation -> what was changed, and the key that measures it.
_OF_TEXT = {
    "eval/blank_questions": ("the question is left out", "evaluation.questions: [blank]"),
    "eval/swapped_questions": ("the question of another task", "evaluation.questions: [swapped]"),
    "eval/blank_pictures": ("pictures of one colour", "evaluation.pictures: [blank]"),
    "eval/swapped_pictures": ("pictures of another task", "evaluation.pictures: [swapped]"),
    "eval/wrong_tools": ("every digit in tool answers is one higher", "evaluation.wrong_tools: true"),
}
_OF_SIMULATORS = {
    "eval/blank_words": ("the words are left out", "evaluation.words: [blank]"),
    "eval/follows": ("the words name another goal", "evaluation.words: [other_goal]"),
}
_NEW_GOAL = ("eval/follows",)
"""What counts as right is then what the changed input requests."""
_READERS = ("vla", "flow")
"""Policies that read words."""
_FEW = 0.05
"""A lower bound of the usual accuracy below which a fall cannot be seen."""
_PICTURES = ("eval/blank_pictures", "eval/swapped_pictures")


def listening(run: RunRecord) -> list[dict[str, Any]]:
    """One row for each change: ``changed``, ``usual``, ``value`` with its 95% Wilson interval, and a ``verdict``.

    What the run did not measure has the key that measures it, if the run's kind has such input. The last row is about
    the reward: how much of it was exchanged between responses, and what the policy gained all the same.
    """
    usual = "eval/accuracy" if run.values("eval/accuracy") else "eval/success_once"
    values, counts = run.values(usual), run.values(f"{usual}/n")
    if not values or not counts:
        return []
    count, rows = counts[-1], []
    base = _measured(values[-1], count)
    for name, (changed, key) in (_OF_TEXT if usual == "eval/accuracy" else _OF_SIMULATORS).items():
        result = run.values(name)
        row: dict[str, Any] = {"changed": changed, "usual": values[-1], "value": None, "low": None, "high": None}
        if result:
            row["value"], row["low"], row["high"] = measured = _measured(result[-1], count)
            row["verdict"] = _verdict(measured, base, follows=name in _NEW_GOAL)
        elif _has_input(run, name):
            row["verdict"] = f"not measured ({key})"
        else:
            continue
        rows.append(row)
    if usual == "eval/accuracy":
        rows.append(_of_reward(run, values, count))
    return rows


def _measured(share: float, count: float) -> Measured:
    return (share, *wilson(share * count, count))


def _verdict(measured: Measured, usual: Measured, *, follows: bool) -> str:
    if usual[1] < _FEW:
        return "too few are right to tell"
    falls = beyond_noise(usual, measured) < 0
    if follows:
        return "it does not follow them" if falls else "it follows them"
    return "it decides" if falls else "it hardly matters"


def _has_input(run: RunRecord, name: str) -> bool:
    """Return whether the policy is shown what ``name`` changes."""
    if name in _PICTURES:
        return bool(run.values(_PICTURES[0]) or run.values(_PICTURES[1]))
    if name in _OF_SIMULATORS:
        return run.setting("policy.name") in _READERS
    return name != "eval/wrong_tools" or (run.setting("env.max_turns") or 1) > 1


def _of_reward(run: RunRecord, values: list[float], count: float) -> dict[str, Any]:
    """Compare the accuracy before with that after training, under the share of rewards that was exchanged."""
    noise = run.setting("algorithm.reward_noise")
    row: dict[str, Any] = {"usual": None, "value": None, "low": None, "high": None}
    if not noise:
        verdict = "not measured (a run with algorithm.reward_noise: 1)"
        return {**row, "changed": "rewards exchanged between responses", "usual": values[-1], "verdict": verdict}
    row["value"], row["low"], row["high"] = measured = _measured(values[-1], count)
    direction = beyond_noise(_measured(values[0], count), measured)
    gained = ("gained nothing that is beyond noise", "gained", "lost")[direction]
    verdict = f"from {values[0]:.3g} before training it {gained}"
    return {**row, "changed": f"rewards of {noise:.0%} of the responses exchanged", "verdict": verdict}
