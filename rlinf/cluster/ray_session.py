"""This process's connection to Ray: a cluster that it starts, and that ends with all it left, or one it joins.

A cluster that is started here lives in a folder of its own and listens on 127.0.0.1 alone. It receives none
of the signals that a terminal or a scheduler sends to the driver's process group.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import ray
import ray._private.parameter as ray_parameter
import ray._private.ray_constants as ray_constants
import ray._private.services as ray_services
import ray._private.worker as ray_worker
import ray._raylet

from rlinf.cluster import watchdog
from rlinf.cluster.errors import ClusterLost, ClusterStartError, UnreachableError
from rlinf.cluster.vital_signs import is_alive

_REACH_S = 10.0
_CLEAN_S = 30.0
_FIRST_PORT = 20_000  # below are those that Ray gives to its workers
_PORTS_TRIED = 1000
_DEALT_OUT = Path("/proc/sys/net/ipv4/ip_local_port_range")
_KEEP_ENVIRONMENT = "SPT_NOENV"
"""Has Ray's processes write their titles over their arguments alone, and not over the watchdog's mark too."""


class RaySession:
    """Starts Ray on this machine, or joins the cluster at ``address``; if this process is in Ray already, nothing.

    ``options`` go to ``ray.init``; ``local_options`` too, if a cluster is started.

    :raises UnreachableError: nothing answers at the address.
    :raises ClusterStartError: Ray did not come up in ``start_timeout_s`` seconds.
    """

    def __init__(
        self,
        address: str | None,
        *,
        start_timeout_s: float,
        options: Mapping[str, Any],
        local_options: Mapping[str, Any],
    ) -> None:
        self.raylet: int | None = None
        """Process id of Ray's daemon on this machine; None where it was not started here."""
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._owned = not ray.is_initialized()
        if not self._owned:
            return
        main = threading.current_thread() is threading.main_thread()
        self._sigterm = signal.getsignal(signal.SIGTERM) if main else None
        try:
            if address is None:
                self._start({**options, **local_options}, start_timeout_s)
            else:
                _join(address, options)
        except BaseException as error:  # Ctrl-C while Ray starts is one of them
            self.close()
            if isinstance(error, SystemExit) and error.code == signal.SIGTERM:
                signal.raise_signal(signal.SIGTERM)  # Ray's own handler had it; now it is for ours
            raise
        self._restore_sigterm()

    def require_raylet(self, who: str) -> None:
        """Check that the daemon that was started here still runs.

        :raises ClusterLost: the daemon that was started here is gone; ``who`` was waiting, as a sentence."""
        if self.raylet is not None and not is_alive(self.raylet):
            raise ClusterLost(self.raylet, who)

    def close(self) -> None:
        """Leaves Ray. Of a cluster that was started here nothing is left then: no process, no file."""
        if not self._owned:
            return
        self._owned = False
        try:
            ray.shutdown()
        finally:  # Ctrl-C may come meanwhile
            self._restore_sigterm()
            if self._watchdog is not None:
                self._watchdog.communicate(watchdog.FAREWELL, timeout=_CLEAN_S)

    def _restore_sigterm(self) -> None:
        """Ray puts handlers of its own when it starts, and the system's when it ends; neither is what ours would do."""
        if self._sigterm is not None:
            signal.signal(signal.SIGTERM, self._sigterm)

    def _start(self, options: Mapping[str, Any], timeout_s: float) -> None:
        # Not in TMPDIR, which may be too long for the sockets in there.
        self._folder = Path(tempfile.mkdtemp(prefix="rlinf-ray-", dir=os.environ.get("RAY_TMPDIR", "/tmp")))
        self._watchdog = subprocess.Popen(
            [sys.executable, "-I", "-S", watchdog.__file__, str(self._folder), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        began = time.monotonic()
        with _private_processes(self._folder, timeout_s, logs=bool(options.get("log_to_driver"))):
            try:
                ray.init(
                    address="local", _temp_dir=str(self._folder), _metrics_export_port=_free_ports(1)[0], **options
                )
            except Exception as error:
                first = str(error).strip().splitlines()[:1] or [type(error).__name__]
                raise ClusterStartError(
                    f"Ray did not start, and gave up after {time.monotonic() - began:.0f} s: {first[0]} "
                    f"Raise cluster.start_timeout_s where the machine is busy, or use cluster.backend=local."
                ) from error
        self.raylet = _raylet()
        if self.raylet is not None and self._watchdog.stdin is not None:
            self._watchdog.stdin.write(b"%d\n" % self.raylet)
            self._watchdog.stdin.flush()


def _raylet() -> int | None:
    """Return the process id of the raylet of the Ray that this process has started."""
    node = ray_worker._global_node
    started: list[Any] = node.all_processes.get(ray_constants.PROCESS_TYPE_RAYLET, []) if node is not None else []
    return int(started[0].process.pid) if started else None


def _join(address: str, options: Mapping[str, Any]) -> None:
    _check_reachable(address)
    try:
        ray.init(address=address, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UnreachableError(f"cannot reach Ray at cluster.address={address!r}: {error}") from None


def _check_reachable(address: str) -> None:
    """Ray itself tries for minutes before it gives up on an address where no process answers.

    :raises UnreachableError: nothing accepts a connection at ``host:port`` (``auto`` names no such address).
    """
    host, _, port = address.partition("?")[0].rpartition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S).close()
    except OSError as error:
        raise UnreachableError(f"nothing answers at cluster.address={address!r}: {error}") from None


def _long_waits(timeout_s: float) -> dict[str, str]:
    """Return settings with which each of Ray's own waits at its start, of 30 s or 60 s, may take ``timeout_s``."""
    seconds = str(int(timeout_s))
    waits = {
        "RAY_raylet_start_wait_time_s": seconds,
        "RAY_gcs_server_port_wait_time_s": seconds,
        "RAY_worker_register_timeout_seconds": seconds,
        "RAY_agent_register_timeout_ms": str(int(timeout_s * 1000)),
    }
    return {name: value for name, value in waits.items() if name not in os.environ}


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the processes that Ray starts in this context.

    Ray's threads read the environment of this process meanwhile, for which the C library has no lock (Ray issue
    18756). So names are added before these threads start, and afterwards no other variable is touched:
    `mock.patch.dict` clears and sets all of them, and one start of 300 ended in a segmentation fault.
    """
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _private_processes(folder: Path, timeout_s: float, *, logs: bool) -> Iterator[None]:
    """Keep the processes that Ray starts in this context private to this machine.

    They carry the watchdog's mark, have a session of their own, and listen on 127.0.0.1 alone. Three daemons without
    a use here stay out, which cost seconds at the start: the autoscaler, the dashboard's server of usage statistics,
    and, if no worker ``logs`` are shown, the reader of log files.

    Ray has options for none of that, nor for the ports of its agents. If it has to find these ports itself, the
    raylet gives up when the agents, which import a lot, are not up after 30 s. It takes 127.0.0.1 for the node's
    address only if it assumes that there are no clusters (macOS, Windows).
    """
    marks = os.environ.get(watchdog.MARK)
    mark = os.pathsep.join([*([marks] if marks else []), str(folder)])
    ports: dict[str, Any] = dict(
        zip(
            ("metrics_agent_port", "dashboard_agent_listen_port", "runtime_env_agent_port"), _free_ports(3), strict=True
        )
    )
    daemons: dict[str, Any] = {"no_monitor": True, "include_log_monitor": logs}
    with (
        _environment({watchdog.MARK: mark, _KEEP_ENVIRONMENT: "1", **_long_waits(timeout_s)}),
        mock.patch.object(ray_constants, "ENABLE_RAY_CLUSTER", False),
        mock.patch.object(
            ray_services, "ConsolePopen", functools.partial(ray_services.ConsolePopen, start_new_session=True)
        ),
        mock.patch.object(
            ray_parameter,
            "RayParams",
            functools.partial(ray_parameter.RayParams, **ports, **daemons),
        ),
        mock.patch.object(ray_services, "start_api_server", return_value=("", None)),
        mock.patch.object(ray_services, "start_raylet", _knowing_ports(ray_services.start_raylet)),
    ):
        yield


def _knowing_ports(start: Callable[..., Any]) -> Callable[..., Any]:
    """Ray's start of a raylet, which finds the port of the dashboard's agent in its file at once.

    The agent writes it when it listens, and the raylet crashes after 15 s without it: on a busy machine agents take
    longer. Ray has no setting for that wait.
    """

    @functools.wraps(start)
    def start_raylet(*args: Any, **named: Any) -> Any:
        arguments = inspect.signature(start).bind(*args, **named).arguments
        port = arguments["dashboard_agent_listen_port"]
        native: Any = ray._raylet  # compiled, without types
        name = native.DASHBOARD_AGENT_LISTEN_PORT_NAME
        native.persist_port(arguments["session_dir"], arguments["node_id"], name, port)
        return start(*args, **named)

    return start_raylet


def _free_ports(count: int) -> list[int]:
    """Return free TCP ports on 127.0.0.1.

    Ray's agents take seconds to come up. So these are ports that the system does not deal out to others meanwhile, such
    as the workers of another run, and not those of Ray's own workers; at random, for several drivers may start at once.
    """
    candidates = list(range(_FIRST_PORT, _first_dealt_out()))
    random.SystemRandom().shuffle(candidates)
    with ExitStack() as stack:
        probes: list[socket.socket] = []
        for port in candidates[:_PORTS_TRIED] + [0] * count:
            if len(probes) < count:
                probe = stack.enter_context(socket.socket())
                with suppress(OSError):  # somebody has it
                    probe.bind(("127.0.0.1", port))
                    probes.append(probe)
        return [int(probe.getsockname()[1]) for probe in probes]


def _first_dealt_out() -> int:
    """Read the first port that the system gives to a request for any port; 0 if it cannot be read."""
    try:
        return int(_DEALT_OUT.read_text().split()[0])
    except OSError:
        return 0
