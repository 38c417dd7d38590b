"""The pool under hostile input: stuck, dying and raising workers, threads, interrupts, and no process left behind."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import pytest
from rlinf_envs.math.pool import VerifierPool
from rlinf_envs.workers import Memory, Outcome, WorkerPool, WorkerStartError

STUCK = r"\boxed{(x+y+z+w)^{90}}"
HARD = r"\boxed{(x+%d)^2}"


def running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_a_stuck_answer_times_out_and_the_others_keep_their_order() -> None:
    pool = VerifierPool(workers=2, timeout_s=2.0)
    responses = [
        HARD % 1,
        STUCK,
        r"\boxed{7}",
        HARD % 2,
        "nothing to be found in this long sentence",
        HARD % 3,
        HARD % 3,
    ]
    answers = ["x^2+2x+1", r"\sqrt{2}", "7", "x^2+4x+5", "1", "x^2+6x+9", "x^2+6x+9"]
    verdicts = pool.verify(responses, answers)
    assert [v.status for v in verdicts] == [
        "correct",
        "timeout",
        "correct",
        "wrong",
        "unparsable",
        "correct",
        "correct",
    ]
    assert pool.verdicts == {"correct": 4, "timeout": 1, "wrong": 1, "unparsable": 1}
    assert pool.counts.timeouts == pool.counts.respawns == 1
    assert pool.verify([HARD % 5], ["x^2+10x+25"])[0].correct  # the fresh process works
    left = pool.process_ids()
    pool.close()
    pool.close()
    assert not any(running(process_id) for process_id in left)
    with pytest.raises(RuntimeError, match="closed"):
        pool.verify([HARD % 6], ["x^2"])


@pytest.mark.parametrize(("by_clock", "calls"), [(False, 1), (True, 2)])
def test_an_answer_that_used_up_its_deadline_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, by_clock: bool, calls: int
) -> None:
    decided: list[object] = []

    def late(self: WorkerPool, pairs: Sequence[tuple[str, str]]) -> list[Outcome]:
        decided.extend(pairs)
        return [Outcome("timeout", repeatable=not by_clock) for _ in pairs]

    monkeypatch.setattr(WorkerPool, "map", late)
    pool = VerifierPool()
    for _ in range(2):
        assert [v.status for v in pool.verify([STUCK, "so " + STUCK], ["2"] * 2)] == ["timeout"] * 2
    assert len(decided) == calls, "a machine that was busy may be idle the next time"


def test_a_worker_that_dies_idle_costs_no_answer() -> None:
    pool = WorkerPool("operator:add")
    assert pool.map([(1, 2)])[0].value == 3
    os.kill(pool.process_ids()[0], 9)
    time.sleep(0.1)
    assert [outcome.value for outcome in pool.map([(3, 4), (5, 6)])] == [7, 11]
    assert pool.counts.deaths == pool.counts.respawns == 1
    pool.close()


def test_a_call_that_kills_its_process_is_reported_and_not_repeated() -> None:
    pool = WorkerPool("os:_exit")
    assert [outcome.status for outcome in pool.map([(3,), (4,)])] == ["died", "died"]
    assert pool.counts.deaths == 2
    pool.close()


def test_errors_values_and_memory() -> None:
    pool = WorkerPool("builtins:eval", memory=Memory(1 << 30))
    outcomes = pool.map([("1/0",), ("2+2",), ("len(bytes(2 << 30))",), ("3",)])
    assert [(o.status, o.value) for o in outcomes][:2] == [
        ("error", "ZeroDivisionError: division by zero"),
        ("done", 4),
    ]
    assert outcomes[2].status in ("error", "died")
    assert outcomes[3].value == 3
    pool.close()


def test_sleeping_is_given_up_by_the_clock() -> None:
    pool = WorkerPool("time:sleep", timeout_s=0.2)
    start = time.monotonic()
    assert pool.map([(60,)])[0].status == "timeout"
    assert time.monotonic() - start < 20
    pool.close()


def test_a_worker_that_cannot_start_gives_the_reason() -> None:
    with pytest.raises(WorkerStartError, match="no_such_module"):
        WorkerPool("no_such_module:f").map([()])


def test_threads_share_a_pool() -> None:
    pool = WorkerPool("operator:mul", workers=2)
    results: dict[int, list[int]] = {}

    def work(factor: int) -> None:
        results[factor] = [outcome.value for outcome in pool.map([(factor, n) for n in range(20)])]

    threads = [threading.Thread(target=work, args=(factor,)) for factor in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {factor: [factor * n for n in range(20)] for factor in range(4)}
    pool.close()


def test_a_forgotten_pool_takes_its_processes_along() -> None:
    pool = WorkerPool("operator:add")
    pool.map([(1, 2)])
    left = pool.process_ids()
    del pool
    gc.collect()
    assert not any(running(process_id) for process_id in left)


@pytest.mark.parametrize("ending", ["", "os.kill(os.getpid(), 9)"])
def test_no_worker_outlives_its_parent(ending: str) -> None:
    code = (
        "import os\nfrom rlinf_envs.workers import WorkerPool\npool = WorkerPool('operator:add')\n"
        f"pool.map([(1, 2)])\nprint(*pool.process_ids(), flush=True)\n{ending}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    workers = [int(word) for word in done.stdout.split()]
    assert len(workers) == 1
    deadline = time.monotonic() + 10
    while any(running(process_id) for process_id in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(running(process_id) for process_id in workers)


def test_a_long_call_ends_with_its_parent() -> None:
    code = (
        "import os, threading, time\nfrom rlinf_envs.workers import WorkerPool\n"
        "pool = WorkerPool('time:sleep', timeout_s=900.0)\npool.map([(0,)])\n"
        "threading.Thread(target=pool.map, args=([(900,)],), daemon=True).start()\n"
        "while not any(worker.call is not None for worker in pool._crew):\n    time.sleep(0.01)\n"
        "print(*pool.process_ids(), flush=True)\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False)
    [worker] = [int(word) for word in done.stdout.split()]
    deadline = time.monotonic() + 20
    while running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(worker)


@pytest.mark.parametrize("settings", [{"workers": 0}, {"timeout_s": 0.0}])
def test_a_pool_needs_workers_and_time(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least one worker"):
        WorkerPool("operator:add", **settings)  # type: ignore[arg-type]
