"""The pages that real runs end in, in a real browser: every tab is clicked, and the console stays empty."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import Page, click_through
from real_runs import agent_run, conversation_run, picture_run, simulator_run, sweep_folder, text_run
from report_runs import healthy, write_run
from synthetic import write_sweep

from rlinf.report import write_report
from rlinf.report.page import embedded

pytestmark = pytest.mark.browser
TABS = ["Overview", "Curves", "Time", "Samples", "Configuration"]
EPISODE = {"total": 1.5, "length": 3, "decisions": 3, "success_once": True, "success_at_end": False, "start_seed": 1}


def test_a_text_run_with_evaluations(browser: Any, tmp_path: Path) -> None:
    page = click_through(browser, text_run(tmp_path / "run") / "report.html")
    assert page.tabs == TABS
    page.open("Overview")
    assert [card.get_attribute("data-metric") for card in page.find(".headlines .card")] == [
        "eval/accuracy",
        "reward/mean",
    ]
    assert re.search(r"step 4\ntiny0[.\d]* \[0[.\d]*, [.\d]+\]$", page.values("[data-metric='eval/accuracy']"))
    assert "95% interval" in page.first(".headlines").text
    assert page.find(".finding")
    page.open("Curves")
    assert page.plots >= 4
    page.open("Time")
    assert re.search(r"generation\n[\d.]+ s \(\d+%\)", page.first(".bars").text)
    page.open("Samples")
    assert len(page.find(".response")) == 4
    assert all(card.find_elements("css selector", ".token") for card in page.find(".response"))
    page.open("Configuration")
    assert len(page.find("tbody tr")) > 10


def test_pictures_of_questions_and_of_tools_are_shown(browser: Any, tmp_path: Path) -> None:
    report = picture_run(tmp_path / "run") / "report.html"
    size = browser.get_window_size()
    for width in (1280, 390):
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500},
        )
        page = Page(browser, report)
        page.open("Samples")
        shown = page.find("img")
        found = {(image.get_property("naturalWidth"), image.get_property("naturalHeight")) for image in shown}
        assert found == {(56, 28), (28, 28)}
        assert all(0 < image.rect["x"] + image.rect["width"] <= width for image in shown)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert browser.get_window_size() == size


def test_the_themes_differ_and_both_show_the_curve(browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [healthy(step) for step in range(1, 21)])
    page = Page(browser, write_report([folder]))
    assert {page.change_theme(), page.change_theme()} == {"rgb(20, 23, 28)", "rgb(255, 255, 255)"}
    assert page.all_drawn
    assert page.values(".headlines [data-metric='reward/mean']") == "step 20\nrun0.8"


def test_values_that_a_warm_start_has_not_are_missing_in_the_page_too(browser: Any, tmp_path: Path) -> None:
    warm = [{"step": step, "sft/loss": 1.0} for step in range(-9, 0)]
    folder = write_run(tmp_path / "run", [*warm, *(healthy(step) for step in range(1, 6))])
    report = write_report([folder])
    assert '{"nulls":9}' in report.read_text()
    page = Page(browser, report)
    columns = browser.execute_script("return DATA.runs[0].series")
    assert columns["sft/loss"] == [1.0] * 9 + [None] * 5
    assert columns["reward/mean"][:9] == [None] * 9
    assert len(columns["reward/mean"]) == len(columns["step"]) == 14
    page.open("Curves")
    assert page.all_drawn
    # A user's record with the key of the page is that record, in a list and alone.
    kept = {"a": [{"nulls": 9}, {"nulls": [2]}, None, None, None, None], "b": {"nulls": 3}, "c": {"nulls": None}}
    assert browser.execute_script("return unpacked(arguments[0])", embedded(kept)) == kept


def test_two_runs_in_a_plot_are_shown_hidden_and_zoomed(browser: Any, tmp_path: Path) -> None:
    def line(step: int, more: float) -> dict[str, float]:
        value = 0.5 + more + step / 100
        bounds = {"eval/accuracy/ci_low": value - 0.1, "eval/accuracy/ci_high": value + 0.2}
        return {**healthy(step), "eval/accuracy": value, **bounds}

    steps = range(0, 41, 10)
    offsets = {"a": 0, "b": 0.05}
    folders = [write_run(tmp_path / name, [line(k, more) for k in steps]) for name, more in offsets.items()]
    page = Page(browser, write_report(folders, tmp_path / "both.html"))
    card = "[data-metric='eval/accuracy']"
    assert page.values(card, 0.5) == "step 20\na0.7 [0.6, 0.9]\nb0.75 [0.65, 0.95]"
    page.find(f"{card} .names button")[1].click()
    assert page.values(card, 0.5) == "step 20\na0.7 [0.6, 0.9]"
    assert not page.find(f"{card} .unzoom")
    area = page.first(f"{card} .u-over")
    page.drag(area, (-40, -60), (80, 60))
    assert page.values(card, 0.02).startswith("step 20\n")
    page.first(f"{card} .unzoom").click()
    assert page.values(card, 0.02).startswith("step 0\n")
    assert not page.find(f"{card} .unzoom")


def test_the_band_of_an_interval_is_as_wide_as_the_interval(browser: Any, tmp_path: Path) -> None:
    bounds = {"eval/accuracy": 0.5, "eval/accuracy/ci_low": 0.25, "eval/accuracy/ci_high": 0.75}
    page = Page(browser, write_report([write_run(tmp_path / "run", [{**healthy(k), **bounds} for k in (1, 2, 3, 4)])]))
    page.wait(lambda: page.all_drawn)
    # Of the column of pixels that crosses the plot between two steps: bluish ones, above and below the line.
    heights = """
    const canvas = document.querySelector("[data-metric='eval/accuracy'] canvas");
    const { data } = canvas.getContext("2d").getImageData(Math.round(canvas.width * 0.6), 0, 1, canvas.height);
    const bluish = (y) => data[4 * y + 3] > 0 && data[4 * y + 2] - data[4 * y] > 60;
    const blue = [...Array(canvas.height).keys()].filter(bluish);
    const chart = CHARTS.get(document.querySelector("[data-metric='eval/accuracy'] .canvas"));
    return [blue[0], blue.at(-1), chart.valToPos(0.75, "y", true), chart.valToPos(0.25, "y", true)];
    """
    top, bottom, high, low = browser.execute_script(heights)
    assert (top, bottom) == (pytest.approx(high, abs=2), pytest.approx(low, abs=2))


def test_a_simulator_run_with_video(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("av", reason="needs the extra video")
    page = click_through(browser, simulator_run(tmp_path / "run") / "report.html")
    assert page.tabs == [*TABS[:4], "Episodes", "Configuration"]
    page.open("Overview")
    assert re.search(r"\[.*, .*\]", page.values("[data-metric='eval/return']"))
    page.open("Episodes")
    page.wait(lambda: browser.execute_script("return document.querySelector('video').readyState") == 4)
    browser.execute_script("document.querySelector('video').play()")
    page.wait(lambda: browser.execute_script("return document.querySelector('video').currentTime") > 0)
    shown = "return document.querySelector('.over-time .step').innerText"
    page.wait(lambda: re.match(r"step [1-9]\d* of \d+ · reward 1 · return so far \d+ · action [01]$",
                               browser.execute_script(shown)))  # fmt: skip
    assert re.search(r"step \d+\nreward1", page.values(".rewards"))
    page.choose("evaluation after step", "0")
    assert page.find("video")
    page.choose("episode", "all")
    assert len(page.find(".response")) == 4


def test_a_run_of_several_turns(browser: Any, tmp_path: Path) -> None:
    page = click_through(browser, conversation_run(tmp_path / "run") / "report.html")
    assert browser.title == "guess [red]x[bold] the number"
    page.open("Samples")
    turns = page.find(".turn.environment")
    assert turns
    assert all("masked" in turn.text and ("higher" in turn.text or "lower" in turn.text) for turn in turns)
    assert all(turn.find_elements("css selector", ".token.masked") for turn in turns)
    assert len(page.find(".turn.policy")) > len(turns)
    assert not page.find(".turn.policy .token.masked")
    spoken = [turn.text.splitlines()[0] for turn in page.find(".turn.policy")]
    assert all(re.search(r"\d tokens, version 0, [\d.e-]+ m?s", words) for words in spoken)


def test_a_timeline(browser: Any, tmp_path: Path) -> None:
    page = click_through(browser, conversation_run(tmp_path / "run") / "report.html")
    assert page.tabs == [*TABS[:3], "Timeline", *TABS[3:]]
    page.open("Timeline")
    names = [row.text.split("\n")[0] for row in page.find("tbody tr")]
    assert any(name.startswith("generation") for name in names)
    processes = [process.text for process in page.find(".process b")]
    assert {"driver", "conversations", "learner 0", "sampler 0"} <= set(processes)
    assert all(span.get_attribute("title") for span in page.find(".spans i"))


def test_an_agents_episodes_with_their_branches(browser: Any, tmp_path: Path) -> None:
    page = click_through(browser, agent_run(tmp_path / "run") / "report.html")
    page.open("Samples")
    heads = [head.text for head in page.find(".response .head")]
    assert {re.sub(r".*(episode \d) *(branch \d).*", r"\1 \2", head.replace("\n", " ")) for head in heads} == {
        f"episode {episode} branch {branch}" for episode in range(4) for branch in (0, 1, 2)
    }
    page.first("details.context summary").click()
    assert page.first("details.context pre").text
    assert any("reward" in turn.text and "number" in turn.text for turn in page.find(".turn.policy"))


def test_a_sweep(browser: Any, tmp_path: Path) -> None:
    page = click_through(browser, sweep_folder(tmp_path) / "report.html")
    page.open("Overview")
    words = page.values("[data-metric='eval/return']").splitlines()
    assert words[0] == "step 2"
    assert all(re.fullmatch(r"lr=0.0?01[\d.]+ \[.*, .*\]", line) for line in words[1:])
    assert len(words) == 3
    assert len(page.find(".bars .bar .dot")) == len(page.find(".bars .bar .span")) == 2
    assert len(page.find(".bars .bar .upright")) == 4
    assert len(page.find("tbody tr")) == 2
    page.open("Trials")
    assert len(page.find("tbody tr")) == 4
    page.open("Parameters")
    assert len(page.find(".parallel .trial")) == 4
    assert page.first(".parallel .name").text == "lr"
    page.drag(page.first(".parallel .grip"), (0, -173), (0, -100))
    assert len(page.find(".parallel .trial.out")) == 2
    assert "2 of 4 trials" in page.first(".plot").text
    page.drag(page.first(".parallel .grip"), (0, 0), (0, 0))
    assert not page.find(".parallel .trial.out")
    page.drag(page.first(".parallel .name"), (0, 0), (1100, 0))
    assert [name.text for name in page.find(".parallel .name")][-1] == "lr"
    page.open("Definition")
    assert "grid: [0.001, 0.01]" in page.first("tbody").text


def test_videos_that_do_not_fit_are_named(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("av", reason="needs the extra video")
    from rlinf.datasets.video_encoder import FilmEncoder

    folder = write_run(tmp_path / "run", [healthy(step) for step in range(1, 21)])
    for step, video in ((0, "step_000000.mp4"), (10, None), (20, "step_000020.mp4")):
        rows = [{"key": key, "video": video, **EPISODE, "trace": {"reward": [0.5] * 3}} for key in range(2)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "episodes").mkdir(exist_ok=True)
        (folder / "episodes" / f"step_{step:06d}.jsonl").write_text(lines)
        if video is not None:
            film = FilmEncoder(folder / "videos" / video, 25.0)
            for shade in range(25):
                film.write(np.full((64, 96, 3), 10 * shade, np.uint8))
            film.close(keep=True)
    size = (folder / "videos" / "step_000020.mp4").stat().st_size
    monkeypatch.setattr("rlinf.report.payload.MAX_VIDEO_BYTES", size + 10)
    page = Page(browser, write_report([folder]))
    page.open("Episodes")
    page.wait(lambda: browser.execute_script("return document.querySelector('video').readyState") == 4)
    seen = "const v = document.querySelector('video'); return [v.videoWidth, v.videoHeight, v.duration]"
    assert browser.execute_script(seen) == [96, 64, 1]
    panel = browser.find_element("id", "panel-episodes")
    assert panel.text.count("success on the way") == 3  # two in the list, one in its head
    page.choose("evaluation after step", "10")
    assert not page.find("video")
    page.choose("evaluation after step", "0")
    assert "step_000000.mp4" in panel.text
    assert "is not in this page" in panel.text


@pytest.mark.slow
def test_a_sweep_of_a_thousand_trials_builds_and_opens_soon(browser: Any, tmp_path: Path) -> None:
    settings = [{"lr": 10 ** -(2 + index / 100), "size": 2 ** (index % 3)} for index in range(334)]
    folder = write_sweep(tmp_path / "sweep", settings, seeds=3, steps=40, result=lambda s: 0.5 + s["lr"])
    began = time.perf_counter()
    path = write_report([folder])
    built = time.perf_counter() - began
    assert built < 30
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    page = Page(browser, path)
    assert len(page.find("tbody tr")) == 334
    # CPU seconds of the page's thread, twice what they are on a quiet machine: two busy threads share a core's units.
    numbers = {one["name"]: one["value"] for one in browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
    assert 0 < numbers["TaskDuration"] < 6
    click_through(browser, path)
