"""Open every page of the built site in Chromium at 1280 and 390 pixels: python docs/assets/site_check.py [SITE]

Prints each page that scrolls sideways, with its widest element, and each image or film that does not load; exit code 1
if there is one. Needs Chromium with its driver, and selenium (extra docs).
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTHS = {1280: 900, 390: 844}
"""Width of the window -> its height."""
SHOTS = (
    "index.html",
    "benchmarks/index.html",
    "benchmarks/peers.html",
    "algorithms/advantage_grpo.html",
    "scaling.html",
)
"""Pages that ``--shots`` takes pictures of."""
_DEFECTS = """
const found = [], wide = document.documentElement;
if (wide.scrollWidth > innerWidth) {
  const inside = (node) => node.parentElement.closest('.md-typeset__scrollwrap, pre, .md-sidebar, .highlight');
  const past = [...document.querySelectorAll('.md-content *, .md-header *')].filter(
    (node) => node.getBoundingClientRect().right > innerWidth + 1 && !inside(node));
  const names = past.slice(0, 3).map((node) => `${node.tagName} ${node.textContent.trim().slice(0, 60)}`);
  found.push(`${wide.scrollWidth - innerWidth} px too wide: ${names.join(' | ') || 'no element of the content'}`);
}
for (const image of document.images)
  if (image.offsetParent !== null && image.complete && !image.naturalWidth)
    found.push(`image does not load: ${image.src}`);
for (const film of document.querySelectorAll('video')) if (film.error) found.push(`film does not load: ${film.src}`);
return found;
"""
_IMAGES = "for (const image of document.images) image.loading = 'eager'; return document.readyState"


def main() -> int:
    """Check every page; return 1 if one has a defect."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", nargs="?", type=Path, default=Path("site"))
    parser.add_argument("--shots", type=Path, metavar="DIR", help="also take pictures of a few pages")
    options = parser.parse_args()
    site = options.site.absolute()
    pages = sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html") if path.name != "404.html")
    browser, count = chromium(), 0
    try:
        for width, height in WIDTHS.items():
            for page, defect in defects(browser, site, pages, width, height):
                count += 1
                print(f"{width} px, {page}: {defect}", flush=True)
            for page in SHOTS if options.shots else ():
                take(
                    browser, site / page, options.shots / f"{page.replace('/', '_').removesuffix('.html')}-{width}.png"
                )
    finally:
        browser.quit()
    print(f"{len(pages)} pages at {' and '.join(map(str, WIDTHS))} px: {count} defects")
    return 1 if count else 0


def chromium() -> Any:
    """Start a headless browser."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for word in ("--headless=new", "--no-sandbox", "--hide-scrollbars", "--allow-file-access-from-files"):
        options.add_argument(word)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def defects(browser: Any, site: Path, pages: list[str], width: int, height: int) -> Iterator[tuple[str, str]]:
    """Yield (page, defect) of every page at one size of the window."""
    # A mobile viewport would grow with its content, and nothing would ever be too wide.
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for page in pages:
        browser.get(f"file://{site / page}")
        browser.execute_script(_IMAGES)
        for defect in browser.execute_script(_DEFECTS):
            yield page, defect


def take(browser: Any, page: Path, target: Path) -> None:
    """Save a picture of the upper part of a page."""
    target.parent.mkdir(parents=True, exist_ok=True)
    browser.get(f"file://{page}")
    browser.save_screenshot(str(target))


if __name__ == "__main__":
    raise SystemExit(main())
