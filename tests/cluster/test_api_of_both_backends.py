"""What a caller sees is the same on both backends."""

from __future__ import annotations

import re

import pytest
import torch
from cluster_workers import Worker, broken_on_rank_1

from rlinf.cluster import Cluster, ClusterError, WorkerError, WorkerGroup
from rlinf.cluster.api import Assembled
from rlinf.data.messages import WeightUpdate


def test_results_come_in_rank_order(pair: WorkerGroup) -> None:
    assert pair.size == 2
    assert pair.call("add", per_rank=[(1,), (2,)], right=10) == [11, 12]
    assert pair.call("add", 5) == [5, 5]
    assert pair.call_one(1, "add", 1, right=2) == 3


def test_a_worker_has_its_rank_and_node(pair: WorkerGroup) -> None:
    infos = pair.call("where")
    assert [info.rank for info in infos] == [0, 1]
    assert [info.local_rank for info in infos] == [0, 1]
    assert {(info.size, info.group, info.threads) for info in infos} == {(2, "pair", 1)}
    assert infos[0].master_address is None


def test_threads_and_environment_are_the_configured_ones(pair: WorkerGroup) -> None:
    assert pair.call("threads") == [1, 1]
    assert pair.call("setting", "RLINF_TEST_SETTING") == ["on", "on"]


def test_tensors_survive_the_way_there_and_back(pair: WorkerGroup) -> None:
    updates = pair.call("weights", version=7)
    assert [update.version for update in updates] == [7, 7]
    assert torch.equal(updates[1].tensors["w"], torch.arange(50_000, dtype=torch.float32))
    updates[0].tensors["w"].add_(1)  # results belong to the caller, who may write to them


def test_groups_start_side_by_side(cluster: Cluster) -> None:
    first, second = (cluster.begin(name, Worker) for name in ("first", "second"))
    with second.ready() as group:
        assert group.call("add", 1, right=2) == [3]
    with first.ready() as group:
        assert group.call("add", 2, right=2) == [4]


def test_a_shared_value_reaches_every_rank(cluster: Cluster, pair: WorkerGroup) -> None:
    shared = cluster.share(WeightUpdate(1, {"a": torch.ones(40_000), "b": torch.ones(3, dtype=torch.bfloat16)}))
    assert pair.call("total", shared) == [40_003.0, 40_003.0]
    assert pair.call("total", update=shared) == [40_003.0, 40_003.0]


def test_an_argument_is_assembled_in_the_worker_of_shared_parts(cluster: Cluster, pair: WorkerGroup) -> None:
    shared = cluster.share({"a": torch.ones(40_000)})
    assert pair.call("total", Assembled(WeightUpdate, (1, shared))) == [40_000.0, 40_000.0]


def test_submitted_calls_can_be_awaited_one_by_one(cluster: Cluster, pair: WorkerGroup) -> None:
    pending = pair.submit("add", per_rank=[(1,), (2,)])
    results = []
    while pending:
        finished = cluster.wait_any(pending, timeout=30)
        assert finished
        assert all(handle.done() for handle in finished)
        results += [handle.result() for handle in finished]
        pending = [handle for handle in pending if handle not in finished]
    assert sorted(results) == [1, 2]


def test_items_are_streamed(pair: WorkerGroup) -> None:
    assert list(pair.stream(0, "numbers", 5)) == [0, 1, 2, 3, 4]


def test_a_stream_that_is_closed_stops_the_worker(pair: WorkerGroup) -> None:
    items = pair.stream(1, "numbers", 200, pause_s=0.02)
    assert next(iter(items)) == 0
    items.close()  # type: ignore[attr-defined]
    assert pair.call_one(1, "sent_so_far") < 200


def test_an_error_in_a_stream_follows_the_items_before_it(pair: WorkerGroup) -> None:
    items = pair.stream(0, "numbers_then_raise")
    assert next(items) == 0
    with pytest.raises(WorkerError, match=r"^pair rank 0 of 2 failed in numbers_then_raise:\nWorker\."):
        next(items)


def test_streams_of_several_workers_are_read_as_they_come(cluster: Cluster, pair: WorkerGroup) -> None:
    streams = [pair.stream(0, "numbers", 3, pause_s=0.3), pair.stream(1, "numbers", 3)]
    read: list[tuple[int, int]] = []
    while streams:
        for stream in cluster.wait_any(streams):
            try:
                read.append((stream.rank, next(stream)))
            except StopIteration:
                streams.remove(stream)
    assert sorted(read) == [(rank, number) for rank in range(2) for number in range(3)]
    assert [number for rank, number in read if rank == 0] == [0, 1, 2]


def test_a_value_goes_from_worker_to_worker(cluster: Cluster, pair: WorkerGroup) -> None:
    made = pair.submit_one(0, "weights", version=3)
    assert pair.call_one(1, "total", made) == sum(range(50_000))
    failed = pair.submit_one(0, "raise_error")
    with pytest.raises(WorkerError, match="the loss is not finite"):
        pair.call_one(1, "total", failed)
    with pytest.raises(WorkerError, match="the loss is not finite"):
        pair.gather([failed])


def test_halves_of_a_pair_travel_separately(pair: WorkerGroup) -> None:
    version, weights = pair.submit_remote(0, "numbered_weights", version=3)
    assert version.result() == 3
    assert pair.call_one(1, "total", weights) == sum(range(50_000))
    for half in pair.submit_remote(0, "numbered_weights", version=-1):
        with pytest.raises(WorkerError, match="no such version"):
            half.result()


