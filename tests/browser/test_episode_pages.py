"""An episode in a browser: film, rewards and actions over one axis of steps, each of which sets the step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import Page
from report_runs import healthy, write_run

from rlinf.datasets.robot_data.dataset import RecordedEpisode
from rlinf.datasets.robot_data.lerobot_writer import LeRobotWriter
from rlinf.report import write_report

pytestmark = pytest.mark.browser
STEPS, CHUNK, FPS = 12, 4, 10
WORDS = "return document.querySelector('.over-time .step').innerText"
TIME = "return document.querySelector('.film video').currentTime"
# Of each plot: where its area begins and ends, and how far in it the line of the shown step is.
POSITIONS = """
return [...document.querySelectorAll(".over-time .plot")].map((plot) => {
  const over = plot.querySelector(".u-over").getBoundingClientRect();
  const line = plot.querySelector(".now").getBoundingClientRect();
  return [over.left, over.right, (line.left + line.width / 2 - over.left) / over.width];
});
"""


def row(**given: Any) -> dict[str, Any]:
    """A line of `episodes/`: 12 steps in decisions of 4, two dimensions."""
    facts = {"key": 1, "total": 3.0, "length": STEPS, "success_once": True, "success_at_end": True, "task": ""}
    trace = {
        "reward": [0.25] * STEPS,
        "action 0": [round(0.1 * step, 2) for step in range(STEPS)],
        "action 1": [-0.5 if step < 6 else 0.5 for step in range(STEPS)],
    }
    described = {"decisions": 3, "chunk": CHUNK, "discrete": False, "dimensions": 2, "instruction": "push the red cube"}
    return {**facts, "start_seed": 5, "video": None, "film": None, **described, "trace": trace, **given}


def report_of(folder: Path, rows: list[dict[str, Any]]) -> Path:
    write_run(folder, [healthy(step) for step in range(1, 4)])
    (folder / "episodes").mkdir()
    (folder / "episodes" / "step_000003.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return write_report([folder])


def filmed(folder: Path) -> Path:
    """Two episodes in a film of 21 frames; the second one is over at frame 12 and stays."""
    pytest.importorskip("av", reason="needs the extra video")
    from rlinf.datasets.video_encoder import FilmEncoder

    track, longer = {"grid": [2, 1], "fps": float(FPS)}, {"reward": [0.0] * 20, "action 0": [0.1] * 20}
    video = "step_000003.mp4"
    first = row(key=0, length=20, decisions=5, success_once=False, success_at_end=False, trace=longer, video=video)
    first["film"] = {**track, "tile": 0, "knots": [[0, 0], [20, 20]]}
    second = row(video=video, film={**track, "tile": 1, "knots": [[0, 0], [12, 12], [20, 12]]})
    report_of(folder, [first, second])
    film = FilmEncoder(folder / "videos" / video, float(FPS))
    for frame in range(21):
        picture = np.full((64, 128, 3), 30, np.uint8)
        picture[:, 64:, 1] = 10 * min(frame, STEPS)
        film.write(picture)
    film.close(keep=True)
    return write_report([folder])


def opened(browser: Any, path: Path) -> Page:
    page = Page(browser, path)
    page.open("Episodes")
    return page


def click_at(page: Page, plot: str, step: float, last: int = STEPS) -> None:
    """A click on a plot where a step is."""
    from selenium.webdriver import ActionChains

    area = page.find(f"{plot} .u-over")[0]
    page.browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", area)
    offset = round((step / last - 0.5) * area.rect["width"])
    ActionChains(page.browser).move_to_element_with_offset(area, offset, 0).click().perform()
    page.quiet()


def test_film_plots_and_slider_show_one_step(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, filmed(tmp_path / "run"))
    page.choose("episode", "1")
    page.wait(lambda: browser.execute_script("return document.querySelector('.film video').readyState") == 4)
    page.wait(lambda: page.all_drawn)
    assert page.find(".instruction")[0].text == "push the red cube"
    assert browser.execute_script(WORDS) == "step 0 of 12"
    (left, right, _), (other_left, other_right, _) = browser.execute_script(POSITIONS)
    assert (left, right) == pytest.approx((other_left, other_right), abs=0.5)
    click_at(page, ".rewards", 6)
    page.wait(lambda: browser.execute_script(TIME) == pytest.approx(6.5 / FPS, abs=0.01))
    assert browser.execute_script(WORDS) == (
        "step 6 of 12 · decision 2 of 3 · reward 0.25 · return so far 1.5 · action 0.5, -0.5"
    )
    assert [share for *_, share in browser.execute_script(POSITIONS)] == pytest.approx([0.5, 0.5], abs=0.01)
    # The frame that is shown is that of step 6: its colour is in the right half, which the tile cuts out.
    seen = """
    const [video, canvas] = [document.querySelector(".film video"), new OffscreenCanvas(128, 64)];
    const pen = canvas.getContext("2d");
    pen.drawImage(video, 0, 0);
    const [tile, whole] = [document.querySelector(".tile").getBoundingClientRect(), video.getBoundingClientRect()];
    return [pen.getImageData(96, 32, 1, 1).data[1], (tile.left - whole.left) / tile.width, whole.width / tile.width];
    """
    page.wait(lambda: browser.execute_script(seen)[0] == pytest.approx(60, abs=5))
    assert browser.execute_script(seen)[1:] == pytest.approx([1.0, 2.0], abs=0.02)
    slider = page.find("input[type=range]")[0]
    slider.send_keys("\ue014")  # the arrow to the right
    page.wait(lambda: browser.execute_script(TIME) == pytest.approx(7.5 / FPS, abs=0.01))
    assert browser.execute_script(WORDS).startswith("step 7 of 12 · decision 2 of 3 · ")
    page.find(".film .play")[0].click()
    page.wait(lambda: browser.execute_script(WORDS).startswith("step 12 of 12 · decision 3 of 3"))
    # The episode is over before its film is: that stops with it.
    page.wait(lambda: page.find(".film .play")[0].text == "play")
    assert browser.execute_script(TIME) < 1.6
    page.quiet()


def test_a_zoom_is_of_both_plots(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, report_of(tmp_path / "run", [row()]))
    own = "[...CHARTS].filter(([node]) => node.closest('.over-time'))"
    ends = f"return {own}.map(([, chart]) => [chart.scales.x.min, chart.scales.x.max])"
    assert browser.execute_script(ends) == [[0, STEPS], [0, STEPS]]
    area = page.find(".rewards .u-over")[0]
    page.drag(area, (0, 0), (round(area.rect["width"] / 4), 0))
    page.wait(lambda: browser.execute_script(ends)[0] == pytest.approx([6, 9], abs=0.1))
    assert browser.execute_script(ends)[1] == pytest.approx([6, 9], abs=0.1)
    page.find(".rewards .unzoom")[0].click()
    assert browser.execute_script(ends) == [[0, STEPS], [0, STEPS]]


def test_decisions_begin_at_upright_lines(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, report_of(tmp_path / "run", [row()]))
    assert "a decision of 4 steps begins" in page.find(".over-time")[0].text
    # Of the grey pixels in the row of pixels below the lines of actions: those where a dash is.
    dashes = """
    const [node, chart] = [...CHARTS].at(-1);
    const { left, top, width, height } = chart.bbox;
    const pixels = chart.ctx.getImageData(left, top, width, height).data;
    const counts = new Array(width).fill(0);
    for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) {
      const [red, green, blue, alpha] = pixels.slice(4 * (y * width + x), 4 * (y * width + x) + 4);
      if (alpha > 60 && Math.abs(red - blue) < 40 && red < 170) counts[x] += 1;
    }
    const at = (step) => Math.round((step / 12) * width);
    const near = (x) => Math.max(...counts.slice(Math.max(0, x - 3), x + 4));
    return [4, 8, 2, 6, 10].map((step) => near(at(step)) / height);
    """
    first, second, *others = browser.execute_script(dashes)
    assert min(first, second) > 0.3
    assert max(others) < 0.2


@pytest.mark.parametrize("present", [True, False])
def test_without_a_film_a_click_moves_the_cursor(browser: Any, tmp_path: Path, present: bool) -> None:
    choices = {"reward": [1.0] * STEPS, "action 0": [step % 2 for step in range(STEPS)]}
    one = row(chunk=1, decisions=STEPS, discrete=True, dimensions=1, instruction="", trace=choices)
    if not present:  # as earlier versions wrote it
        for name in ("chunk", "discrete", "dimensions", "instruction", "film"):
            del one[name]
    page = opened(browser, report_of(tmp_path / "run", [one]))
    assert not page.find("video, .play, .instruction")
    click_at(page, ".actions", 3)
    assert browser.execute_script(WORDS) == "step 3 of 12 · reward 1 · return so far 3 · action 0"
    assert [share for *_, share in browser.execute_script(POSITIONS)] == pytest.approx([0.25, 0.25], abs=0.01)


def test_all_episodes_and_one_of_them_again(browser: Any, tmp_path: Path) -> None:
    page = opened(browser, report_of(tmp_path / "run", [row(key=0, success_once=False, success_at_end=False), row()]))
    page.choose("episode", "all")
    page.wait(lambda: page.all_drawn)
    assert len(page.find(".response")) == 2
    page.find(".response button:not(.names button)")[-1].click()
    page.wait(lambda: page.all_drawn)
    assert "success at the end" in page.find(".episode .head")[0].text.replace("\n", " ")


@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_a_screen_and_a_phone(browser: Any, tmp_path: Path, width: int) -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        page = opened(browser, filmed(tmp_path / "run"))
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        tile, rewards = page.find(".tile")[0].rect, page.find(".rewards")[0].rect
        above = tile["y"] + tile["height"] <= rewards["y"]
        assert above if width < 500 else tile["x"] + tile["width"] <= rewards["x"]
        assert rewards["width"] > 0.8 * width if width < 500 else rewards["width"] > 500
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_recorded_episodes(browser: Any, tmp_path: Path) -> None:
    pytest.importorskip("av", reason="needs the extra video")
    with LeRobotWriter(tmp_path / "set", fps=FPS, videos=False, robot_type="arm") as writer:
        for number in range(2):
            last = np.arange(6) == 5
            columns = {
                "observation.images.front": np.full((6, 32, 32, 3), 100, np.uint8),
                "action": np.linspace(-1, 1, 18, dtype=np.float32).reshape(6, 3),
                "next.reward": last.astype(np.float32),
                "next.success": last & (number == 0),
            }
            writer.add(RecordedEpisode(columns, f"lift cube {number}"))
    page = opened(browser, write_report([tmp_path / "set"]))
    assert page.tabs == ["Episodes"]
    assert "1 of 2" in page.find(".facts")[0].text
    page.choose("episode", "1")
    page.wait(lambda: browser.execute_script("return document.querySelector('.film video').readyState") == 4)
    assert page.find(".instruction")[0].text == "lift cube 1"
    click_at(page, ".actions", 4, last=6)
    page.wait(lambda: browser.execute_script(TIME) == pytest.approx(4.5 / FPS, abs=0.01))
    assert browser.execute_script(WORDS).startswith("step 4 of 6 · reward 0 · return so far 0 · action ")
