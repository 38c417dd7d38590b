"""Each check on runs where the answer is known."""

from pathlib import Path

import pytest
from report_runs import healthy, write_run

from rlinf.report.health import examine
from rlinf.report.runs import read_run
from rlinf.report.trends import lost, risen

STEPS = range(1, 21)


def levels(folder: Path) -> dict[str, str]:
    return {finding.title: finding.level for finding in examine(read_run(folder))}


def test_a_healthy_run_is_reported_so(tmp_path: Path) -> None:
    found = levels(write_run(tmp_path / "run", [healthy(step) for step in STEPS]))
    assert set(found.values()) == {"ok"}
    assert {"Entropy", "Clip fraction", "Constant groups", "Sampler and learner", "Reward and goal"} <= set(found)


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"train/entropy": lambda step: 1.0 * 0.7**step}, "Entropy collapse"),
        ({"train/clip_fraction_high": lambda step: 0.4}, "Clip fraction too high"),
        ({"reward/constant_groups": lambda step: 0.99}, "All groups constant"),
        ({"train/sampler_logprob_gap": lambda step: 0.3}, "Sampler and learner disagree"),
        (
            {"rollout/response_length": lambda step: 20.0 * step, "rollout/cut_by_length": lambda step: step / 20},
            "Length explosion",
        ),
        ({"rollout/cut_by_length": lambda step: 0.9}, "Most responses are cut"),
        ({"rollout/accuracy": lambda step: 0.8 - 0.03 * step}, "Signs of reward hacking"),
        ({"train/explained_variance": lambda step: -0.5}, "Critic"),
    ],
)
def test_what_goes_wrong_is_named(tmp_path: Path, changes: dict, title: str) -> None:
    lines = [{**healthy(step), **{name: value(step) for name, value in changes.items()}} for step in STEPS]
    findings = examine(read_run(write_run(tmp_path / "run", lines)))
    assert (findings[0].title, findings[0].level) == (title, "bad")
    assert findings[0].words


def bad_findings(folder: Path, lines: list[dict]) -> dict[str, str]:
    """The words of each bad finding."""
    found = examine(read_run(write_run(folder, lines)))
    return {finding.title: finding.words for finding in found if finding.level == "bad"}


def test_a_policy_that_large_updates_destroyed_is_not_given_other_tasks(tmp_path: Path) -> None:
    """Three steps at a learning rate far too high: right answers are gone, and responses are of full length."""
    measured = [(0.45, 14.6, 0.9, 0.0), (0.1, 20.0, 0.3, 0.4), (0.0, 24.0, 0.01, 0.6)]
    lines = [
        {
            **healthy(step),
            "rollout/accuracy": accuracy,
            "rollout/response_length": length,
            "train/entropy": entropy,
            "train/clip_fraction_high": clipped,
            "reward/constant_groups": 1.0 if step == 3 else 0.4,
        }
        for step, (accuracy, length, entropy, clipped) in enumerate(measured, start=1)
    ]
    evaluated = [
        {"eval/accuracy": mean, "eval/accuracy/ci_low": low, "eval/accuracy/ci_high": high}
        for mean, low, high in ((0.45, 0.4, 0.5), (0.0, 0.0, 0.05))
    ]
    lines = [{"step": 0, **evaluated[0]}, *lines[:2], {**lines[2], **evaluated[1]}]
    words = bad_findings(tmp_path / "run", lines)
    assert list(words) == ["Learning rate too high", "Progress"]
    large = words["Learning rate too high"]
    assert large.startswith("rollout/accuracy fell from 0.45 to 0, and 61% of an update's decisions were clipped")
    assert "entropy went from 0.9 to 0.01 nats" in large
    for text in words.values():
        assert "try a tenth of learner.optimizer.lr (now" in text
        assert "difficulty" not in text
        assert "easier" not in text
    assert "response length went from 14.6 to 24 tokens" in words["Progress"]


@pytest.mark.parametrize(
    "evidence",
    [
        {"train/update_ratio": lambda step: 0.3 / step},
        {"train/approx_kl_k3": lambda step: 65.9 if step == 1 else 0.0},
        {"train/clip_fraction_low": lambda step: 0.25 / step, "train/clip_fraction_high": lambda step: 0.2 / step},
    ],
)
@pytest.mark.parametrize("family", ["math", "simulator"])
def test_a_fall_with_large_updates_names_the_learning_rate(tmp_path: Path, evidence: dict, family: str) -> None:
    falls = {"rollout/accuracy": lambda step: 0.5 if step == 1 else 0.0}
    if family == "simulator":
        falls = {"rollout/return": lambda step: 20.0 if step == 1 else 9.3}
    made = {"math": healthy, "simulator": simulated}[family]
    changes = {**falls, "reward/constant_groups": lambda step: 0.0 if step == 1 else 1.0}
    calm = [{**made(step), **{name: value(step) for name, value in changes.items()}} for step in STEPS]
    assert "Learning rate too high" not in levels(write_run(tmp_path / "calm", calm))
    lines = [{**line, **{name: value(line["step"]) for name, value in evidence.items()}} for line in calm]
    found = examine(read_run(write_run(tmp_path / "run", lines)))
    assert (found[0].level, found[0].title) == ("bad", "Learning rate too high")
    assert "learner.optimizer.lr (now" in found[0].words
    assert not {"All groups constant", "Signs of reward hacking"} & {finding.title for finding in found}
    rising = [{**made(step), **{name: value(step) for name, value in evidence.items()}} for step in STEPS]
    assert "Learning rate too high" not in levels(write_run(tmp_path / "rising", rising))


