"""Where the seconds of a step went."""

from __future__ import annotations

from rlinf.report.runs import RunRecord

# In the order in which a step goes through them. A text rollout has three stages, a simulator's is one.
_STAGES = {
    "time/env_reset_s": "new tasks",
    "time/generation_s": "generation",
    "time/verification_s": "environment",
    "time/rollout_s": "rollout",
    "time/prepare_s": "advantages",
    "time/update_s": "update",
    "time/weights_s": "weights to samplers",
}


def stages(run: RunRecord) -> list[tuple[str, float]]:
    """(stage, mean seconds of a step), in order; what no stage accounts for, and evaluations, come last."""
    steps = [position for position, seconds in enumerate(run.series.get("time/step_s", [])) if seconds is not None]
    if not steps:
        return []
    spent = []
    for name, label in _STAGES.items():
        column = run.series.get(name)
        if column is not None:
            spent.append((label, sum(column[position] or 0.0 for position in steps) / len(steps)))
    whole = sum(run.values("time/step_s")) / len(steps)
    rest = whole - sum(seconds for _, seconds in spent)
    if rest > 0:
        spent.append(("everything else", rest))
    evaluation = sum(run.values("time/evaluation_s")) / len(steps)
    if evaluation:
        spent.append(("evaluation (shared out)", evaluation))
    return spent
