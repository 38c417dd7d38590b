"""The process of one trial: `python -m rlinf.sweep.trial_process CONFIG.yaml [HOLD_EVERY]`.

It lives no longer than the process that started it: that one holds the other end of its standard input, which closes
however it ends. With HOLD_EVERY, it stops after each so many steps until a byte arrives there.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from rlinf.config import load

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


def main(path: Path, hold_every: int = 0) -> None:
    """Trains what the file says; a finished or half-finished run directory is continued."""
    leash = Leash(hold_every)
    from rlinf.train import run

    run(load(path), report=False, after_step=leash.after_step)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(int(word) for word in sys.argv[2:]))
