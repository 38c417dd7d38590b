"""A served policy gives the actions that it gives in process, to openpi's client too, and refuses all others."""

from __future__ import annotations

import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from rlinf.api.policy import Policy
from rlinf.base.errors import UserError
from rlinf.cli import main
from rlinf.commands.serve import main as serve
from rlinf.models.actor_critic import ActorCritic, ActorCriticOptions

pytest.importorskip("websockets", reason="pip install 'oneloop-rl[serve]'")
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rlinf.serve.server import PolicyServer, WireError, measure, pack, percentiles, unpack
from rlinf.serve.session import Session

CLIENT = Path(os.environ.get("RLINF_OPENPI_PYTHON", "venvs/openpi_client/bin/python"))
SPACE = spaces.Dict({"image": spaces.Box(0, 255, (16, 16, 3), np.uint8), "state": spaces.Box(-1, 1, (3,), np.float32)})
ACTIONS = spaces.Box(-2, 2, (2,), np.float32)


def exported(folder: Path, **options: Any) -> Policy:
    torch.manual_seed(0)
    made = ActorCritic(SPACE, ACTIONS, ActorCriticOptions(hidden_sizes=(8,), embedding_size=8, **options))
    made.save_pretrained(str(folder))
    return Policy.load(folder)


def observations(count: int) -> list[dict[str, np.ndarray]]:
    SPACE.seed(1)
    return [SPACE.sample() for _ in range(count)]


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return exported(tmp_path / "policy", num_action_chunks=3, recurrent="gru")


@pytest.fixture
def server(policy: Policy) -> Iterator[PolicyServer]:
    turn = threading.Lock()
    with PolicyServer(lambda: Session(policy, turn), port=0, token="secret") as running:
        yield running


def connected(server: PolicyServer, token: str | None = "secret") -> Any:
    headers = {"Authorization": f"Api-Key {token}"} if token else None
    return connect(f"ws://127.0.0.1:{server.port}", additional_headers=headers, max_size=None)


def test_actions_are_those_of_the_policy_bit_for_bit(policy: Policy, server: PolicyServer) -> None:
    seen = observations(4)
    here = [policy.act(one) for one in seen]
    with connected(server) as client, connected(server) as other:
        described = unpack(client.recv())
        unpack(other.recv())
        assert described["num_action_chunks"] == 3
        assert described["observation"]["observation.image"] == {"dtype": "uint8", "shape": [16, 16, 3]}
        for one, expected in zip(seen, here, strict=True):
            client.send(pack({"observation/image": one["image"], "state": one["state"], "prompt": "unused"}))
            answer = unpack(client.recv())
            assert answer["actions"].shape == (3, 2)
            assert np.array_equal(answer["actions"], expected)
            assert answer["server_timing"]["infer_ms"] > 0
        # The memory of a recurrent policy is each client's own, and can be cleared.
        for connection in (other, client):
            connection.send(pack({**seen[0], "reset": connection is client}))
            assert np.array_equal(unpack(connection.recv())["actions"], here[0])
    assert len(server.latencies_ms) >= 5
    assert "p99" in percentiles(server.latencies_ms)


def test_a_wrong_request_is_answered_in_words(server: PolicyServer) -> None:
    one = observations(1)[0]
    for request, words in (
        (pack({"image": one["image"]}), "lacks observation.state"),
        (pack({**one, "stat": one["state"]}), "Did you mean"),
        (pack({**one, "state": np.zeros(4, np.float32)}), "has shape [4]"),
        (pack({**one, "image": one["image"].astype(np.float32)}), "is float32"),
        (pack({**one, "state": [[1.0, 2.0], [3.0]]}), "observation.state is no array of numbers"),
        (pack({**one, "previous": [[1.0, 2.0], [3.0]]}), "previous is finite actions"),
        (pack({**one, "previous": np.zeros((1, 2)), "delay": "two"}), "delay is a whole number"),
        (b"\xc1", "no msgpack message"),
        ("text", "is binary"),
    ):
        with connected(server) as client:
            client.recv()
            client.send(request)
            assert words in client.recv()


def test_only_who_has_the_token_is_let_in(server: PolicyServer) -> None:
    for token in (None, "guess"):
        with pytest.raises(InvalidStatus, match="401"):
            connected(server, token)
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/healthz") as answer:
        assert answer.status == 200
    with pytest.raises(UserError, match="lets other machines in"):
        serve(["runs/none", "--host", "0.0.0.0"])


def test_no_object_travels() -> None:
    message = {"a": np.arange(6, dtype=np.int16).reshape(2, 3), "b": [1.5, "text", None], "c": np.float32(0.25)}
    back = unpack(pack(message))
    assert back["b"] == message["b"]
    assert back["a"].dtype == np.int16
    assert np.array_equal(back["a"], message["a"])
    assert back["c"] == np.float32(0.25)
    with pytest.raises(TypeError, match="not sent"):
        pack({"a": np.array([object()])})
    import msgpack

    for dtype, data in (("|O", b"\0" * 8), ("<f4", b"\0" * 3)):
        forged = {b"__ndarray__": True, b"data": data, b"dtype": dtype, b"shape": [1]}
        with pytest.raises(WireError):
            unpack(msgpack.packb(forged))


def test_the_command_measures_itself(policy: Policy, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(policy.folder), "--port", "0", "--measure", "5"]) == 0
    printed = capsys.readouterr().out
    assert "client: 5 requests: p50" in printed
    assert "server: 5 requests" in printed
    assert callable(measure)


_CLIENT = """
import sys, numpy as np
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from openpi_client.action_chunk_broker import ActionChunkBroker
given = np.load(sys.argv[2])
client = WebsocketClientPolicy("127.0.0.1", int(sys.argv[1]), api_key="secret")
assert client.get_server_metadata()["num_action_chunks"] == 3
found = [client.infer({"image": image, "state": state})["actions"]
         for image, state in zip(given["image"], given["state"])]
broker = ActionChunkBroker(WebsocketClientPolicy("127.0.0.1", int(sys.argv[1]), api_key="secret"), action_horizon=3)
steps = [broker.infer({"image": given["image"][0], "state": given["state"][0]})["actions"] for _ in range(3)]
assert np.array_equal(np.stack(steps), found[0])
np.save(sys.argv[3], np.stack(found))
"""


@pytest.mark.slow
@pytest.mark.skipif(not CLIENT.exists(), reason="make venvs/openpi_client")
def test_openpi_s_own_client_gets_the_same_actions(policy: Policy, server: PolicyServer, tmp_path: Path) -> None:
    seen = observations(3)
    np.savez(tmp_path / "given.npz", **{name: np.stack([one[name] for one in seen]) for name in seen[0]})
    words = [str(server.port), str(tmp_path / "given.npz"), str(tmp_path / "found.npy")]
    subprocess.run([CLIENT, "-c", _CLIENT, *words], check=True, timeout=120)
    assert np.array_equal(np.load(tmp_path / "found.npy"), np.stack([policy.act(one) for one in seen]))


def test_a_port_that_none_can_be_is_refused() -> None:
    with pytest.raises(UserError, match=r"no server on 127\.0\.0\.1:99999"):
        PolicyServer(lambda: pytest.fail("no client comes"), port=99999)
