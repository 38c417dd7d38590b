"""Chromium for the tests that open pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

BROWSER, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Skipped where there is no Chromium (apt install chromium chromium-driver) or no selenium (extra dev)."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium (pip install 'oneloop-rl[dev]')")
    if not (BROWSER and DRIVER):
        pytest.skip("needs apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--window-size=1366,900", "--enable-unsafe-swiftshader"):
        options.add_argument(word)
    options.add_argument("--use-angle=swiftshader")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()
