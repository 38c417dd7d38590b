"""The check of the site's pages finds what is wrong with a page, and nothing on a sound one."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.browser
SCRIPT = Path(__file__).parents[2] / "docs" / "assets" / "site_check.py"
PAGE = '<!doctype html><meta name="viewport" content="width=device-width"><div class="md-content"><p>Words.</p>{}</div>'


@pytest.fixture(scope="module")
def check() -> ModuleType:
    pytest.importorskip("selenium", reason="needs selenium (extra dev)")
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("needs chromium and chromium-driver")
    spec = importlib.util.spec_from_file_location("site_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_wide_pages_and_lost_images_are_found(check: ModuleType, tmp_path: Path) -> None:
    for name, content in {
        "sound.html": "",
        "wide.html": '<p style="width: 900px">A wide line</p>',
        "lost.html": '<img src="gone.png" width="20" height="20">',
    }.items():
        (tmp_path / name).write_text(PAGE.format(content))
    names = ["sound.html", "wide.html", "lost.html"]
    browser = check.chromium()
    try:
        phone = dict(check.defects(browser, tmp_path, names, 390, 844))
        desktop = dict(check.defects(browser, tmp_path, names, 1280, 900))
    finally:
        browser.quit()
    assert set(phone) == {"wide.html", "lost.html"}
    assert "too wide: P A wide line" in phone["wide.html"]
    assert "gone.png" in phone["lost.html"]
    assert set(desktop) == {"lost.html"}
