"""The page about recorded episodes: every step's action and reward, the instruction and a frame for each step."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("httpx", reason="needs httpx (extra dev)")
from starlette.testclient import TestClient

from rlinf.cli import main
from rlinf.datasets.robot_data.dataset import RecordedEpisode
from rlinf.datasets.robot_data.lerobot_writer import LeRobotWriter
from rlinf.report.live.app import make_app
from rlinf.report.live.library import Library
from rlinf.report.recorded import MAX_EPISODES, recording_payload
from rlinf.report.runs import ReportError


def recording(root: Path, episodes: int = 2, *, pictures: bool = False, success: bool = True) -> Path:
    """Episodes of 4, 5, ... steps; of the second one no step succeeds."""
    with LeRobotWriter(root, fps=5, videos=False, robot_type="arm") as writer:
        for number in range(episodes):
            steps = 4 + number % 3
            last = np.arange(steps) == steps - 1
            columns = {
                "observation.state": np.zeros((steps, 2), np.float32),
                "action": np.arange(2 * steps, dtype=np.float32).reshape(steps, 2),
                "next.reward": last.astype(np.float32),
                "next.done": last,
            }
            if success:
                columns["next.success"] = last & (number != 1)
            if pictures:
                columns["observation.images.front"] = np.full((steps, 16, 16, 3), 40 * (number % 6), np.uint8)
                columns["observation.images.wrist"] = np.zeros((steps, 8, 8, 3), np.uint8)
            writer.add(RecordedEpisode(columns, f"task {number}"))
    return root


def test_every_step_of_an_episode(tmp_path: Path) -> None:
    made = recording_payload(recording(tmp_path / "set"))
    first, second = made["episodes"]["steps"]["recorded"]
    assert first["trace"] == {"reward": [0, 0, 0, 1], "action 0": [0, 2, 4, 6], "action 1": [1, 3, 5, 7]}
    assert (first["instruction"], first["length"], first["total"], first["film"]) == ("task 0", 4, 1.0, None)
    assert [row["success_once"] for row in (first, second)] == [True, False]
    assert (made["videos"], made["notes"], made["count"]) == ([], [], 2)


def test_what_was_not_recorded_is_none(tmp_path: Path) -> None:
    row = recording_payload(recording(tmp_path / "set", success=False))["episodes"]["steps"]["recorded"][0]
    assert (row["success_once"], row["success_at_end"]) == (None, None)


def test_cameras_become_a_film_with_a_frame_for_each_step(tmp_path: Path) -> None:
    av = pytest.importorskip("av", reason="needs the extra video")
    made = recording_payload(recording(tmp_path / "set", pictures=True))
    row = made["episodes"]["steps"]["recorded"][1]
    assert row["film"] == {"tile": 0, "grid": (1, 1), "fps": 5.0, "knots": ((0, 0), (4, 4))}
    video = next(one for one in made["videos"] if one["name"] == row["video"])
    (tmp_path / "film.mp4").write_bytes(base64.b64decode(video["data"]))
    with av.open(str(tmp_path / "film.mp4")) as film:
        frames = [frame.to_ndarray(format="rgb24") for frame in film.decode(video=0)]
    assert [frame.shape for frame in frames] == [(192, 288, 3)] * 5
    assert abs(int(frames[0][100, 50, 0]) - 40) < 8


def test_films_end_at_a_size_and_pages_at_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("av", reason="needs the extra video")
    path = recording(tmp_path / "set", MAX_EPISODES + 6, pictures=True)
    monkeypatch.setattr("rlinf.report.recorded.MAX_VIDEO_BYTES", 3_000)
    made = recording_payload(path)
    rows = made["episodes"]["steps"]["recorded"]
    assert (len(rows), made["episodes"]["left_out"]) == (MAX_EPISODES, 6)
    assert (rows[0]["key"], rows[-1]["key"]) == (0, MAX_EPISODES + 5)
    assert 0 < sum(row["film"] is not None for row in rows) < len(rows)
    assert len(made["notes"]) == 1
    assert re.match(r"Films from episode \d+ on are left out", made["notes"][0])


def test_a_page_is_written_and_the_library_lists_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = recording(tmp_path / "sets" / "pushes")
    assert main(["report", str(path)]) == 0
    assert '"kind":"recording"' in (path / "report.html").read_text()
    library = Library(tmp_path)
    assert [row["id"] for row in library.index()["recordings"]] == ["sets/pushes"]
    client = TestClient(make_app(library, "token"), base_url="http://127.0.0.1")
    client.get("/?token=token")
    page = client.get("/recording", params={"id": "sets/pushes"})
    assert (page.status_code, '"kind":"recording"' in page.text) == (200, True)
    assert client.get("/api/recording", params={"id": "sets/pushes"}).json()["count"] == 2
    stamp = library.recording_stamp("sets/pushes")
    assert client.get("/api/recording", params={"id": "sets/pushes", "stamp": stamp}).status_code == 204
    assert library.recording_page("sets/pushes")["count"] == 2
    assert library.recording_stamp("sets/pushes") == stamp
    with pytest.raises(ReportError, match="there is no sets here"):
        library.recording_page("sets")
    (path / "meta" / "info.json").write_text("{")
    assert main(["report", str(path)]) == 2
    assert "is no header of a LeRobot dataset" in capsys.readouterr().err
