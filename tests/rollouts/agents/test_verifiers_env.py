"""Tasksets in another interpreter, with a stand-in for the program there: tasks, episodes, failures and its death."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tiny_runs import mapping

from rlinf.base.errors import UserError
from rlinf.config import ConfigErrors, load_mapping
from rlinf.rollouts.agents import verifiers_env
from rlinf.rollouts.agents.verifiers_env import VerifiersEnv
from rlinf.rollouts.text.conversation import Feedback, FeedbackBatch, Response
from rlinf.rollouts.text.env_worker import TextEnvWorker

PROGRAM = """
import json, os, socket, sys
lines = socket.socket(fileno=int(sys.argv[1])).makefile("rwb", buffering=0)
wanted = json.loads(lines.readline())
if wanted["config"]["taskset"]["id"] == "refused":
    lines.write(b'{"refused": "ValueError: no such taskset"}\\n')
    sys.exit()
shown = [{"prompt": f"task {number}"} for number in range(wanted["first"], wanted["first"] + wanted["count"])]
lines.write(json.dumps({"tasks": shown}).encode() + b"\\n")
while line := lines.readline():
    request = json.loads(line)
    if request["task"] == 2:
        print("no memory", flush=True)
        os._exit(3)
    if request["task"] == 4:
        continue
    fails = {"failed": "KeyError: 'x'"} if request["task"] == 1 else {"reward": 0.5, "terms": {"right": 1.0}}
    lines.write(json.dumps({"id": request["id"], **fails}).encode() + b"\\n")
"""
ADDRESS = json.dumps({"base_url": "http://127.0.0.1:1/v1", "api_key": "token:session", "model": "policy"})


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    monkeypatch.setattr(verifiers_env, "_CHILD", file)


def made(name: str = "sums", **kwargs: Any) -> VerifiersEnv:
    return VerifiersEnv(f"verifiers:{name}", python=sys.executable, start_timeout_s=60.0, **kwargs)


def test_episodes_are_played_by_another_process() -> None:
    env = made(first=0, count=3)
    assert (env.num_tasks, env.prompt(1)) == (3, "task 1")
    env.resize(3)
    assert env.reset(options={"task_ids": [0, 1, 2]})[0] == ("task 0", "task 1", "task 2")
    observation, reward, terminated, truncated, facts = env.step_row(0, ADDRESS)
    assert (observation, reward, terminated, truncated) == ("", 0.5, True, False)
    assert facts == {"verdict": "correct", "reward/right": 1.0}
    with pytest.raises(RuntimeError, match="KeyError: 'x'"):
        env.step_row(1, ADDRESS)
    with pytest.raises(RuntimeError, match=r"the process of verifiers:sums .* has ended"):
        env.step_row(2, ADDRESS)
    with pytest.raises(RuntimeError, match="has ended"):
        env.step_row(0, ADDRESS)
    env.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "sums"]


def test_what_the_package_refuses_is_the_users_to_read() -> None:
    with pytest.raises(UserError, match=r"env\.id verifiers:refused: ValueError: no such taskset"):
        made("refused")
    with pytest.raises(UserError, match="make venvs/verifiers"):
        VerifiersEnv("verifiers:sums", python="/no/such/python", start_timeout_s=1.0)


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"id": "verifiers:sums"}, r"env\.python is missing"),
        ({"id": "verifiers:"}, "names no taskset"),
        ({"id": "verifiers:sums", "python": sys.executable, "kwargs": {"task": {}}}, "Did you mean taskset"),
        ({"python": sys.executable}, "is read by tasksets of verifiers and by simulators"),
    ],
)
def test_what_is_missing_is_named_before_anything_starts(tmp_path: Path, env: Mapping[str, Any], words: str) -> None:
    sections = mapping(tmp_path, env={"kwargs": {}, **env}, evaluation={"env_kwargs": None})
    with pytest.raises(ConfigErrors, match=words):
        load_mapping(sections, source="test")


def test_the_process_of_an_episode_that_hangs_ends_with_its_environment() -> None:
    """Otherwise each hang would leave an interpreter with all tasks, and a thread that waits for it, behind."""
    worker = TextEnvWorker(
        "verifiers:sums", {"train": {"first": 0, "count": 5}}, row_timeout_s=0.2, start_timeout_s=60.0,
        python=sys.executable,
    )  # fmt: skip
    worker.reset("train", [4])
    env = worker._env("train")
    feedback: list[Feedback] = []
    while not feedback:
        answers = worker.exchange("train", [] if worker._threads else [Response(0, ADDRESS, cut=False)], 0.1)
        assert isinstance(answers, FeedbackBatch)
        feedback += answers.rows
    assert feedback[0].lost
    worker.reset("train", [0])
    assert worker._env("train") is not env
    assert not env.close.alive, "the process has ended"
    worker.close()
