"""Evaluations on a page: rates by task, before and now."""

from pathlib import Path

from report_runs import write_run

from rlinf.report.evaluations import task_rows
from rlinf.report.payload import EVALUATION_HEADLINES
from rlinf.report.runs import read_run


def evaluated(step: int, **tasks: float) -> dict[str, float]:
    """An evaluation of 10 episodes of each task."""
    line: dict[str, float] = {"step": step}
    for name, rate in {"": sum(tasks.values()) / len(tasks), **tasks}.items():
        metric = f"eval/success_once/{name}".removesuffix("/")
        line |= {metric: rate, f"{metric}/ci_low": rate / 2, f"{metric}/ci_high": 1.0, f"{metric}/n": 10.0}
    return line


def test_each_task_has_its_rate_before_and_now(tmp_path: Path) -> None:
    first, last = evaluated(0, milk=0.2, soup=0.4), evaluated(8, milk=0.6, soup=0.5)
    assert task_rows(read_run(write_run(tmp_path / "run", [first, {"step": 4}, last])), EVALUATION_HEADLINES) == [
        {"task": "milk", "before": 0.2, "value": 0.6, "low": 0.3, "high": 1.0, "count": 10.0},
        {"task": "soup", "before": 0.4, "value": 0.5, "low": 0.25, "high": 1.0, "count": 10.0},
    ]
    (only,) = task_rows(read_run(write_run(tmp_path / "one", [evaluated(0, milk=0.2)])), EVALUATION_HEADLINES)
    assert (only["before"], only["value"]) == (None, 0.2)


def test_a_run_of_one_task_has_no_such_rows(tmp_path: Path) -> None:
    line = {"step": 0, "eval/accuracy": 0.5, "eval/accuracy/ci_low": 0.4, "eval/accuracy/n": 10.0, "eval/avg@4": 0.5}
    assert task_rows(read_run(write_run(tmp_path / "run", [line])), EVALUATION_HEADLINES) == []