@pytest.mark.parametrize(("accuracy", "fix"), [(0.45, "correctness: 1.0"), (0.0, "difficulty"), (1.0, "difficulty")])
def test_constant_groups_are_explained_by_what_is_paid(tmp_path: Path, accuracy: float, fix: str) -> None:
    constant = {"reward/constant_groups": 1.0, "algorithm/reward_std": 0.0, "rollout/accuracy": accuracy}
    words = bad_findings(tmp_path / "run", [{**healthy(step), **constant} for step in STEPS])
    assert fix in words["All groups constant"]


def test_groups_of_equal_rewards_differ_in_their_steps(tmp_path: Path) -> None:
    constant = {"reward/constant_groups": 1.0, "algorithm/reward_std": 0.0}
    assert "All groups constant" in levels(write_run(tmp_path / "whole", [{**healthy(s), **constant} for s in STEPS]))
    scored = [{**healthy(step), **constant, "reward_steps/mean": 0.4} for step in STEPS]
    assert "All groups constant" not in levels(write_run(tmp_path / "steps", scored))


def test_tokens_of_older_weights_do_not_make_sampler_and_learner_disagree(tmp_path: Path) -> None:
    lines = [
        {**healthy(step), "train/sampler_logprob_gap": 0.4, "train/sampler_logprob_gap_age": 1.0}
        if step % 2
        else {**healthy(step), "train/sampler_logprob_gap": 1e-6}
        for step in STEPS
    ]
    assert levels(write_run(tmp_path / "run", lines))["Sampler and learner"] == "ok"


def test_reward_without_accuracy_is_watched(tmp_path: Path) -> None:
    lines = [{**healthy(step), "rollout/accuracy": 0.4 + 0.01 * (step % 2)} for step in STEPS]
    assert levels(write_run(tmp_path / "run", lines))["Signs of reward hacking"] == "watch"


def test_an_accuracy_that_stays_at_nothing_is_watched_too(tmp_path: Path) -> None:
    lines = [{**healthy(step), "rollout/accuracy": 0.0} for step in STEPS]
    assert levels(write_run(tmp_path / "run", lines))["Signs of reward hacking"] == "watch"


def test_a_fall_under_a_rising_reward_is_not_blamed_on_the_learning_rate(tmp_path: Path) -> None:
    lines = [healthy(step) | {"rollout/accuracy": 0.8 - 0.03 * step} for step in STEPS]
    for line, accuracy in ((lines[0], 0.8), (lines[-1], 0.2)):
        line |= {"eval/accuracy": accuracy, "eval/accuracy/ci_low": accuracy - 0.1, "eval/accuracy/ci_high": accuracy}
    found = {one.title: one.words for one in examine(read_run(write_run(tmp_path / "run", lines)))}
    assert "before the learning rate" in found["Progress"]
    assert "reward: {only_if: answered}" in found["Signs of reward hacking"]


def test_noise_alone_is_no_trend() -> None:
    assert risen([0.5, 0.4, 0.6, 0.5, 0.4, 0.6, 0.5, 0.45, 0.6, 0.55]) == 0
    assert risen([index / 10 for index in range(10)]) == 1
    assert risen([-index / 10 for index in range(10)]) == -1


def test_a_gradient_that_was_no_number_is_bad(tmp_path: Path) -> None:
    lines = [{**healthy(step), "train/grad_norm": float("nan") if step == 9 else 1.0} for step in STEPS]
    assert levels(write_run(tmp_path / "run", lines))["Gradients"] == "bad"


def test_a_warm_start_has_gradients_of_its_own(tmp_path: Path) -> None:
    warm = [{"step": step, "sft/grad_norm": 1.0} for step in range(-3, 0)]
    lines = [*warm, {"step": 0, "eval/accuracy": 0.1}, *(healthy(step) for step in STEPS)]
    assert levels(write_run(tmp_path / "run", lines))["Gradients"] == "ok"


def simulated(step: int) -> dict[str, float]:
    """A step of a simulator run that goes well; its environment tells no success."""
    wobble = 0.5 * (step % 2)
    return {
        "step": step,
        "rollout/return": 20.0 * step + wobble,
        "train/entropy": 0.7 - 0.01 * step,
        "train/clip_fraction_low": 0.03,
        "train/clip_fraction_high": 0.04,
        "train/explained_variance": 0.8,
        "train/grad_norm": 0.5,
        "env/failures": 0.0,
    }


