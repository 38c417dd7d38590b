"""Warnings so serious in the first training iterations that they should not wait for the end of the run.

:func:`early_warnings` is a function of numbers that `metrics.jsonl` holds. The terminal shows them while the
run goes on (:mod:`rlinf.train.tracking.metric_log`), and the health page of the report reads the same from
the file. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlinf.base.redaction import public_url
from rlinf.report.large_updates import FEW, TITLE, destroyed

FIRST_STEPS = 3
"""Training iterations that are judged together; fewer in a shorter run."""
_FAILURES = "reward_failures/"
_ALL = 0.9995
"""A share that counts as all: shares are means of floats."""
_MOST = 0.95
"""Between :data:`FEW` and this share of right answers groups have right and wrong ones."""


@dataclass(frozen=True)
class _EarlyWarning:
    """``title`` states what happened, ``words`` what it means and what to change."""

    title: str
    words: str

    def __str__(self) -> str:
        return f"{self.title}. {self.words}"


class FirstSteps:
    """Collects the metrics of the first training iterations, and reports once what is wrong with them.

    ``earlier`` are the lines of `metrics.jsonl` that a resumed run continues from; ``config`` is the plain nested
    configuration.
    """

    def __init__(self, config: Mapping[str, Any], earlier: Sequence[Mapping[str, float]] = ()) -> None:
        self._config = config
        self._steps: dict[int, dict[str, float]] = {}
        self._silent: dict[str, int] = {}
        """For how many iterations on end each service has failed for every response."""
        for metrics in earlier:
            self._keep(int(metrics["step"]), metrics)

    def add(self, step: int, metrics: Mapping[str, float]) -> list[_EarlyWarning]:
        """Return the warnings, with the last of the first steps. Later ones are about services that no longer
        answer."""
        self._keep(step, metrics)
        stopped = self._services(metrics)
        if step != min(FIRST_STEPS, setting(self._config, "run.max_steps")):
            return stopped if step > FIRST_STEPS else []
        steps = [self._steps[number] for number in sorted(self._steps)]
        series = {name: [step[name] for step in steps if name in step] for name in sorted(set().union(*steps))}
        words = destroyed(series, setting(self._config, "learner.optimizer.lr"))
        return [_EarlyWarning(TITLE, words)] if words else early_warnings(steps, self._config)

    def _services(self, metrics: Mapping[str, float]) -> list[_EarlyWarning]:
        """Warn of services that have failed throughout :data:`FIRST_STEPS` iterations on end, once each time."""
        down = _down([metrics], self._config)
        self._silent = {name: self._silent.get(name, 0) + 1 for name in down}
        names = [name for name in down if self._silent[name] == FIRST_STEPS]
        return (
            [_service_warning(names, f"in the last {FIRST_STEPS} training iterations", self._config)] if names else []
        )

    def _keep(self, step: int, metrics: Mapping[str, float]) -> None:
        if 1 <= step <= FIRST_STEPS:
            self._steps[step] = dict(metrics)


def early_warnings(steps: Sequence[Mapping[str, float]], config: Mapping[str, Any]) -> list[_EarlyWarning]:
    """Find what the first ``steps`` all have in common and no run should have; a cause goes before its effects.

    >>> dead = {"algorithm/reward_mean": 0.0, "algorithm/reward_std": 0.0, "verdict/unparsable": 1.0}
    >>> [warning.title for warning in early_warnings([dead, dead], {})]
    ['No answer could be read in the first 2 training iterations']
    """
    if not steps:
        return []
    when = f"in the first {len(steps)} training iterations" if len(steps) > 1 else "in the first training iteration"
    causes = [
        warning for check in (_no_service, _not_finite, _cut, _unparsable) if (warning := check(steps, config, when))
    ]
    if causes:
        return causes
    warning = _no_reward(steps, config, when) or _no_advantage(steps, config, when)
    return [warning] if warning else []


def setting(config: Mapping[str, Any], dotted: str) -> Any:
    """Read a key of a plain nested configuration; None if it is not there."""
    value: Any = config
    for name in dotted.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _always(steps: Sequence[Mapping[str, float]], name: str, *, least: float) -> bool:
    return all(metrics.get(name, 0.0) >= least for metrics in steps)


def _zero(steps: Sequence[Mapping[str, float]], *names: str) -> bool:
    """Whether all these metrics are there and 0."""
    return all(metrics.get(name) == 0 for metrics in steps for name in names)


def _not_finite(steps: Sequence[Mapping[str, float]], config: Mapping[str, Any], when: str) -> _EarlyWarning | None:
    rows = (setting(config, "rollout.batch_size") or 1) * (setting(config, "algorithm.group_size") or 1)
    if not _always(steps, "verdict/quarantined", least=rows):
        return None
    custom = setting(config, "env.kwargs.reward.custom")
    names = ", ".join(custom) if isinstance(custom, Mapping) else "the custom reward"
    words = f"Rewards that are NaN or infinite count as 0, and every response got one. Check what {names} returns."
    return _EarlyWarning(f"Every reward was NaN or infinite {when}", words)


def _no_service(steps: Sequence[Mapping[str, float]], config: Mapping[str, Any], when: str) -> _EarlyWarning | None:
    names = _down(steps, config)
    return _service_warning(names, when, config) if names else None


def _down(steps: Sequence[Mapping[str, float]], config: Mapping[str, Any]) -> list[str]:
    """List the reward terms whose service failed for every response of all these steps."""
    rows = (setting(config, "rollout.batch_size") or 1) * (setting(config, "algorithm.group_size") or 1)
    known = [name for name in steps[0] if name.startswith(_FAILURES)]
    return [name.removeprefix(_FAILURES) for name in known if _always(steps, name, least=rows)]


def _service_warning(names: Sequence[str], when: str, config: Mapping[str, Any]) -> _EarlyWarning:
    terms = setting(config, "env.kwargs.reward")
    own = [terms.get(name) if isinstance(terms, Mapping) else None for name in names]
    urls = [each.get("url") or each.get("base_url") for each in own if isinstance(each, Mapping)]
    at = ", ".join(public_url(str(url)) for url in urls if url)
    listed = ", ".join(f"env.kwargs.reward.{name}" for name in names) + (f" ({at})" if at else "")
    words = "They are masked or count 0: nothing was learned from them. Start the service, or correct its address."
    return _EarlyWarning(f"The service of {listed} failed for every response {when}", words)


def _cut(steps: Sequence[Mapping[str, float]], config: Mapping[str, Any], when: str) -> _EarlyWarning | None:
    if not _always(steps, "rollout/cut_by_length", least=_ALL):
        return None
    limit, turns = setting(config, "rollout.max_new_tokens"), setting(config, "env.max_turns") or 1
    what = "conversation" if turns > 1 else "response"
    words = f"Raise rollout.max_new_tokens (now {limit}), or request shorter answers (data.system_prompt)."
    return _EarlyWarning(f"Every {what} was cut by the length limit {when}", words)


def _unparsable(steps: Sequence[Mapping[str, float]], config: Mapping[str, Any], when: str) -> _EarlyWarning | None:
    if not _always(steps, "verdict/unparsable", least=_ALL):
        return None
    written = setting(config, "env.kwargs.answer_format")
    expected = f" in the format that env.kwargs.answer_format requires ({written})" if written else ""
    words = (
        f"No response states its answer{expected}. Tell the model the format (data.system_prompt, "
        "env.kwargs.prompt_template), choose the one that it uses, or teach it with a warm start (sft.steps)."
    )
    return _EarlyWarning(f"No answer could be read {when}", words)


def _unpaid(steps: Sequence[Mapping[str, float]], config: Mapping[str, Any]) -> str:
    """Explain rewards that do not depend on whether answers are right; "" if they may."""
    shares = [metrics["rollout/accuracy"] for metrics in steps if "rollout/accuracy" in metrics]
    return unpaid_answers(sum(shares) / len(shares), config) if shares else ""


def unpaid_answers(accuracy: float, config: Mapping[str, Any]) -> str:
    """Explain rewards that are all the same although only some answers are right; "" if that is not so.

    >>> unpaid_answers(0.0, {}), unpaid_answers(0.45, {})[:28]
    ('', '45% of the answers are right')
    """
    learned = setting(config, "reward_model.supervision") not in (None, "none")
    if learned or not FEW <= accuracy <= _MOST:
        return ""
    reward = setting(config, "env.kwargs.reward")
    terms = {name: _weight(term) for name, term in reward.items()} if isinstance(reward, Mapping) else {}
    now = f" (now {', '.join(f'{name}: {weight}' for name, weight in terms.items())})" if terms else ""
    return (
        f"{accuracy:.0%} of the answers are right, and right and wrong ones earn the same: not the tasks are the "
        f"reason, the reward is. Let right answers earn something: env.kwargs.reward: {{correctness: 1.0}}{now}."
    )


def _weight(term: object) -> object:
    """Return the weight of a reward's term, or the names of the functions that it consists of."""
    return term.get("weight", ", ".join(map(str, term))) if isinstance(term, Mapping) else term


