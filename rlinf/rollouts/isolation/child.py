"""The environment's side: a script for the interpreter of the environment's own virtual environment.

    PYTHON child.py SOCKET NAME=FOLDER ...

SOCKET is an inherited file descriptor; the packages NAME are lent by path, without their neighbours: what
the run has installed (torch, another numpy) must not get in here. The process holds some sub-environments and answers
one message at a time until the socket closes.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import platform
import socket
import sys
import traceback
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rlinf.rollouts.isolation.env_host import EnvHost


class _Lender(MetaPathFinder):
    """Finds the lent packages at their folders, before anything that is installed under the same name."""

    def __init__(self, folders: dict[str, Path]) -> None:
        self.folders = folders

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or fullname not in self.folders:
            return None
        folder = self.folders[fullname]
        return importlib.util.spec_from_file_location(
            fullname, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )


def serve(connection: socket.socket) -> None:
    """Send a hello, then answer until the run closes the connection."""
    from rlinf.base.errors import UserError
    from rlinf.rollouts.isolation.wire import HungUpError, WireMessage, receive, send

    host: EnvHost | None = None
    send(connection, WireMessage("hello", {"python": platform.python_version()}))
    while True:
        try:
            message = receive(connection)
        except HungUpError:
            break
        try:
            # Imported with the first message, so that what this interpreter lacks is named in its answer.
            from rlinf.rollouts.isolation.env_host import EnvHost

            host = host or EnvHost()
            answer = host.answer(message)
        except UserError as error:
            answer = WireMessage("refused", {"words": str(error)})
        except (Exception, SystemExit):
            answer = WireMessage("error", {"traceback": traceback.format_exc()})
        send(connection, answer)
    if host is not None and host.vec_env is not None:
        host.vec_env.close()


def main(arguments: Sequence[str]) -> None:
    here = str(Path(__file__).parent)
    # Modules are imported from the user's own folder (`env.id: my_module:My-v0`), not from this one.
    sys.path[:] = [*(entry for entry in sys.path if entry != here), os.getcwd()]
    pairs = (text.partition("=") for text in arguments[1:])
    sys.meta_path.insert(0, _Lender({name: Path(folder) for name, _, folder in pairs}))
    from rlinf.base.child_process import die_with_parent

    die_with_parent()
    with socket.socket(fileno=int(arguments[0])) as connection:
        serve(connection)


if __name__ == "__main__":
    main(sys.argv[1:])