def test_halves_of_streamed_pairs_travel_separately(pair: WorkerGroup) -> None:
    stream = pair.stream(0, "numbered_weights_and_raise", 3, pairs=True)
    for version in range(3):
        found, weights = next(stream)
        assert found == version
        assert pair.call_one(1, "total", weights) == sum(range(50_000))
    with pytest.raises(WorkerError, match="no such version"):
        next(stream)
    assert [version for version, _ in pair.stream(1, "numbered_weights_and_raise", 2, pairs=True, fail=False)] == [0, 1]


def halves(update: WeightUpdate, fail: bool = False) -> list[WeightUpdate]:
    """Two updates with half of the numbers each."""
    if fail:
        raise ValueError("nothing to cut")
    return [WeightUpdate(update.version, {"w": part}) for part in update.tensors["w"].chunk(2)]


def test_a_value_is_cut_up_where_a_worker_made_it(pair: WorkerGroup) -> None:
    whole = pair.submit_remote(0, "numbered_weights", version=3)[1]
    made, (first, second) = pair.submit_pieces(0, halves, whole, count=2)
    assert made.result() is None
    assert pair.call_one(1, "total", first) == sum(range(25_000))
    assert second.result().tensors["w"].tolist() == list(range(25_000, 50_000))
    made, pieces = pair.submit_pieces(0, halves, whole, True, count=2)
    for failed in (made, *pieces):
        with pytest.raises(WorkerError, match=r"(?s)pair rank 0 of 2 failed in halves:.*nothing to cut"):
            failed.result()


def test_an_error_names_the_worker_and_shows_the_lines_of_its_code_alone(pair: WorkerGroup) -> None:
    with pytest.raises(WorkerError) as caught:
        pair.call_one(1, "raise_error")
    lines = str(caught.value).splitlines()
    assert lines[0] == "pair rank 1 of 2 failed in raise_error:"
    assert re.fullmatch(
        r"Worker\.raise_error \(.*cluster_workers\.py, line \d+\) raised ValueError: the loss is not finite", lines[1]
    )
    assert re.findall(r"File .*?(\w+\.py)", str(caught.value)) == ["cluster_workers.py"]
    assert caught.value.__cause__ is None
    assert (caught.value.group, caught.value.rank, caught.value.method) == ("pair", 1, "raise_error")
    assert pair.call("add", 1) == [1, 1]  # the group goes on


def test_a_call_that_cannot_be_right_is_refused(pair: WorkerGroup) -> None:
    with pytest.raises(ValueError, match=r"per_rank has 1 entries for 2 ranks"):
        pair.call("add", per_rank=[(1,)])
    with pytest.raises(TypeError, match="not both"):
        pair.call("add", 1, per_rank=[(1,), (2,)])
    with pytest.raises(ValueError, match="ranks 0 to 1, not 2"):
        pair.call_one(2, "add", 1)
    with pytest.raises(WorkerError, match="has no attribute 'ad'"):
        pair.call("ad", 1)


def test_a_worker_that_wants_to_exit_has_failed(pair: WorkerGroup) -> None:
    with pytest.raises(WorkerError, match="SystemExit: 3"):
        pair.call("exit")


def test_a_worker_that_cannot_be_built_reports_why(cluster: Cluster) -> None:
    with pytest.raises(WorkerError, match=r"^broken rank 1 of 2 failed in build:\nbroken_on_rank_1.*no such model"):
        cluster.spawn("broken", broken_on_rank_1, n=2)


def test_a_restart_builds_again_until_they_are_used_up(local_cluster: Cluster) -> None:
    with local_cluster.spawn("restarted", Worker, n=1) as group:
        assert group.call("count") == [1]
        assert group.call("count") == [2]
        group.restart([0])
        assert group.call("count") == [1]
        with pytest.raises(WorkerError, match="restarted rank 0 of 1 has used up its restarts"):
            group.restart([0])
    with pytest.raises(ClusterError, match="restarted is closed"):
        group.call("count")
    group.close()
    local_cluster.spawn("restarted", lambda info: Worker(info)).close()  # its name is free again


def test_names_are_unique(cluster: Cluster, pair: WorkerGroup) -> None:
    with pytest.raises(ClusterError, match="there is a group 'pair' already"):
        cluster.spawn("pair", Worker)


class _Closable:
    """Records when it is closed; rank 1 of a broken group is never made."""

    def __init__(self, closed: list[int], rank: int, *, broken: bool) -> None:
        if broken and rank == 1:
            raise ValueError("no rank 1")
        self._closed, self._rank = closed, rank

    def close(self) -> None:
        self._closed.append(self._rank)


def test_the_workers_of_a_group_that_does_not_come_up_are_closed(local_cluster: Cluster) -> None:
    closed: list[int] = []
    with pytest.raises(WorkerError, match="no rank 1"):
        local_cluster.spawn("broken", lambda info: _Closable(closed, info.rank, broken=True), n=2)
    assert closed == [0]


def test_a_worker_that_is_restarted_is_closed_first(local_cluster: Cluster) -> None:
    closed: list[int] = []
    with local_cluster.spawn("closable", lambda info: _Closable(closed, info.rank, broken=False), n=2) as group:
        group.restart([1])
        assert closed == [1]
    assert closed == [1, 0, 1]
