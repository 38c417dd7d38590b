"""The process of one trial: `python -m rlinf.sweep.trial_process CONFIG.yaml`.

It lives no longer than the process that started it: that one holds the other end of its standard input, which closes
however it ends.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from rlinf.config import load

ORPHANED = 3


def _end_with_parent() -> None:
    # Not through sys.stdin, whose lock a waiting thread would hold when the interpreter shuts down.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(ORPHANED)


def main(path: Path) -> None:
    """Trains what the file says; a finished or half-finished run directory is continued."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    from rlinf.train import run

    run(load(path), report=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
