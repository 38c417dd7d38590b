"""The page in a real browser: it opens, every tab is clicked, and the console stays empty (Chromium and selenium)."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_runs import healthy, write_run

from rlinf.report import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "sweep"))
from synthetic import write_sweep

selenium = pytest.importorskip("selenium", reason="needs selenium (pip install 'rlinf[dev]')")
BROWSER, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="needs apt install chromium chromium-driver"),
]
ROW = {
    "group": 0,
    "reward": 1.0,
    "slots": 2,
    "prompt": "2 + 2 =",
    "response": "4",
    "advantage": 0.5,
    "verdict": "correct",
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--window-size=1366,768", "--enable-unsafe-swiftshader"):
        options.add_argument(word)
    options.add_argument("--use-angle=swiftshader")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


EPISODE = {"total": 1.5, "length": 3, "decisions": 3, "success_once": True, "success_at_end": False, "start_seed": 1}


def click_through(browser: Any, page: Path) -> None:
    browser.get(f"file://{page}")
    wait_until(lambda: browser.execute_script("return Boolean(window.Plotly)"))
    for button in browser.find_elements("css selector", "nav button"):
        button.click()
        time.sleep(0.5)
        shown = [section for section in browser.find_elements("tag name", "section") if section.is_displayed()]
        assert len(shown) == 1
        assert shown[0].text
    browser.find_element("id", "theme").click()
    assert browser.get_log("browser") == []


def test_a_run(browser: Any, tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run", [healthy(step) for step in range(1, 21)], samples=[ROW, {**ROW, "reward": 0.0}]
    )
    click_through(browser, write_report([folder]))


def test_episodes_are_seen_and_read(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("av", reason="needs the extra video")
    from selenium.webdriver.support.ui import Select

    from rlinf.rollouts.video.encoder import Film

    folder = write_run(tmp_path / "run", [healthy(step) for step in range(1, 21)])
    for step, video in ((0, "step_000000.mp4"), (10, None), (20, "step_000020.mp4")):
        rows = [{"key": key, "video": video, **EPISODE, "trace": {"reward": [0.5] * 3}} for key in range(2)]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "episodes").mkdir(exist_ok=True)
        (folder / "episodes" / f"step_{step:06d}.jsonl").write_text(lines)
        if video is not None:
            film = Film(folder / "videos" / video, 25.0)
            for shade in range(25):
                film.write(np.full((64, 96, 3), 10 * shade, np.uint8))
            film.close(keep=True)
    size = (folder / "videos" / "step_000020.mp4").stat().st_size
    monkeypatch.setattr("rlinf.report.payload.MAX_VIDEO_BYTES", size + 10)
    click_through(browser, write_report([folder]))
    next(button for button in browser.find_elements("css selector", "nav button") if button.text == "Episodes").click()
    wait_until(lambda: browser.execute_script("return document.querySelector('video').readyState") == 4)
    seen = "const v = document.querySelector('video'); return [v.videoWidth, v.videoHeight, v.duration]"
    assert browser.execute_script(seen) == [96, 64, 1]
    browser.execute_script("document.querySelector('video').play()")
    wait_until(lambda: browser.execute_script("return document.querySelector('video').currentTime") > 0)
    panel = browser.find_element("id", "panel-episodes")
    assert panel.text.count("success on the way") == 2
    assert panel.find_elements("css selector", ".js-plotly-plot")
    choose = Select(panel.find_element("tag name", "select"))
    choose.select_by_value("10")
    assert not panel.find_elements("tag name", "video")
    choose.select_by_value("0")  # whose video no longer fits
    assert "step_000000.mp4" in panel.text
    assert "is not in this page" in panel.text
    assert browser.get_log("browser") == []


def wait_until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the page did not get there in time"
        time.sleep(0.05)


def test_a_sweep_of_a_thousand_trials_builds_and_opens_soon(browser: Any, tmp_path: Path) -> None:
    settings = [{"lr": 10 ** -(2 + place / 100), "size": 2 ** (place % 3)} for place in range(334)]
    folder = write_sweep(tmp_path / "sweep", settings, seeds=3, steps=40, result=lambda s: 0.5 + s["lr"])
    began = time.perf_counter()
    page = write_report([folder])
    built = time.perf_counter() - began
    assert built < 30
    browser.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    browser.get(f"file://{page}")
    # The first page is there before the load event ends, its plot a little later.
    assert len(browser.find_elements("css selector", "#panel-overview tbody tr")) == 334
    wait_until(lambda: browser.find_elements("css selector", "#panel-overview .js-plotly-plot"), 30)
    # CPU seconds of the page's thread: what a quiet machine takes, however loaded this one is.
    numbers = {one["name"]: one["value"] for one in browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
    assert 0 < numbers["TaskDuration"] < 3
    drawn = browser.execute_script("return performance.getEntriesByName('plots')[0].startTime / 1000")
    load = browser.execute_script("return performance.getEntriesByType('navigation')[0].loadEventEnd / 1000")
    told = f"built in {built:.1f} s; words and tables after {load:.2f} s, plots after {drawn:.2f} s"
    print(f"{told}; {numbers['TaskDuration']:.2f} CPU-s of the page's thread")
    click_through(browser, page)
