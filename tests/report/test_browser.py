"""The page in a real browser: it opens, every tab is clicked, and the console stays empty (Chromium and selenium)."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_runs import healthy, write_run

from rlinf.report import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "sweep"))
from synthetic import write_sweep

selenium = pytest.importorskip("selenium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None or shutil.which("chromedriver") is None, reason="no Chromium"),
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
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def click_through(browser: Any, page: Path) -> None:
    browser.get(f"file://{page}")
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


def test_a_sweep_of_a_thousand_trials_builds_and_opens_soon(browser: Any, tmp_path: Path) -> None:
    settings = [{"lr": 10 ** -(2 + place / 100), "size": 2 ** (place % 3)} for place in range(334)]
    folder = write_sweep(tmp_path / "sweep", settings, seeds=3, steps=40, result=lambda s: 0.5 + s["lr"])
    began = time.perf_counter()
    page = write_report([folder])
    assert time.perf_counter() - began < 30
    browser.get(f"file://{page}")
    timing = "return performance.getEntriesByType('navigation')[0].loadEventEnd"
    assert browser.execute_script(timing) < 3000
    click_through(browser, page)
