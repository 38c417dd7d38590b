"""Folders after deletions and merges: rows are ordered by episode and frame, and found by their numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces
from test_lerobot_writer import episode, write

from rlinf.datasets.robot_data.dataset import DatasetError
from rlinf.datasets.robot_data.leaves import environment_actions, observation_arrays
from rlinf.datasets.robot_data.lerobot_writer import LeRobotWriter
from rlinf.datasets.robot_data.reading import count_episodes, dataset_instructions, read_dataset
from rlinf.datasets.robot_data.remarks import ends_remark, missing_remark, rate_remark

STATE = spaces.Box(-np.inf, np.inf, (3,), np.float32)
ACTION = spaces.Box(-1, 1, (2,), np.float32)
WORDS = ("touch the red cube", "push the ball", "open the drawer")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "set", [episode(4, 0, WORDS[0]), episode(3, 1, WORDS[1]), episode(5, 2, WORDS[2])])
    return tmp_path / "set"


def rows_of(folder: Path) -> Path:
    return next((folder / "data").rglob("*.parquet"))


def change(file: Path, **columns: Callable[[list[Any]], list[Any]]) -> None:
    """Writes a Parquet file again with these columns made of the old ones."""
    table = pq.read_table(file)
    for name, made in columns.items():
        at, field = table.column_names.index(name), table.schema.field(name)
        table = table.set_column(at, field, pa.array(made(table.column(name).to_pylist()), field.type))
    pq.write_table(table, file)


def change_header(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / "meta" / "info.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_rows_in_any_order_and_an_index_that_restarts_change_nothing(folder: Path) -> None:
    before = read_dataset(folder)
    file = rows_of(folder)
    change(file, index=lambda values: [value % 4 for value in values])
    table = pq.read_table(file)
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    pq.write_table(shuffled.slice(7), file)
    pq.write_table(shuffled.slice(0, 7), file.with_name("file-007.parquet"))
    after = read_dataset(folder)
    assert after.lengths.tolist() == [4, 3, 5]
    for name, values in before.columns.items():
        assert np.array_equal(after.columns[name], values), name
    assert np.array_equal(after.task_index, before.task_index)


def test_episodes_and_tasks_after_deletions_are_found_by_number(folder: Path) -> None:
    before = read_dataset(folder, [0, 2])
    file = rows_of(folder)
    pq.write_table(pq.read_table(file, filters=[("episode_index", "!=", 1)]), file)
    tasks = folder / "meta" / "tasks.parquet"
    pq.write_table(pq.read_table(tasks, filters=[("task_index", "!=", 1)]), tasks)
    assert (count_episodes(folder), dataset_instructions(folder)) == (2, [WORDS[0], WORDS[2]])
    for found in (read_dataset(folder), read_dataset(folder, [0, 1])):
        assert np.array_equal(found.columns["action"], before.columns["action"])
        assert [found.instructions[task] for task in found.task_index[[0, 4]]] == [WORDS[0], WORDS[2]]
    assert read_dataset(folder, [1]).lengths.tolist() == [5]
    assert read_dataset(folder, [1]).location(2).endswith("file-000.parquet: episode 2, frame 2")
    change(file, task_index=lambda values: [1 if value == 2 else value for value in values])
    with pytest.raises(DatasetError, match=r"episode 2, frame 0: task_index is 1, and .*tasks\.parquet has 0, 2"):
        read_dataset(folder)


@pytest.mark.parametrize(
    ("column", "made", "words"),
    [
        ("frame_index", lambda v: [0, 1, 1, *v[3:]], "episode 0 has frame 1 twice"),
        ("frame_index", lambda v: [0, 1, 2, 7, *v[4:]], r"episode 0 goes from frame 2 to frame 7 \(column frame_index"),
        ("episode_index", lambda v: [0] * 4 + [0] * 3 + v[7:], "episode 0 has frame 0 twice.*another episode_index"),
        ("episode_index", lambda v: [None, *v[1:]], "row 0 has no episode_index"),
        ("task_index", lambda v: [*v[:-1], None], "row 11 has no task_index"),
    ],
)
def test_numbers_that_cannot_be_right_are_named(folder: Path, column: str, made: Any, words: str) -> None:
    change(rows_of(folder), **{column: made})
    with pytest.raises(DatasetError, match=words):
        read_dataset(folder)


@pytest.mark.parametrize("column", ["episode_index", "frame_index", "action", "observation.state"])
def test_an_absent_column_is_named_if_it_is_used(folder: Path, column: str) -> None:
    file = rows_of(folder)
    pq.write_table(pq.read_table(file).drop_columns([column]), file)
    with pytest.raises(DatasetError, match=column.replace(".", r"\.")):
        used(folder)


def test_a_number_that_is_not_finite_is_named_by_file_episode_frame_and_entry(folder: Path) -> None:
    def broken(values: list[Any]) -> list[Any]:
        values[5][2] = float("nan")
        return values

    change(rows_of(folder), **{"observation.state": broken})
    found = read_dataset(folder)
    assert environment_actions(found, ACTION, {}).shape == (12, 2)  # another column than the one that is damaged
    with pytest.raises(DatasetError, match=r"file-000\.parquet: episode 1, frame 1: observation\.state\[2\] is NaN"):
        observation_arrays(found, STATE, {})


def test_frames_without_a_value_or_of_another_size_are_named(folder: Path) -> None:
    change(rows_of(folder), **{"next.reward": lambda values: [*values[:4], None, *values[5:]]})
    with pytest.raises(DatasetError, match=r"next\.reward, the rewards, cannot be used: .*episode 1, frame 0 has no"):
        read_dataset(folder).column("next.reward", "the rewards")
    change_header(folder, lambda info: info["features"]["action"].update(shape=[3]))
    with pytest.raises(
        DatasetError, match=r"episode 0, frame 0: action has 2 numbers, and its shape in meta/info.json is \[3\]"
    ):
        read_dataset(folder)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda info: info.update(fps=0), "fps is 0"),
        (lambda info: info["features"]["action"].pop("dtype"), r"features\.action has no dtype"),
        (lambda info: info.update(features=[]), "not a mapping of columns"),
    ],
)
def test_a_header_without_what_is_needed_is_named(folder: Path, damage: Any, words: str) -> None:
    change_header(folder, damage)
    with pytest.raises(DatasetError, match=words):
        read_dataset(folder)


def test_files_that_are_missing_or_damaged_are_named(folder: Path) -> None:
    tasks = folder / "meta" / "tasks.parquet"
    kept = tasks.read_bytes()
    tasks.unlink()
    with pytest.raises(DatasetError, match=r"tasks\.parquet, the instructions, cannot be read"):
        read_dataset(folder)
    tasks.write_bytes(kept)
    rows_of(folder).write_bytes(b"PAR1 and nothing more")
    with pytest.raises(DatasetError, match=r"file-000\.parquet cannot be read"):
        read_dataset(folder)


def used(folder: Path) -> None:
    """Reads what imitation reads."""
    found = read_dataset(folder)
    observation_arrays(found, STATE, {})
    environment_actions(found, ACTION, {})


@pytest.fixture
def filmed(tmp_path: Path) -> Path:
    pytest.importorskip("av")
    write(tmp_path / "films", [episode(4, 0, size=32), episode(3, 1, size=32)], videos=True)
    return tmp_path / "films"


def crop(folder: Path) -> None:
    """The same rows with films of 32 x 24."""
    shown = read_dataset(folder).columns["observation.images.front"][:, :, :24]
    for film in folder.rglob("*.mp4"):
        film.unlink()
        with LeRobotWriter(folder.with_name("aside"), fps=10, videos=True) as writer:
            for part in (shown[:4], shown[4:]):
                one = episode(len(part), 0, size=32)
                writer.add(type(one)({**one.columns, "observation.images.front": part}, ""))
        next(folder.with_name("aside").rglob("*.mp4")).rename(film)


def test_either_order_of_a_films_shape_gives_the_same_pictures(filmed: Path) -> None:
    crop(filmed)
    front = "observation.images.front"
    shown = []
    for shape, names in (
        ([32, 24, 3], ["height", "width", "channels"]),
        ([3, 32, 24], ["channels", "height", "width"]),
        ([3, 32, 24], None),
    ):
        change_header(filmed, lambda info, s=shape, n=names: info["features"][front].update(shape=s, names=n))
        shown.append(read_dataset(filmed).columns[front])
    assert shown[0].shape == (7, 32, 24, 3)
    assert shown[0].std() > 0
    assert np.array_equal(shown[0], shown[1])
    assert np.array_equal(shown[0], shown[2])
    change_header(filmed, lambda info: info["features"][front].update(shape=[24, 32, 3]))
    with pytest.raises(
        DatasetError, match=r"film has pictures of 32 x 24, and its shape in meta/info.json is \[24, 32, 3\]"
    ):
        read_dataset(filmed)


def test_films_that_do_not_fit_their_rows_are_named(filmed: Path) -> None:
    front = "observation.images.front"
    change_header(filmed, lambda info: info["features"][front]["info"].update({"video.fps": 30}))
    with pytest.raises(DatasetError, match=rf"{front} has 30 frames a second \(video\.fps\), and the dataset 10"):
        read_dataset(filmed)
    change_header(filmed, lambda info: info["features"][front]["info"].update({"video.fps": 10}))
    change(rows_of(filmed), timestamp=lambda values: [value * 3 for value in values])
    with pytest.raises(DatasetError, match=r"\.mp4: it ends before .* wanted for .*episode 1, frame \d"):
        read_dataset(filmed)
    change(rows_of(filmed), timestamp=lambda values: [value / 3 for value in values])
    rows = next((filmed / "meta" / "episodes").rglob("*.parquet"))
    pq.write_table(pq.read_table(rows).slice(0, 1), rows)
    with pytest.raises(DatasetError, match="no row for episode 1"):
        read_dataset(filmed)


def test_frames_that_the_files_lack_are_remarked(folder: Path) -> None:
    assert missing_remark(str(folder)) is None
    rows = rows_of(folder)
    pq.write_table(pq.read_table(rows).slice(0, pq.read_table(rows).num_rows - 3), rows)
    assert "its files lack 3 of the frames" in str(missing_remark(str(folder)))
    change_header(folder, lambda info: info.pop("total_frames"))
    assert missing_remark(str(folder)) is None


def test_what_may_not_be_meant_is_remarked(folder: Path) -> None:
    assert rate_remark(str(folder), 10.0) is None
    assert rate_remark(str(folder), 0.0) is None
    assert "10 frames a second, and the environment declares 40" in str(rate_remark(str(folder), 40.0))
    assert "next.done counts as a terminal state" in str(ends_remark(str(folder)))
    done = {"dtype": "bool", "shape": [1], "names": None}
    change_header(folder, lambda info: info["features"].update({"next.truncated": done}))
    assert ends_remark(str(folder)) is None