def _no_reward(steps: Sequence[Mapping[str, float]], config: Mapping[str, Any], when: str) -> _EarlyWarning | None:
    if not _zero(steps, "algorithm/reward_mean", "algorithm/reward_std"):
        return None
    if unpaid := _unpaid(steps, config):
        return _EarlyWarning(f"No reward was earned {when}", unpaid)
    if setting(config, "policy.name") in (None, "causal_lm"):
        words = (
            "There is nothing to learn from. Take easier tasks or a stronger model, begin with a warm start "
            "(sft.steps), or pay for partial success (env.kwargs.reward). Files in samples/ show the responses."
        )
    else:
        words = (
            "Where rewards are rare this can be chance: collect more of them in an iteration (env.num_envs, "
            "rollout.num_steps), begin with a warm start (sft.steps), or choose a denser reward."
        )
    return _EarlyWarning(f"No reward was earned {when}", words)


def _no_advantage(steps: Sequence[Mapping[str, float]], config: Mapping[str, Any], when: str) -> _EarlyWarning | None:
    if not _zero(steps, "algorithm/advantage_abs_mean"):
        return None
    if _zero(steps, "algorithm/reward_std") and (unpaid := _unpaid(steps, config)):
        return _EarlyWarning(f"Every advantage was 0 {when}", unpaid)
    words = (
        "All members of a group earned the same, so that no gradient came from rewards. Try larger groups "
        f"(algorithm.group_size, now {setting(config, 'algorithm.group_size')}), harder or easier tasks, "
        "algorithm.dynamic_sampling: true, or a reward with more than two values."
    )
    if not _always(steps, "algorithm/constant_group_fraction", least=_ALL):
        words = "No gradient came from rewards. Check filters (difficulty_mask, filter_rewards) and the rewards."
    return _EarlyWarning(f"Every advantage was 0 {when}", words)
