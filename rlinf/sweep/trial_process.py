"""The process of one trial: `python -m rlinf.sweep.trial_process TRIAL [HOLD_EVERY]`.

TRIAL is its folder, for the list of processes; the configuration is the first line of its standard input, as JSON. It
lives no longer than the process that started it: that one holds the other end of its standard input, which closes
however it ends. With HOLD_EVERY, it stops after every HOLD_EVERY iterations until a byte arrives there.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
import traceback

from rlinf.base.redaction import redact_warnings, redacted
from rlinf.config import load_mapping

ORPHANED = 3


class Leash:
    """Standard input: each byte is a leave to go on, its end is the end."""

    def __init__(self, hold_every: int) -> None:
        self.hold_every = hold_every
        self._leaves = threading.Semaphore(0)
        threading.Thread(target=self._listen, daemon=True).start()

    def after_step(self, step: int) -> None:
        if self.hold_every and step % self.hold_every == 0:
            self._leaves.acquire()

    def _listen(self) -> None:
        # Not through sys.stdin, whose lock a waiting thread would hold when the interpreter shuts down.
        while os.read(sys.stdin.fileno(), 1):
            self._leaves.release()
        os._exit(ORPHANED)


def main(trial: str, hold_every: int = 0) -> int:
    """Train what the first line describes; return the exit code.

    A finished or half-finished run directory is continued. What goes wrong is printed here and not by Python,
    which does not hide secrets.
    """
    redact_warnings()
    faulthandler.enable()  # a crash in native code of an environment shows its Python line
    try:
        config = load_mapping(json.loads(first_line()), source=trial)
        leash = Leash(hold_every)
        from rlinf.train import run

        run(config, report=False, after_step=leash.after_step)
    except Exception:
        print(redacted(traceback.format_exc()), file=sys.stderr, flush=True)
        return 1
    return 0


def first_line() -> bytes:
    """Read the first line of standard input byte by byte, since what follows is for the leash."""
    line = bytearray()
    while (byte := os.read(sys.stdin.fileno(), 1)) not in (b"", b"\n"):
        line += byte
    return bytes(line)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], *(int(word) for word in sys.argv[2:])))
