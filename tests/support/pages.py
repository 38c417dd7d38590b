"""A report page in a browser: it is opened, its tabs are clicked, and what a person would see is counted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Of the panel that is shown: its plots that are in the window, and those of them that have drawn something. On a canvas
# that is colour: axes and their words are grey.
_PLOTS = """
const shown = [...document.querySelectorAll("#panels > section:not([hidden]) .plot")].filter((plot) => {
  const box = plot.getBoundingClientRect();
  return box.height > 50 && box.width > 100 && box.top < innerHeight && box.bottom > 0;
});
const coloured = (canvas) => {
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
  for (let i = 0; i < data.length; i += 4) {
    const [red, green, blue, alpha] = data.slice(i, i + 4);
    if (alpha > 0 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) return true;
  }
  return false;
};
const drawn = (plot) => [...plot.querySelectorAll("canvas")].some(coloured)
  || plot.querySelector(".bar .block, .bar .dot, .trial") !== null;
return [shown.length, shown.filter(drawn).length];
"""
_EMPTY_CARDS = """
const cards = document.querySelectorAll("#panels > section:not([hidden]) .card");
return [...cards].filter((card) => {
  const box = card.getBoundingClientRect();
  const seen = box.height > 0 && box.top < innerHeight && box.bottom > 0;
  return seen && !card.innerText.trim() && !card.querySelector("canvas, svg, video, img");
}).length;
"""


def forget(browser: Any) -> None:
    """Leave the page before, which may poll a server that has ended, and clear its messages."""
    browser.get("about:blank")
    browser.get_log("browser")


class Page:
    """An open page; every step that a person takes on it fails where the page's console has messages."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.browser = browser
        forget(browser)
        browser.get(f"file://{path}")
        self.wait(lambda: browser.execute_script("return document.readyState") == "complete")
        self.quiet()

    @property
    def tabs(self) -> list[str]:
        return [button.text for button in self.browser.find_elements("css selector", "nav button")]

    def open(self, tab: str) -> None:
        """Clicks a tab; its plots that are in the window are then drawn."""
        buttons = self.browser.find_elements("css selector", "nav button")
        next(button for button in buttons if button.text == tab).click()
        shown = [section for section in self.browser.find_elements("tag name", "section") if section.is_displayed()]
        assert [section.get_attribute("id") for section in shown] == [f"panel-{tab.lower()}"]
        self.wait(lambda: self.all_drawn)
        assert self.browser.execute_script(_EMPTY_CARDS) == 0, f"{tab} shows empty cards"
        self.quiet()

    @property
    def all_drawn(self) -> bool:
        """Whether no plot in the window is empty or still to come."""
        waiting = self.browser.execute_script(
            "return [...WAITING.keys()].filter((node) => node.isConnected"
            " && node.getBoundingClientRect().top < innerHeight"
            " && node.offsetParent !== null).length"
        )
        plots, drawn = self.browser.execute_script(_PLOTS)
        return bool(waiting == 0 and plots == drawn)

    @property
    def plots(self) -> int:
        """Plots in the window."""
        return int(self.browser.execute_script(_PLOTS)[0])

    def find(self, selector: str) -> list[Any]:
        """The elements of the panel that are displayed."""
        return [element for element in self.within(selector) if element.is_displayed()]

    def first(self, selector: str) -> Any:
        """Waits for the first of these elements: plots are drawn when the browser comes to them, and mice are slow."""
        self.wait(lambda: self.find(selector))
        return self.find(selector)[0]

    def within(self, selector: str) -> list[Any]:
        """The elements of the panel, those of no size included (the band of an interval of no width)."""
        return list(self.browser.find_elements("css selector", f"#panels > section:not([hidden]) {selector}"))

    def values(self, card: str, across: float = 0.98) -> str:
        """What a plot shows under the mouse, which is at that share of its width from the left."""
        from selenium.webdriver import ActionChains

        area = self.first(f"{card} .u-over")
        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", area)
        offset = int((across - 0.5) * area.size["width"])
        ActionChains(self.browser).move_to_element(area).move_to_element_with_offset(area, offset, 0).perform()
        return str(self.first(f"{card} .hover").text)

    def drag(self, element: Any, begin: tuple[int, int], end: tuple[int, int]) -> None:
        """A drag between two points, in pixels from the element's middle."""
        from selenium.webdriver import ActionChains

        self.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        chain = ActionChains(self.browser).move_to_element_with_offset(element, *begin).click_and_hold()
        chain.move_by_offset(end[0] - begin[0], end[1] - begin[1]).release().perform()
        self.quiet()

    def choose(self, label: str, value: str) -> None:
        """An option of a drop-down list."""
        from selenium.webdriver.support.ui import Select

        lists = [element for element in self.find("label") if element.text.startswith(label)]
        Select(lists[0].find_element("tag name", "select")).select_by_value(value)
        self.quiet()

    def change_theme(self) -> str:
        """The page's background colour, light or dark, after the switch."""
        self.browser.find_element("id", "theme").click()
        self.wait(lambda: self.all_drawn)
        self.quiet()
        colour: str = self.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        return colour

    def quiet(self) -> None:
        messages = self.browser.get_log("browser")
        assert not messages, messages

    def wait(self, holds: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"the page did not get there: {self.browser.get_log('browser')}"
            time.sleep(0.05)


class LivePage(Page):
    """A page of `rlinf ui`, by its address."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser = browser
        forget(browser)
        browser.get(address)
        self.settle()

    def settle(self) -> None:
        """Waits until the page that a click led to has run its scripts."""
        loaded = "return document.readyState === 'complete' && document.querySelector('nav button') !== null"
        self.wait(lambda: self.browser.execute_script(loaded))
        self.quiet()


def click_through(browser: Any, path: Path) -> Page:
    """Opens every tab of a page, changes the theme and opens the first again."""
    page = Page(browser, path)
    for tab in page.tabs:
        page.open(tab)
    page.change_theme()
    page.open(page.tabs[0])
    return page
