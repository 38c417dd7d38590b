"""Sequential stopping: boundaries, projections against another library, and how often equal settings are separated."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sweep_files import load_sweep, write_sweep_file
from synthetic import write_sweep

from rlinf.config import ConfigErrors
from rlinf.sweep.power import POWER, critical_value, power, seeds_needed, spent
from rlinf.sweep.records import read_sweep
from rlinf.sweep.sequential import Judgement, judge, separated
from rlinf.sweep.summary import judge_sweep, summarise

LR = "learner.optimizer.lr"
SEEDS = list(range(6))


@pytest.mark.parametrize("seeds", [2, 5, 12])
@pytest.mark.parametrize("difference", [0.0, 0.7, 2.5])
@pytest.mark.parametrize("deviations", [(1.0, 1.0), (0.4, 1.3)])
def test_the_power_is_that_of_the_noncentral_t(seeds: int, difference: float, deviations: tuple[float, float]) -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = (deviation**2 / seeds for deviation in deviations)
    freedom = (a + b) ** 2 / (a**2 + b**2) * (seeds - 1)
    edge, shift = stats.t.isf(0.01, freedom), difference / np.sqrt(a + b)
    assert critical_value(0.02, freedom) == pytest.approx(edge, rel=1e-4)
    expected = stats.nct.sf(edge, freedom, shift) + stats.nct.cdf(-edge, freedom, shift)
    assert power(difference, deviations, seeds, 0.02) == pytest.approx(expected, abs=2e-3)


def test_the_seeds_that_are_needed_are_the_fewest_with_that_power() -> None:
    needed = seeds_needed(0.5, (0.3, 0.6), 0.05)
    assert needed is not None
    assert power(0.5, (0.3, 0.6), needed, 0.05) >= POWER > power(0.5, (0.3, 0.6), needed - 1, 0.05)


def test_analyses_spend_little_at_first_and_all_at_the_last() -> None:
    used = [spent(0.05, count / 6) for count in range(2, 7)]
    assert used == sorted(used)
    assert used[0] < 0.001
    assert used[-1] == pytest.approx(0.05)


def scores(*means: float, noise: float, seeds: int, stream: int = 0) -> list[dict[int, float]]:
    drawn = np.random.default_rng(stream).normal(size=(len(means), seeds)) * noise
    return [dict(enumerate((mean + row).tolist())) for mean, row in zip(means, drawn, strict=True)]


def test_a_large_difference_is_decided_before_the_last_seed() -> None:
    assert judge(scores(0.9, 0.5, noise=0.02, seeds=4), SEEDS).state == "decided"
    assert judge(scores(-0.9, -0.5, noise=0.02, seeds=4), SEEDS, sign=-1).state == "decided"
    assert judge(scores(0.9, 0.5, 0.899, noise=0.02, seeds=3), SEEDS).state != "decided"


def test_what_was_decided_stays_so_although_a_later_seed_is_an_outlier() -> None:
    one, two = scores(0.9, 0.5, noise=0.01, seeds=5)
    assert judge([one, two], SEEDS).state == "decided"
    one[5] = 0.6
    assert judge([one, two], SEEDS).state == "decided"


def test_equal_settings_are_given_up_and_the_sentence_has_the_reason() -> None:
    one, two = ({seed: 0.5 + sign * 0.1 * (-1) ** seed for seed in range(4)} for sign in (1, -1))
    assert judge([one, two], SEEDS[:5]).state == "hopeless"
    assert judge([{k: one[k] for k in (0, 1)}, {k: two[k] for k in (0, 1)}], SEEDS).state == "open"
    found = judge([one, two], SEEDS)
    assert found == Judgement("hopeless", 4, None)
    assert "cannot become significant within the budget of 6 seeds" in found.sentence(6)


def test_seeds_count_once_every_setting_has_finished_them() -> None:
    one, two = scores(0.9, 0.5, noise=0.02, seeds=4)
    del two[1]
    assert judge([one, two], SEEDS) == Judgement("unknown", 1)
    assert judge([one], SEEDS).state == "unknown"


def test_the_sentence_counts_how_many_more() -> None:
    assert Judgement("open", 6, 9).sentence(6) == (
        "Not decided after 6 of 6 seeds a setting: as it is now, it needs about 9 seeds a setting (3 more)."
    )


@pytest.mark.slow
def test_equal_settings_are_called_different_in_less_than_one_of_twenty() -> None:
    """Two settings, an analysis after each seed from the second on, either of which may be the best."""
    trials = 200
    wrong = 0
    for stream in range(trials):
        one, two = (list(row.values()) for row in scores(0.5, 0.5, noise=0.1, seeds=6, stream=1000 + stream))
        wrong += separated(one, two, planned=6, pairs=1) or separated(two, one, planned=6, pairs=1)
    assert 0 < wrong / trials < 0.05


def test_a_sweep_is_summarised_in_one_sentence(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", [{LR: 1e-4}, {LR: 1e-3}], seeds=4, result=lambda one: one[LR] * 500)
    record = json.loads((folder / "sweep.json").read_text())
    record["definition"] |= {"stop": "sequential", "seeds": SEEDS}
    (folder / "sweep.json").write_text(json.dumps(record))
    summary = summarise(read_sweep(folder))
    assert judge_sweep(read_sweep(folder)).state == "decided"
    assert summary.sure is True
    assert "Decided after 4 of 6 seeds a setting" in summary.verdict.splitlines()[1]


def test_without_it_the_verdict_projects_the_seeds_of_a_new_comparison(tmp_path: Path) -> None:
    settings = [{LR: 1e-4}, {LR: 2e-4}]
    folder = write_sweep(tmp_path / "s", settings, seeds=3, result=lambda one: one[LR] * 100, noise=0.004)
    verdict = summarise(read_sweep(folder)).verdict
    assert "fresh seeds a setting would find these differences in 80% of cases" in verdict


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seeds: [0, 1]", "Write at least 3 seeds"),
        ("seeds: [0, 1, 2]\nscheduler: asha", "compares whole runs, and scheduler: asha cuts some"),
    ],
)
def test_what_can_not_be_compared_is_refused(text: str, words: str, tmp_path: Path) -> None:
    path = write_sweep_file(tmp_path, f"space: {{{LR}: {{grid: [0.1, 0.2]}}}}\nstop: sequential\n{text}\n")
    with pytest.raises(ConfigErrors, match=words):
        load_sweep(path)
