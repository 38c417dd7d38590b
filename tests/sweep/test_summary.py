"""Statistics over seeds against numbers worked by hand, and sweeps whose best setting is known."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from synthetic import write_sweep

from rlinf.base.student import student_tail
from rlinf.report import write_report
from rlinf.sweep.export import write_tables
from rlinf.sweep.records import TrialRecord, read_sweep
from rlinf.sweep.statistics import estimate, holm, improvement, iqm, mean_band, resampled, welch
from rlinf.sweep.summary import importances, summarise

LR = "learner.optimizer.lr"
FOUR = [{LR: lr, "algorithm.group_size": size} for lr in (1e-4, 1e-3) for size in (4, 8)]


def test_the_interquartile_mean_is_that_of_the_middle_half() -> None:
    assert float(iqm(np.arange(8.0).reshape(4, 2))) == 3.5
    assert float(iqm(np.array([[0.0, 1.0], [2.0, 100.0]]))) == 1.5
    assert float(iqm(np.array([[1.0], [2.0], [9.0]]))) == 4.0


def test_bootstrap_samples_are_drawn_task_by_task() -> None:
    scores = np.array([[0.0, 10.0], [1.0, 11.0]])
    samples = resampled(scores, count=500, seed=0)
    assert samples.shape == (500, 2, 2)
    assert set(np.unique(samples[:, :, 0])) == {0.0, 1.0}
    assert set(np.unique(samples[:, :, 1])) == {10.0, 11.0}
    assert not np.array_equal(samples[:, :, 0], samples[:, :, 1] - 10)


@pytest.mark.parametrize("seeds", [2, 3, 5, 10, 30])
def test_intervals_over_seeds_cover_the_mean_as_often_as_stated(seeds: int) -> None:
    draws = np.random.default_rng(seeds).normal(size=(seeds, 4000))
    _, low, high = mean_band(draws)
    assert ((low <= 0.0) & (high >= 0.0)).mean() == pytest.approx(0.95, abs=0.012)
    for column in (0, 1):
        found = estimate(draws[:, column].tolist())
        assert found is not None
        assert found.mean_interval == pytest.approx((low[column], high[column]))


def test_students_distribution_and_welch() -> None:
    assert student_tail(12.7062, 1.0) == pytest.approx(0.05, abs=1e-4)
    assert student_tail(2.0423, 30.0) == pytest.approx(0.05, abs=1e-4)
    assert welch([1.0, 2.0], [3.0]) is None
    assert welch([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert welch([1.0, 1.0], [0.5, 0.5]) == pytest.approx(1 / 3)  # 2 of the 6 ways to choose 2 of 4 runs
    assert welch([1.0] * 4, [0.5] * 4) == pytest.approx(2 / 70)
    assert holm([0.5, 0.01]) == [0.5, 0.02]


def test_the_probability_of_improvement_counts_pairs_of_runs() -> None:
    """3 beats 1, 2 and not 4; 2 beats 1 and ties 2; 5 beats all: 6.5 of 9."""
    found = improvement({0: 3.0, 1: 2.0, 2: 5.0}, {0: 1.0, 1: 2.0, 2: 4.0})
    assert found is not None
    assert found.probability == pytest.approx(6.5 / 9)
    assert (found.wins, found.shared) == (2, 3)
    assert improvement({}, {0: 1.0}) is None


@pytest.mark.parametrize(("seeds", "edge"), [(1, 0.025), (2, 0.158), (5, 0.478)])
def test_a_setting_that_won_every_pair_is_as_sure_as_its_seeds_allow(seeds: int, edge: float) -> None:
    """The exact interval of trials that all succeeded, where resampling finds 1 to 1."""
    better, worse = {seed: 2.0 + seed for seed in range(seeds)}, {seed: -1.0 - seed for seed in range(seeds)}
    won, lost = improvement(better, worse), improvement(worse, better)
    assert won is not None
    assert lost is not None
    assert won.interval == (pytest.approx(edge, abs=1e-3), 1.0)
    assert lost.interval == (0.0, pytest.approx(1 - edge, abs=1e-3))


def test_equal_results_of_few_seeds_leave_the_probability_open() -> None:
    equal = improvement({0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0})
    assert equal is not None
    assert equal.probability == 0.5
    assert equal.interval == (pytest.approx(0.079, abs=1e-3), pytest.approx(0.921, abs=1e-3))


def test_two_saturated_seeds_are_not_sure(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", FOUR[:2], seeds=2, noise=0.0, result=lambda s: s["algorithm.group_size"] / 8)
    summary = summarise(read_sweep(folder))
    assert summary.sure is False
    assert "(p = 0.33)" in summary.verdict
    assert "A comparison of 4 fresh seeds" in summary.verdict


def test_what_is_not_distinguishable_is_not_certain_in_the_next_line(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", FOUR[:2], seeds=2, noise=0.2, result=lambda s: s["algorithm.group_size"] / 8)
    verdict = summarise(read_sweep(folder)).verdict
    assert "not distinguishable from noise" in verdict
    assert "100% of all pairs of runs (95% interval of that probability: 16% to 100%)" in verdict


@pytest.mark.parametrize(
    ("seeds", "ending"), [(1, r"1\.\d+ \(1 seed\)\."), (2, r"\(95% interval [\d.]+ to [\d.]+, 2 seeds\)\.")]
)
def test_one_seed_has_no_interval(tmp_path: Path, seeds: int, ending: str) -> None:
    folder = write_sweep(
        tmp_path / "s", FOUR[:2], seeds=seeds, noise=0.2, result=lambda s: s["algorithm.group_size"] / 8
    )
    best = summarise(read_sweep(folder)).verdict.splitlines()[0]
    assert re.search(ending, best), best


def test_seeds_that_both_have_are_resampled_together() -> None:
    """A seed that is good for both has no effect on their difference: drawn for both, the interval stays narrow."""
    a = {seed: 10.0 * seed + 1 for seed in range(6)}
    paired = improvement(a, {seed: 10.0 * seed for seed in range(6)})
    unpaired = improvement(a, {seed + 6: 10.0 * seed for seed in range(6)})
    assert paired is not None
    assert unpaired is not None
    assert paired.probability == unpaired.probability == 21 / 36
    assert paired.interval[1] - paired.interval[0] < 0.5 * (unpaired.interval[1] - unpaired.interval[0])
    assert (paired.shared, unpaired.shared) == (6, 0)


@pytest.mark.parametrize("count", [3, 5, 10, 23])
def test_statistics_are_those_of_scipy(count: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(count)
    x, y = generator.normal(size=count), generator.normal(size=count + 1)
    assert welch(x.tolist(), y.tolist()) == pytest.approx(stats.ttest_ind(x, y, equal_var=False).pvalue, abs=1e-7)
    assert float(iqm(x[:, None])) == pytest.approx(stats.trim_mean(x, 0.25))
    found = improvement(dict(enumerate(x)), dict(enumerate(y)))
    assert found is not None
    assert found.probability == pytest.approx(stats.mannwhitneyu(x, y).statistic / (count * (count + 1)))


def test_less_is_better_with_mode_min(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", FOUR, seeds=3, noise=0.001, result=lambda s: 0.5 + 100 * s[LR])
    record = json.loads((folder / "sweep.json").read_text()) | {"mode": "min"}
    (folder / "sweep.json").write_text(json.dumps(record))
    settings = summarise(read_sweep(folder)).settings
    assert settings[0].setting[LR] == 1e-4
    last = settings[-1].beaten
    assert last is not None
    assert (last.probability, last.wins) == (1.0, 3)


def test_a_clear_winner_is_named_and_sure(tmp_path: Path) -> None:
    folder = write_sweep(
        tmp_path / "s", FOUR, seeds=3, noise=0.001, result=lambda s: 0.5 + 100 * s[LR] + s["algorithm.group_size"] / 50
    )
    summary = summarise(read_sweep(folder))
    assert summary.settings[0].setting == FOUR[3]
    assert "you can be sure" in summary.verdict
    assert summary.sure is True
    assert summary.importance[0].key == LR
    assert summary.importance[0].matters


def test_a_winner_by_luck_is_reported_so(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", FOUR, seeds=3, noise=0.05, result=lambda s: 0.5)
    summary = summarise(read_sweep(folder))
    assert "not distinguishable from noise" in summary.verdict
    assert summary.sure is False
    folder = write_sweep(tmp_path / "one", FOUR, seeds=1, result=lambda s: 0.5 + s[LR])
    assert "run more seeds" in summarise(read_sweep(folder)).verdict


def test_failed_and_cut_trials_do_not_count(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "s", FOUR, seeds=2, result=lambda s: 0.5 + s[LR])
    for number, status in ((0, "failed"), (1, "stopped"), (2, "running")):
        record = TrialRecord.read(folder / "trials" / f"{number:04d}")
        record.status, record.error = status, "Traceback: it fell over" if status == "failed" else None
        record.write()
    (folder / "trials" / "0002" / "run" / "metrics.jsonl").unlink()
    summary = summarise(read_sweep(folder))
    assert sorted(one.final.count if one.final else 0 for one in summary.settings) == [0, 1, 2, 2]
    assert "it fell over" in write_report([folder]).read_text()


def test_damaged_lines_of_a_trial_are_named(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "sweep", [{"a": 1}], seeds=2, result=lambda setting: 0.5)
    path = folder / "trials" / "0001" / "run" / "metrics.jsonl"
    with path.open("a") as file:
        file.write('{"step": 21, "eval/acc')
    summary = summarise(read_sweep(folder))
    assert summary.notes == [f"{path}: 1 damaged line was skipped (line 22)"]
    received: list[str] = []
    write_report([folder], warn=received.append)
    assert received == summary.notes
    assert "1 damaged line was skipped" in (folder / "report.html").read_text()


def test_tables_hold_the_same_in_every_format(tmp_path: Path) -> None:
    from pyarrow import parquet

    settings = [*FOUR, {LR: 1.0, "algorithm.group_size": "odd"}]
    folder = write_sweep(tmp_path / "s", settings, seeds=3, result=lambda s: 0.5 + s[LR])
    summary = summarise(read_sweep(folder))
    write_tables(summary, folder)
    rows = list(csv.DictReader((folder / "settings.csv").open()))
    table = parquet.read_table(folder / "settings.parquet").to_pylist()
    assert [float(row["final_mean"]) for row in rows] == [row["final_mean"] for row in table]
    assert table[0]["final_seeds"] == 3
    assert len((folder / "settings.md").read_text().splitlines()) > len(settings)
    assert len(list(csv.DictReader((folder / "trials.csv").open()))) == 15
    curves = parquet.read_table(folder / "curves.parquet").to_pylist()
    assert len(curves) == len(list(csv.DictReader((folder / "curves.csv").open()))) == 5 * 21
    last = next(row for row in curves if row["rank"] == 1 and row["step"] == 20)
    assert last["mean"] == pytest.approx(table[0]["final_mean"])
    assert last["iqm"] == pytest.approx(table[0]["final_iqm"])
    assert last["mean_low"] <= last["mean"] <= last["mean_high"]
    assert (last["tokens"], last["minutes"], last["env_steps"]) == (21000, pytest.approx(21 * 0.5 / 60), None)


def test_what_does_not_matter_is_not_reported_from_chance() -> None:
    generator = np.random.default_rng(1)
    settings = [{"a": float(generator.uniform()), "b": str(generator.integers(3)), "c": 1} for _ in range(200)]
    found = importances(["a", "b", "c"], settings, [s["a"] + 0.05 * generator.normal() for s in settings])
    assert [one.key for one in found] == ["a", "b"]
    assert found[0].share > 0.8
    assert not found[1].matters


def test_seeds_of_a_setting_are_no_independent_draws_of_its_parameters() -> None:
    """Each of 40 random searches has 12 settings of 5 seeds, and a parameter without any effect."""
    generator = np.random.default_rng(1)
    alarms = 0
    for _ in range(40):
        settings = [{"a": float(generator.uniform()), "b": float(generator.uniform())} for _ in range(12)]
        trials = [setting for setting in settings for _ in range(5)]
        first, second = importances(["a", "b"], trials, [one["a"] + 0.05 * generator.normal() for one in trials])
        alarms += {first.key: first, second.key: second}["b"].matters
    assert alarms <= 6  # 2 of 40 are expected


def test_a_small_grid_shows_what_matters_by_its_seeds() -> None:
    generator = np.random.default_rng(2)
    trials = [{"a": a, "b": b} for a in (0, 1) for b in (0, 1) for _ in range(5)]
    found = importances(["a", "b"], trials, [one["a"] + 0.3 * generator.normal() for one in trials])
    assert [(one.key, one.matters) for one in found] == [("a", True), ("b", False)]


@pytest.mark.slow
def test_the_page_of_a_large_sweep(tmp_path: Path) -> None:
    settings = [{LR: 10 ** -(2 + number / 20), "algorithm.group_size": 2 ** (number % 3)} for number in range(50)]
    folder = write_sweep(tmp_path / "s", settings, seeds=2, result=lambda s: 0.5 + s[LR])
    page = write_report([folder]).read_text()
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page, re.DOTALL)[0])
    assert len(data["trials"]) == 100
    assert len(data["curves"][0]["lines"]) == 10
    assert len(data["curves"][0]["lines"][0]["axis/tokens"]) == len(data["curves"][0]["lines"][0]["y"])
