"""The page as a file: everything is in it, and nothing of a sample can break it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import healthy, write_run

from rlinf.cli import main
from rlinf.report import write_report, write_run_report
from rlinf.report.axes import axes
from rlinf.report.configuration import config_rows
from rlinf.report.payload import MAX_POINTS, headlines, stages, thinned
from rlinf.report.runs import ReportError, read_run, read_series

SAMPLE = {"group": 0, "reward": 1.0, "slots": 2, "prompt": "</script><b>", "response": "<!-- 7", "advantage": 0.5}


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_the_page_holds_everything_and_requests_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [healthy(step) for step in range(1, 6)], samples=[SAMPLE])
    page = write_run_report(folder).read_text()
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="(?!data:)', page)
    run = data_of(page)["runs"][0]
    assert run["samples"]["texts"][run["samples"]["steps"]["1"][0]["prompt"]] == SAMPLE["prompt"]
    assert run["series"]["axis/tokens"] == [100, 200, 300, 400, 500]
    assert run["machine"]["commit"] == "abc"
    assert not re.search(r"<!--(title|plot_style|style|plots|data|scripts)-->", page)


def test_the_library_that_draws_is_small_and_has_its_licence_with_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [healthy(step) for step in range(1, 101)])
    page = write_run_report(folder).read_text()
    assert len(page.encode()) < 250_000
    assert "Copyright (c) 2022 Leon Sorokin" in page
    assert "uPlot (v1.6.32)" in page


def test_several_runs_make_one_page(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, [healthy(1), healthy(2)]) for name in "ab"]
    path = write_report(folders, tmp_path / "both.html")
    assert [run["name"] for run in data_of(path.read_text())["runs"]] == ["a", "b"]


def test_what_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "is no run directory: it has no config.yaml" in capsys.readouterr().err
    with pytest.raises(ReportError, match="it has no config"):
        read_run(tmp_path)


def test_a_line_cut_by_a_kill_and_numbers_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": NaN}\n{"step": 2, "b": 2.0}\n{"step": 3, "a')
    assert read_series(path)[0] == {"step": [1, 2], "a": [None, None], "b": [None, 2.0]}


def test_long_runs_are_thinned_and_keep_their_evaluations() -> None:
    count = 3 * MAX_POINTS
    evaluated = [1.0 if index == 4001 else None for index in range(count)]
    short = thinned({"step": list(range(count)), "eval/accuracy": evaluated})
    assert len(short["step"]) <= MAX_POINTS + 2
    assert 4001 in short["step"]
    assert short["step"][-1] == count - 1


def test_the_first_page_is_reported_which_curves_a_run_is_judged_by(tmp_path: Path) -> None:
    lines = [healthy(1), {**healthy(2), "eval/accuracy": 0.5, "eval/return": 2.0, "eval/pass@4": 0.6}]
    run = read_run(write_run(tmp_path / "run", lines))
    assert headlines(run) == ["eval/accuracy", "reward/mean"]
    assert headlines(replace(run, config={"checkpoint": {"best_metric": "eval/pass@4"}}))[0] == "eval/pass@4"
    assert headlines(replace(run, series={"step": [1.0], "rollout/return": [3.0]})) == ["rollout/return"]
    assert headlines(replace(run, series={"step": []})) == []
    supervised = {"step": [-2.0, -1.0], "sft/loss": [3.0, 2.0], "eval/sft_loss": [None, 2.5]}
    assert headlines(replace(run, series=supervised)) == ["eval/sft_loss", "sft/loss"]


def test_minutes_count_the_warm_start_too() -> None:
    series = {
        "step": [-2.0, -1.0, 1.0, 2.0],
        "time/sft_step_s": [60.0, 60.0, None, None],
        "time/step_s": [None, None, 30.0, 30.0],
        "time/evaluation_s": [None, None, None, 30.0],
    }
    assert axes(series)["axis/minutes"] == [1.0, 2.0, 2.5, 3.5]


def test_stages_add_up_to_the_step(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run", [healthy(1), healthy(2)]))
    assert stages(run) == [("generation", 0.5), ("update", 0.3), ("everything else", pytest.approx(0.2))]


def test_config_rows_show_what_differs_from_the_defaults() -> None:
    rows = {row["key"]: row for row in config_rows({"run": {"seed": 3, "max_steps": 100}, "old": {"key": True}})}
    assert rows["run.seed"] == {"key": "run.seed", "value": "3", "default": "0", "changed": True}
    assert not rows["run.max_steps"]["changed"]
    assert rows["old.key"]["value"] == "true"
