"""Workers that die, hang or raise in the middle of a collective, each found early and named."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import replace

import pytest
import torch
from cluster_workers import CONFIG, Collective, Worker
from ray.exceptions import RayError

from rlinf.cluster import (
    Cluster,
    ClusterError,
    UnreachableError,
    WorkerDied,
    WorkerError,
    WorkerGroup,
    WorkerTimeout,
    connect,
)
from rlinf.cluster.death import node_was_lost
from rlinf.cluster.ray_session import _check_reachable
from rlinf.cluster.vital_signs import is_alive
from rlinf.data.messages import WeightUpdate

pytestmark = pytest.mark.faults


def test_a_killed_worker_is_named_with_its_last_words_and_can_be_restarted(ray_cluster: Cluster) -> None:
    with ray_cluster.spawn("sampler", Worker, n=2) as group:
        pid = group.call_one(1, "pid")
        version, weights = group.submit_remote(1, "numbered_weights", version=3)
        assert version.result() == 3
        _, streamed = next(group.stream(1, "numbered_weights_and_raise", 1, pairs=True))
        started = time.monotonic()
        with pytest.raises(WorkerDied) as caught:
            group.call_one(1, "die")
        assert time.monotonic() - started < 20
        message = str(caught.value)
        assert message.startswith("sampler rank 1 of 2 died in die")
        assert f"pid {pid} on " in message
        assert "about to go down" in message
        assert group.call_one(0, "add", 1) == 1
        for made in (weights, streamed):  # what a dead worker had made is there
            assert group.call_one(0, "total", made) == sum(range(50_000))
        group.restart([1])
        assert group.call("add", 1) == [1, 1]
        with pytest.raises(WorkerError, match="sampler rank 1 of 2 has used up its restarts"):
            group.restart([1])


def rows(update: WeightUpdate) -> list[torch.Tensor]:
    return list(update.tensors["w"].chunk(3))


def test_a_worker_cuts_a_value_up_during_its_calls(ray_cluster: Cluster) -> None:
    with ray_cluster.spawn("env", Worker) as group:
        weights = group.submit_remote(0, "numbered_weights", version=3)[1]
        busy = group.submit_one(0, "stall", 20.0)
        made, pieces = group.submit_pieces(0, rows, weights, count=3)
        made.result()
        assert sum(len(piece.result()) for piece in pieces) == 50_000
        assert not busy.done()


def test_a_stalled_call_is_named_with_the_line_of_code(hasty: Cluster) -> None:
    with hasty.spawn("env", Worker) as group:
        started = time.monotonic()
        with pytest.raises(WorkerTimeout) as caught:
            group.call("stall", 30)
        assert 1.9 < time.monotonic() - started < 10
        message = str(caught.value)
        assert message.startswith("env rank 0 of 1: not through with stall after 2 s (cluster.call_timeout_s)")
        assert "time.sleep(seconds)" in message  # the very line
        assert "host.py" not in message


def test_a_process_that_stands_still_is_noticed_and_replaced(ray_cluster: Cluster) -> None:
    with (
        connect(replace(CONFIG, heartbeat_s=0.2, heartbeat_timeout_s=2.0)) as cluster,
        cluster.spawn("env", Worker) as group,
    ):
        pid = group.call_one(0, "pid")
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(WorkerTimeout, match=rf"^env rank 0 of 1 \(pid {pid} on .*\) has stood still for 2 s"):
            group.call("add", 1)
        group.restart([0])
        assert group.call("add", 1) == [1]
        assert not is_alive(pid)


@pytest.mark.slow  # it computes for as long as a process that stands still is waited for
def test_a_process_that_computes_in_silence_is_left_alone(ray_cluster: Cluster) -> None:
    with (
        connect(replace(CONFIG, heartbeat_s=0.2, heartbeat_timeout_s=1.0)) as cluster,
        cluster.spawn("env", Worker) as group,
    ):
        assert group.call("hold_the_interpreter", 4.0) == [None]


def test_waiting_a_while_for_a_result_does_not_end_the_call(ray_cluster: Cluster, ray_pair: WorkerGroup) -> None:
    handle = ray_pair.submit_one(0, "stall", 1.5)
    assert ray_cluster.wait_any([handle], timeout=0.1) == []
    with pytest.raises(WorkerTimeout, match="pair rank 0 of 2: not through with stall after"):
        handle.result(timeout=0.1)
    assert handle.result() is None


def test_a_late_worker_is_named(ray_cluster: Cluster) -> None:
    """A process takes longer than that in any case."""
    with connect(replace(CONFIG, start_timeout_s=0.2)) as cluster:
        with pytest.raises(WorkerTimeout) as caught:
            cluster.spawn("late", Worker)
        message = str(caught.value)
        assert re.match(r"late rank 0 of 1: not up after 0.2 s \(cluster.start_timeout_s\)\nlate rank 0", message)


def test_ranks_meet_and_fall_together(ray_cluster: Cluster) -> None:
    group = ray_cluster.spawn("learner", Collective, n=2, rendezvous=True)
    assert group.call("all_reduce") == [3.0, 3.0]
    with pytest.raises(ClusterError, match="cannot be replaced one by one"):
        group.restart([0])
    pids = group.call("pid")
    with pytest.raises(WorkerError, match=r"^learner rank 1 of 2 failed in all_reduce_but_raise_on:\nCollective\."):
        group.call("all_reduce_but_raise_on", 1)
    give_up = time.monotonic() + 15
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):  # rank 0 hung in the collective
        assert time.monotonic() < give_up
        time.sleep(0.1)
    with pytest.raises(ClusterError, match="learner is closed"):
        group.call("all_reduce")


@pytest.mark.slow
def test_of_several_failures_the_death_that_caused_them_is_reported(ray_cluster: Cluster) -> None:
    group = ray_cluster.spawn("doomed", Collective, n=2, rendezvous=True)
    with pytest.raises(WorkerDied, match=r"^doomed rank 1 of 2 died in all_reduce_but_die_on"):
        group.call("all_reduce_but_die_on", 1)


def test_a_dead_rank_is_noticed_while_waiting_for_another(ray_cluster: Cluster) -> None:
    group = ray_cluster.spawn("tied", Worker, n=2, rendezvous=True)
    waited = group.submit_one(0, "stall", 50)
    group.submit_one(1, "die")
    started = time.monotonic()
    with pytest.raises(WorkerDied, match=r"^tied rank 1 of 2 died"):
        waited.result()
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        ("The actor died because its node has died.", True),
        # of a raylet that was ended by SIGTERM
        ("The actor is dead because its owner has died. Worker exit detail: Owner's node has crashed.", True),
        ("The actor is dead because its worker process has died.", False),
    ],
)
def test_the_loss_of_a_node_is_reported_from_that_of_a_process(words: str, lost: bool) -> None:
    assert node_was_lost(RayError(words)) is lost


def test_an_address_without_a_server_is_refused_at_once() -> None:
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=r"nothing answers at cluster.address='127.0.0.1:1'"):
        _check_reachable("127.0.0.1:1")
    assert time.monotonic() - started < 15
    _check_reachable("auto")
