"""A client gets what the policy does in process, waits no longer than its deadline, and records episodes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from rlinf.api.policy import Policy
from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.datasets.robot_data.reading import read_dataset
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions

pytest.importorskip("websockets", reason="pip install 'oneloop-rl[serve]'")

from websockets.sync.server import serve

from rlinf.serve.client import RemotePolicy
from rlinf.serve.server import PolicyServer, measure, measure_real_time, pack
from rlinf.serve.session import Session


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    env = gymnasium.make("Pendulum-v1")
    torch.manual_seed(0)
    made = ActorCritic(env.observation_space, env.action_space, ActorCriticOptions(hidden_sizes=(8,), recurrent="gru"))
    made.save_pretrained(str(tmp_path / "policy"))
    return Policy.load(tmp_path / "policy")


@pytest.fixture
def server(policy: Policy) -> Iterator[PolicyServer]:
    turn = threading.Lock()
    with PolicyServer(lambda: Session(policy, turn), port=0, token="secret") as running:
        yield running


def test_it_acts_as_the_policy_and_begins_episodes(policy: Policy, server: PolicyServer) -> None:
    seen = np.random.default_rng(0).uniform(-1, 1, (3, 3)).astype(np.float32)
    with RemotePolicy(f"ws://127.0.0.1:{server.port}", token="secret") as remote:
        for _ in range(2):
            remote.reset()
            policy.reset()
            for one in seen:
                np.testing.assert_array_equal(remote.act(one)[0], policy.act(one))
        with pytest.raises(UserError, match=r"could not answer: the policy reads no 'observation\.wrong'"):
            remote.act({"wrong": seen[0]})


def test_a_recording_is_that_of_the_policy(tmp_path: Path, policy: Policy, server: PolicyServer) -> None:
    file = tmp_path / "record.yaml"
    file.write_text("env: {id: Pendulum-v1, max_episode_steps: 6}\npolicy: {name: actor_critic}\n")
    common = ["record", str(file), "--keep-failures", "--to-the-end", "--episodes", "2"]
    url = f"ws://127.0.0.1:{server.port}"
    assert main([*common, "--server", url, "--token", "secret", "--out", str(tmp_path / "remote")]) == 0
    assert main([*common, "--policy", str(policy.folder), "--out", str(tmp_path / "here")]) == 0
    there, here = (read_dataset(tmp_path / name).columns for name in ("remote", "here"))
    assert all(np.array_equal(there[name], here[name]) for name in ("action", "observation.state"))
    assert main([*common, "--server", url, "--sample", "--out", str(tmp_path / "other")]) == 2


def test_nothing_there_a_wrong_token_and_silence_are_named(server: PolicyServer) -> None:
    with pytest.raises(UserError, match=r"no policy server at ws://127\.0\.0\.1:1"):
        RemotePolicy("ws://127.0.0.1:1", deadline_s=2.0)
    with pytest.raises(UserError, match="401"):
        RemotePolicy(f"ws://127.0.0.1:{server.port}", token="wrong")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(UserError, match=f"no policy server at .*:{port}"):
            RemotePolicy(f"ws://127.0.0.1:{port}", deadline_s=0.3)


def test_a_server_that_has_gone_is_named_whenever_that_is_noticed(policy: Policy) -> None:
    with PolicyServer(lambda: Session(policy, threading.Lock()), port=0) as going:
        remote = RemotePolicy(f"ws://127.0.0.1:{going.port}")
    for _ in range(2):
        with pytest.raises(UserError, match="ended the connection"):
            remote.act(np.zeros(3, np.float32))


def test_a_measurement_waits_no_longer_than_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(connection: Any) -> None:
        connection.send(pack({"num_action_chunks": 1}))
        connection.recv()
        connection.recv()

    monkeypatch.setattr("rlinf.serve.server.DEADLINE_S", 3.0)
    with serve(silent, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        for requested in (lambda: measure(url, {}, 1), lambda: measure_real_time(url, {}, 1, rate=10.0)):
            with pytest.raises(UserError, match="did not answer in 3 s"):
                requested()
        server.shutdown()
