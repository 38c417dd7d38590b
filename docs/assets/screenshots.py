"""Pictures of `rlinf ui` for the site, light and dark: python docs/assets/screenshots.py RUNS OUT

RUNS has a text run and two simulator runs (`make docs` makes them); OUT gets a PNG for each view and theme.
Needs Chromium with its driver, and selenium (extra dev).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VIEWS = ("list", "overview", "samples", "curves", "film")
SIZE = (1200, 760)
_DEADLINE_S = 120.0
_READY = "return document.readyState === 'complete' && document.querySelector('#panels *') !== null"
_WAITING = """
return [...WAITING.keys()].filter((node) => node.isConnected && node.offsetParent !== null
  && node.getBoundingClientRect().top < innerHeight).length
"""


def main(runs: Path, out: Path) -> None:
    """Writes every picture, or raises where a page does not come up."""
    text, *simulators = sorted((path.parent for path in runs.glob("*/metrics.jsonl")), key=_is_simulator)
    both = "&".join(f"id={path.name}" for path in simulators)
    views = {
        "list": ("/", None),
        "overview": (f"/run?id={text.name}", "Overview"),
        "samples": (f"/run?id={text.name}", "Samples"),
        "curves": (f"/run?{both}", "Curves"),
        "film": (f"/run?id={simulators[0].name}", "Episodes"),
    }
    out.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "rlinf.cli", "ui", str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"(http://[^/]+)/\?token=(\S+)", server.stdout.readline() if server.stdout else "")
            if address is None:
                raise RuntimeError("rlinf ui printed no address")
            browser = _chromium()
            try:
                browser.get(address[0])
                for scheme in ("light", "dark"):
                    features = [{"name": "prefers-color-scheme", "value": scheme}]
                    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
                    for name, (path, tab) in views.items():
                        _open(browser, address[1] + path, tab)
                        browser.save_screenshot(str(out / f"{name}-{scheme}.png"))
            finally:
                browser.quit()
        finally:
            server.terminate()


def _is_simulator(run: Path) -> bool:
    return (run / "episodes").is_dir()


def _chromium() -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--window-size={},{}".format(*SIZE)):
        options.add_argument(word)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    size = {"width": SIZE[0], "height": SIZE[1], "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    return browser


def _open(browser: Any, address: str, tab: str | None) -> None:
    browser.get(address)
    _wait(lambda: browser.execute_script(_READY), address)
    if tab is not None:
        buttons = browser.find_elements("css selector", "nav button")
        next(button for button in buttons if button.text == tab).click()
    _wait(lambda: browser.execute_script(_WAITING) == 0, f"{address}, {tab}")
    time.sleep(0.5)  # films and fonts


def _wait(holds: Any, what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} was not there after {_DEADLINE_S:g} s")
        time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
