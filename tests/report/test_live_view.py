"""The live view over HTTP: who is let in, what is listed, and that a page changes with its run."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from report_runs import healthy, write_run
from synthetic import METRIC, write_sweep

pytest.importorskip("httpx", reason="needs httpx (extra dev)")
from starlette.testclient import TestClient

from rlinf.report.live.app import make_app
from rlinf.report.live.library import Library
from rlinf.train.run_lock import RunLock

TOKEN = "the-token"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    write_run(tmp_path / "first", [healthy(step) for step in range(1, 11)])
    write_run(tmp_path / "group" / "second", [healthy(step) for step in range(1, 5)])
    return tmp_path


@pytest.fixture
def client(runs: Path) -> TestClient:
    client = TestClient(make_app(Library(runs), TOKEN), base_url="http://127.0.0.1")
    client.get(f"/?token={TOKEN}")
    return client


def data(page: str) -> dict[str, Any]:
    """What is embedded in a page."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    read: dict[str, Any] = json.loads(found[1])
    return read


def test_only_the_token_opens_it_and_only_under_this_machines_name(runs: Path) -> None:
    app = make_app(Library(runs), TOKEN)
    stranger = TestClient(app, base_url="http://127.0.0.1")
    assert stranger.get("/").status_code == 403
    assert stranger.get("/api/index").status_code == 403
    assert stranger.get("/?token=wrong").status_code == 403
    assert TestClient(app, base_url="http://evil.example").get(f"/?token={TOKEN}").status_code == 403
    entered = stranger.get(f"/?token={TOKEN}")
    assert entered.status_code == 200
    assert str(entered.url) == "http://127.0.0.1/"  # the token does not stay in the address
    page = stranger.get(f"/run?id=first&token={TOKEN}", follow_redirects=False)
    assert page.headers["location"] == "/run?id=first"
    assert stranger.get(f"//evil.example?token={TOKEN}", follow_redirects=False).headers["location"] == "/"
    assert "connect-src 'self'" in entered.headers["content-security-policy"]
    assert "httponly" in stranger.get(f"/?token={TOKEN}", follow_redirects=False).headers["set-cookie"].lower()


def test_the_list_names_runs_their_states_and_what_they_came_to(client: TestClient, runs: Path) -> None:
    (runs / "second_starting").mkdir()
    (runs / "second_starting" / "config.yaml").write_text("run: {name: starting}\n")
    rows = {row["id"]: row for row in client.get("/api/index").json()["runs"]}
    assert set(rows) == {"first", "group/second", "second_starting"}
    assert rows["first"]["step"] == 10
    assert rows["first"]["metric"] == "reward/mean"
    assert len(rows["first"]["line"]) > 2
    assert abs(rows["first"]["changed"] - time.time()) < 60
    assert "has not finished its first step" in rows["second_starting"]["note"]
    lock = RunLock.take(runs / "first")
    assert {row["id"]: row["state"] for row in client.get("/api/index").json()["runs"]}["first"] == "running"
    lock.release()
    page = data(client.get("/").text)
    assert page["kind"] == "index"
    assert client.get("/api/index", params={"stamp": page["live"]["stamp"]}).status_code == 204


def test_a_page_requests_news_and_gets_them_once(client: TestClient, runs: Path) -> None:
    page = data(client.get("/run?id=first").text)
    assert page["runs"][0]["series"]["step"][-1] == 10
    address, stamp = page["live"]["url"], page["live"]["stamp"]
    assert client.get(address, params={"id": "first", "stamp": stamp}).status_code == 204
    with (runs / "first" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 11, "reward/mean": 0.875}) + "\n")
    news = client.get(address, params={"id": "first", "stamp": stamp})
    assert news.status_code == 200
    assert news.json()["runs"][0]["series"]["reward/mean"][-1] == 0.875
    assert client.get(address, params={"id": "first", "stamp": news.json()["stamp"]}).status_code == 204


def test_runs_are_compared_and_others_are_not_there(client: TestClient, tmp_path: Path) -> None:
    page = data(client.get("/run?id=first&id=group/second").text)
    assert [run["path"].rpartition("/")[2] for run in page["runs"]] == ["first", "second"]
    for name in ("../etc", "/etc", "third", ""):
        assert client.get("/run", params={"id": name}).status_code == 404
    assert client.get("/sweep", params={"id": "first"}).status_code == 404


def test_the_runs_of_a_sweep_are_listed_and_its_page_follows_them(client: TestClient, runs: Path) -> None:
    sweep = write_sweep(runs / "mine" / "sweep", [{"lr": 0.1}], seeds=2, result=lambda _: 0.5)
    trials = sorted((sweep / "trials").iterdir())
    for folder in (one for trial in trials for one in (trial, trial / "run")):  # the trial has a copy of it
        (folder / "config.yaml").write_text("run: {name: trial}\n")
    index = client.get("/api/index").json()
    rows = {row["id"]: row for row in index["runs"]}
    assert {f"mine/sweep/trials/{trial.name}/run" for trial in trials} == set(rows) - {"first", "group/second"}
    assert rows["mine/sweep/trials/0000/run"]["step"] == 20
    assert [one["id"] for one in index["sweeps"]] == ["mine/sweep"]
    assert data(client.get("/run?id=mine/sweep/trials/0000/run").text)["runs"][0]["name"] == "0000"
    live = data(client.get("/sweep?id=mine/sweep").text)["live"]
    with (trials[0] / "run" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 21, METRIC: 0.5}) + "\n")
    assert client.get(live["url"], params={"id": "mine/sweep", "stamp": live["stamp"]}).status_code == 200


@pytest.mark.parametrize("away_s", [-3600, 3600], ids=["long ago", "before the clock was set back"])
def test_a_lock_that_no_process_touches_is_no_running_run(client: TestClient, runs: Path, away_s: int) -> None:
    lock = runs / "first" / ".lock"
    lock.write_text(json.dumps({"pid": 1, "host": "elsewhere", "since": "now"}))
    os.utime(lock, (time.time() + away_s,) * 2)
    assert {row["id"]: row["state"] for row in client.get("/api/index").json()["runs"]}["first"] != "running"


def test_train_shows_its_run_from_a_process_that_ends_with_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import urllib.error
    import urllib.request

    from rlinf.commands.ui import live_view

    with live_view(tmp_path / "runs" / "mine"):
        deadline = time.monotonic() + 240
        printed = ""
        while "token=" not in printed and time.monotonic() < deadline:
            time.sleep(0.1)
            printed += capfd.readouterr().out
        address = re.search(r"http://\S+/", printed)
        assert address is not None
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address[0], timeout=60)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(address[0], timeout=60)


def test_a_folder_of_any_state_leaves_the_others_listed(client: TestClient, runs: Path, monkeypatch: Any) -> None:
    closed = runs / "closed" / "inside"
    closed.mkdir(parents=True)
    (closed / "config.yaml").write_text("run: {name: inside}\n")
    os.rename(runs / "group", os.fsencode(runs) + b"/gr\xffup")
    (runs / "odd_sweep").mkdir()
    (runs / "odd_sweep" / "sweep.json").write_text("{}")
    readable = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != runs / "closed" and readable(path, mode))
    found = client.get("/api/index").json()
    assert {row["id"] for row in found["runs"]} == {"first", "gr\\udcffup/second"}
    assert client.get("/run", params={"id": "gr\\udcffup/second"}).status_code == 200
    damaged = client.get("/sweep", params={"id": "odd_sweep"})  # an error that reached the server would be raised here
    assert (damaged.status_code, "odd_sweep can't be shown (KeyError" in damaged.text) == (500, True)