def evaluated(step: int, value: float) -> dict[str, float]:
    return {"eval/return": value, "eval/return/ci_low": value - 5, "eval/return/ci_high": value + 5}


def test_a_simulator_without_success_is_judged_by_its_return(tmp_path: Path) -> None:
    lines = [simulated(step) for step in STEPS]
    lines[0] |= evaluated(1, 20.0)
    lines[-1] |= evaluated(20, 400.0)
    found = examine(read_run(write_run(tmp_path / "run", lines)))
    assert {finding.level for finding in found} == {"ok"}
    words = {finding.title: finding.words for finding in found}
    assert words["Progress"].startswith("eval/return went from 20 to 400")
    assert {"Return over training", "Critic", "Entropy", "Clip fraction"} <= set(words)
    assert "Reward and goal" not in words


@pytest.mark.parametrize(("first", "last", "output"), [(1.0, 1.0, True), (0.9, 0.95, False), (1.0, 0.2, False)])
def test_a_run_that_starts_at_the_ceiling_had_nothing_to_learn(
    tmp_path: Path, first: float, last: float, output: bool
) -> None:
    lines = [simulated(step) for step in STEPS]
    for line, rate in ((lines[0], first), (lines[-1], last)):
        line |= {"eval/success_once": rate}
        line |= {"eval/success_once/ci_low": rate - 0.1, "eval/success_once/ci_high": min(1.0, rate + 0.1)}
    assert ("At the ceiling from the start" in levels(write_run(tmp_path / "run", lines))) == output


@pytest.mark.parametrize(
    ("changes", "level", "title"),
    [
        ({"rollout/return": lambda step: 20.0 * min(step, 20 - step)}, "bad", "Return collapse"),
        ({"rollout/return": lambda step: 10.0 * min(step, 27 - step)}, "watch", "Return over training"),
        ({"rollout/success_once": lambda step: min(step, 20 - step) / 20}, "bad", "Success collapse"),
        ({"rollout/success_once": lambda step: 0.9 - 0.04 * step}, "bad", "Signs of reward hacking"),
        ({"rollout/success_once": lambda step: 0.0}, "watch", "Signs of reward hacking"),
        ({"train/explained_variance": lambda step: 0.1}, "watch", "Critic"),
        ({"train/clip_fraction_high": lambda step: 0.5}, "bad", "Clip fraction too high"),
        ({"train/entropy": lambda step: 0.7 * 0.6**step}, "bad", "Entropy collapse"),
        ({"env/nan": lambda step: 2.0}, "watch", "Failures on the way"),
    ],
)
def test_what_goes_wrong_in_a_simulator_is_named(tmp_path: Path, changes: dict, level: str, title: str) -> None:
    lines = [{**simulated(step), **{name: value(step) for name, value in changes.items()}} for step in STEPS]
    assert levels(write_run(tmp_path / "run", lines)).get(title) == level


@pytest.mark.parametrize(("spread", "level"), [(0.0, "ok"), (2.0, "ok"), (30.0, "bad")])
def test_a_critic_of_returns_that_are_all_the_same_is_not_called_poor(
    tmp_path: Path, spread: float, level: str
) -> None:
    """CartPole at its best: every return is 500, and what the critic misses of their variance is noise."""
    late = {"train/return": 500.0, "train/return_std": spread, "train/explained_variance": -3.0}
    lines = [{**simulated(step), **late} for step in STEPS]
    if not spread:
        lines = [{name: value for name, value in line.items() if name != "train/explained_variance"} for line in lines]
    assert levels(write_run(tmp_path / "run", lines))["Critic"] == level


def test_a_lucky_stretch_is_no_collapse() -> None:
    noisy = [0.5 + 0.1 * ((7 * index) % 5 - 2) for index in range(60)]
    assert lost(noisy) == 0.0
    assert lost([float(min(index, 40 - index)) for index in range(40)]) > 0.5


@pytest.mark.parametrize(
    ("first", "last", "level"),
    [
        ((0.5, 0.44, 0.56), (0.6, 0.54, 0.66), "ok"),
        ((0.6, 0.54, 0.66), (0.5, 0.44, 0.56), "bad"),
        ((0.5, 0.44, 0.56), (0.55, 0.49, 0.61), "watch"),
    ],
)
def test_a_difference_beyond_its_noise_counts_though_the_intervals_overlap(
    tmp_path: Path, first: tuple[float, ...], last: tuple[float, ...], level: str
) -> None:
    names = ("eval/accuracy", "eval/accuracy/ci_low", "eval/accuracy/ci_high")
    lines = [{"step": step, **dict(zip(names, one, strict=True))} for step, one in ((0, first), (10, last))]
    found = {one.title: one for one in examine(read_run(write_run(tmp_path / "run", lines)))}
    assert found["Progress"].level == level
