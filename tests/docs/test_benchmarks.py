"""The records of benchmarks/results/, the pages made from them, and the comparison of `make benchmarks`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def records() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    import records

    yield records
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def pages(records: ModuleType) -> ModuleType:
    import topic_pages

    return topic_pages


@pytest.fixture(scope="module")
def short(records: ModuleType) -> ModuleType:
    import short

    return short


def test_committed_pages_are_current(pages: ModuleType) -> None:
    made = pages.pages()
    assert {path.name for path in pages.FOLDER.glob("*.md")} == set(made)
    for name, text in made.items():
        assert (pages.FOLDER / name).read_text(encoding="utf-8") == text, "run: make docs"
    drawn = pages.pictures()
    assert {path.name for path in pages.FOLDER.glob("*.svg")} == set(drawn)
    for name, text in drawn.items():
        assert (pages.FOLDER / name).read_text(encoding="utf-8") == text, "run: make docs"


def test_the_table_of_pictures_is_that_of_its_records(records: ModuleType) -> None:
    import vision

    text = (ROOT / "docs" / "vision.md").read_text(encoding="utf-8")
    assert vision.page(text) == text, "run: python benchmarks/vision.py --report --write"


def test_the_summary_answers_with_about_fifteen_rows_of_which_several_have_a_peer(pages: ModuleType) -> None:
    assert 12 <= len(pages.SUMMARY) <= 18
    assert sum(row.ratio for row in pages.SUMMARY) >= 5


def test_the_pages_stay_short(pages: ModuleType) -> None:
    words = [word for text in pages.pages().values() for word in text.split() if re.search(r"\w", word)]
    assert len(words) < 9900


def test_every_record_is_complete(records: ModuleType) -> None:
    found = records.load_all()
    assert len(found) > 30
    for name, record in found.items():
        assert record.figures, name
        assert date.fromisoformat(record.date) <= date.today(), name
        assert re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", record.commit), name
        assert record.command, name
        assert record.machine, name
        assert record.script is None or (ROOT / record.script).exists(), name
        cells = [(figure.case, figure.metric) for figure in record.figures]
        assert len(cells) == len(set(cells)), name
        for figure in record.figures:
            assert figure.value is not None or figure.remark, (name, figure)
            if figure.interval:
                assert record.intervals, name
                low, high = figure.interval
                assert low <= figure.value <= high, (name, figure)


def test_a_record_comes_back_as_it_was_written(records: ModuleType, tmp_path: Path) -> None:
    for name, record in records.load_all().items():
        records.dump(record, tmp_path / f"{name}.json")
        assert (tmp_path / f"{name}.json").read_bytes() == (records.RESULTS / f"{name}.json").read_bytes()


def test_a_new_measurement_keeps_the_words_of_the_committed_record(
    records: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["benchmarks/sandbox.py", "--calls", "3", "--write", str(tmp_path / "sandbox.json")]
    )
    figure = records.Figure("bwrap", "median call", 9.0, "ms", (8.0, 10.0), n=3)
    records.save(tmp_path / "sandbox.json", [figure], intervals="smallest to largest of the rounds")
    made, committed = records.load(tmp_path / "sandbox.json"), records.load(records.RESULTS / "sandbox.json")
    assert (made.title, made.topic, made.note) == (committed.title, committed.topic, committed.note)
    assert made.command == "python benchmarks/sandbox.py --calls 3"
    assert made.figures == (figure,)


def test_a_table_becomes_figures(records: ModuleType) -> None:
    head = "| recipe | size | success | CPU |\n|---|---|---|---|\n"
    text = f"{head}| `reach` | 3 | 0.5 [0.4, 0.6] | 5 to 9 |\n| b | 4 | 2,000 ± 10 | |"
    found = records.figures_of_table(text, labels=2)
    assert [(one.case, one.metric, one.value, one.interval, one.remark) for one in found] == [
        ("`reach`, 3", "success", 0.5, (0.4, 0.6), ""),
        ("`reach`, 3", "CPU", None, None, "5 to 9"),
        ("b, 4", "success", 2000, (1990.0, 2010.0), ""),
    ]


@pytest.mark.parametrize(
    ("interval", "value", "expected"),
    [((1.9, 2.1), 2.0, "MOVED"), ((1.0, 2.1), 2.0, "within noise"), (None, 2.0, "no interval")],
)
def test_a_figure_moved_if_the_intervals_have_no_common_point(
    records: ModuleType, short: ModuleType, interval: tuple[float, float] | None, value: float, expected: str
) -> None:
    old = records.Figure("a", "b", 1.0, interval=(0.9, 1.1))
    assert short.judged(old, records.Figure("a", "b", value, interval=interval)) == expected


def test_every_short_benchmark_has_a_committed_record_with_intervals(records: ModuleType, short: ModuleType) -> None:
    for name in short.SHORT:
        assert (BENCHMARKS / short.SHORT[name].script).exists()
        assert (records.RESULTS / f"{name}.json").exists(), name
    judged = [
        name for name in short.SHORT if any(f.interval for f in records.load(records.RESULTS / f"{name}.json").figures)
    ]
    assert len(judged) >= 2
    assert sum(one.limit_s for one in short.SHORT.values()) <= 1.2 * short.BUDGET_S


def test_an_unknown_benchmark_is_refused_with_the_known_ones() -> None:
    command = [sys.executable, str(BENCHMARKS / "short.py"), "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no short benchmark nothing; there are sandbox" in done.stderr
