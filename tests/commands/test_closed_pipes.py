"""A reader that leaves does not end the program that writes."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from rlinf.commands.closed_pipes import outlasting_readers
with outlasting_readers():
    for number in range(3):
        print(number, flush=True)
        sys.stdin.readline()
    print("went on", file=sys.stderr)
"""


def test_a_program_goes_on_when_its_reader_leaves() -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    assert writer.stderr is not None
    assert writer.stdout.readline() == "0\n"
    writer.stdout.close()
    writer.stdin.close()
    assert writer.stderr.read() == "went on\n"
    assert writer.wait() == 0
    writer.stderr.close()
