"""A child process ends with what it started, its ending is reported, and it does not outlive its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from rlinf.base.child_process import ChildProcess

STARTS_ANOTHER = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid, file=open(sys.argv[1], "w"))
{then}
"""
TIED = """
import os, sys
from rlinf.base.child_process import ChildProcess
hangs = "from rlinf.base.child_process import die_with_parent; die_with_parent(); print(flush=True); 10 ** 10 ** 8"
child = ChildProcess([sys.executable, "-c", hangs], name="a child", output="inherit")
sys.stdin.readline()
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def python(code: str, *arguments: str) -> ChildProcess:
    return ChildProcess([sys.executable, "-c", code, *arguments], name="the child")


def gone(pid: int, *, within_s: float = 20.0) -> bool:
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            state = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]  # noqa: SIM115
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("then", ["import time; time.sleep(600)", "raise SystemExit(3)"])
def test_what_a_child_started_ends_with_it(tmp_path: os.PathLike[str], then: str) -> None:
    output = os.path.join(tmp_path, "pid")
    child = python(STARTS_ANOTHER.format(then=then), output)
    if "Exit" in then:
        assert child.wait(60) == 3
    else:
        assert child.wait(0.0) is None
        while not (os.path.exists(output) and open(output).read().endswith("\n")):  # noqa: SIM115
            time.sleep(0.02)
        assert child.kill() == -9
    assert gone(int(open(output).read()))  # noqa: SIM115


def test_an_ending_is_reported_with_the_last_lines() -> None:
    child = python("import os; print('out of\\nroom', flush=True); os.abort()")
    assert child.wait(60) == -6
    assert child.how_it_ended() == "was killed by SIGABRT (a crash in native code)"
    assert child.last_words().endswith("it last wrote:\nout of\nroom")
    assert str(child) == f"the child (pid {child.pid})"
    assert child.kill() == -6, "a second call is allowed"


def test_a_child_that_computes_dies_with_its_parent() -> None:
    parent = subprocess.run([sys.executable, "-c", TIED], input="\n", capture_output=True, text=True, check=False)
    assert gone(int(parent.stdout.split()[-1]))


STRAYS = """
import os, sys
from rlinf.base.child_process import ChildProcess
starts = '''
from rlinf.base.child_process import die_with_parent
die_with_parent()
import os, subprocess, sys, time
if (forked := os.fork()) == 0:
    os.setsid()
    time.sleep(600)
started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(forked, started.pid, flush=True)
time.sleep(600)
'''
child = ChildProcess([sys.executable, "-c", starts], name="a child", output="inherit")
sys.stdin.readline()
{then}
"""


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), 9)", "child.kill()", "pass"])
def test_what_left_the_session_of_a_child_ends_with_it(then: str) -> None:
    command = [sys.executable, "-c", STRAYS.format(then=then)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        strays = [int(word) for word in parent.stdout.readline().split()]
        assert len(strays) == 2
        assert not any(gone(pid, within_s=0.01) for pid in strays)
        parent.communicate("\n")
    assert all(gone(pid) for pid in strays)


def test_the_group_of_a_child_that_has_ended_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may belong to another process by then."""
    child = python("")
    assert child.wait(60) == 0
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("the number is another's"))
    assert child.wait() == child.kill() == 0
    child.close(1.0)
