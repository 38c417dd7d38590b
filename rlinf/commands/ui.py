"""``rlinf ui``: run directories in the browser, live."""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rlinf.base.arguments import Parser
from rlinf.base.child_process import ChildProcess, die_with_parent
from rlinf.base.errors import UserError
from rlinf.base.packages import install_command

_TOKEN = "RLINF_UI_TOKEN"


def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C. Raises UserError if the folder or a package is missing."""
    parser = Parser(
        prog="rlinf ui",
        description="Runs and sweeps in the browser: live curves, samples and conversations, health, films, "
        "comparisons. Only this machine can open it, with the token in the printed address. Nothing is changed.",
    )
    parser.add_argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="RUNS_DIR", help="default: runs")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="default: a free one")
    parser.add_argument("--tied", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(list(arguments))
    _require_server()
    if not options.folder.is_dir():
        raise UserError(f"{options.folder} is no folder: name the one that your runs are in")
    if options.tied:
        die_with_parent()
    import uvicorn

    from rlinf.report.live.app import make_app
    from rlinf.report.live.library import Library

    token = os.environ.get(_TOKEN) or secrets.token_urlsafe(16)
    with closing(socket.socket()) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(("127.0.0.1", options.port))
        except OSError as error:
            raise UserError(f"--port {options.port}: {error.strerror}") from error
        door.listen()  # before the address is shown: who opens it at once waits instead of being refused
        print(f"rlinf ui: http://127.0.0.1:{door.getsockname()[1]}/?token={token}", flush=True)
        settings = uvicorn.Config(make_app(Library(options.folder), token), log_level="warning")
        uvicorn.Server(settings).run([door])
    return 0


def _require_server() -> None:
    """Raise UserError without the packages that serve the pages."""
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(f"rlinf ui needs {', '.join(missing)}: {install_command('ui')}")


@contextmanager
def live_view(run: Path) -> Iterator[None]:
    """Serve the parent folder of a run directory while the run goes on, from a process of its own."""
    _require_server()
    run.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "rlinf.cli", "ui", str(run.parent), "--tied"]
    child = ChildProcess(command, name="rlinf ui", output="inherit")
    try:
        yield
    finally:
        child.kill()
