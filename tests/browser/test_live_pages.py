"""`rlinf ui` in a real browser: the list, a run that goes on meanwhile, and two runs side by side."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import LivePage
from report_runs import healthy, write_run

pytestmark = pytest.mark.browser


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """(folder of runs, address with the token) of a server in a process of its own."""
    answer = {"group": 0, "reward": 1.0, "slots": 2, "prompt": "1 + " * 40, "response": "41", "advantage": 0.5}
    write_run(tmp_path / "first", [healthy(step) for step in range(1, 11)], samples=[answer])
    write_run(tmp_path / "second", [healthy(step) for step in range(1, 6)])
    command = [sys.executable, "-m", "rlinf.cli", "ui", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        yield tmp_path, address[0]
        process.terminate()


def test_the_list_a_run_that_goes_on_and_a_comparison(browser: Any, served: tuple[Path, str]) -> None:
    folder, address = served
    page = LivePage(browser, address)
    assert page.tabs == ["Runs"]
    assert len(page.find("tbody tr")) == 2
    assert len(page.find(".spark polyline")) == 2
    page.first("a").click()
    page.settle()
    page.open("Overview")
    for step in range(11, 31):
        with (folder / "first" / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(healthy(step)) + "\n")
        with (folder / "second" / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(healthy(step)) + "\n")
    # In one script: the overview is made again under our hands.
    facts = "return [...document.querySelectorAll('.facts .card b')].map((fact) => fact.innerText)"
    page.wait(lambda: "30" in browser.execute_script(facts))
    page.open("Curves")
    with (folder / "first" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(healthy(31)) + "\n")
    with (folder / "second" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(healthy(31)) + "\n")
    page.wait(lambda: browser.find_element("id", "live").text == "new data: show")
    browser.find_element("id", "live").click()
    page.wait(lambda: browser.find_element("id", "live").text == "live")
    page.wait(lambda: page.all_drawn)
    browser.find_element("id", "home").click()
    page.settle()
    for box in page.find("tbody input"):
        box.click()
    next(button for button in page.find("button") if button.text == "compare").click()
    page.settle()
    page.open("Curves")
    assert page.plots >= 4
    page.quiet()


def test_no_tab_is_wider_than_a_phone(browser: Any, served: tuple[Path, str]) -> None:
    _, address = served
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    try:
        page = LivePage(browser, address)
        widths = {"Runs": browser.execute_script("return document.documentElement.scrollWidth")}
        page.first("a").click()
        page.settle()
        for tab in page.tabs:
            page.open(tab)
            widths[tab] = browser.execute_script("return document.documentElement.scrollWidth")
        assert len(widths) >= 4
        assert set(widths.values()) == {390}, widths
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_run_that_is_moved_away_leaves_its_page_with_a_note(browser: Any, served: tuple[Path, str]) -> None:
    folder, address = served
    page = LivePage(browser, address)
    page.first("a").click()
    page.settle()
    moved = [path.rename(folder.parent / f"moved_{path.name}") for path in list(folder.iterdir())]
    live = browser.find_element("id", "live")
    page.wait(lambda: live.text == "can't be read")
    assert "there is no " in live.get_attribute("title")
    assert page.find(".facts .card")
    for path in moved:
        path.rename(folder / path.name.removeprefix("moved_"))
    page.wait(lambda: live.text == "live")
