"""``rlinf serve RUN``: a policy behind openpi's websocket protocol."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from rlinf.base.arguments import Parser
from rlinf.base.errors import UserError

_TOKEN = "RLINF_SERVE_TOKEN"
_LOCAL = ("127.0.0.1", "::1", "localhost")


def main(arguments: Sequence[str]) -> int:
    """Serve until it is interrupted, and return the exit code. Raises UserError if it cannot."""
    parser = Parser(
        prog="rlinf serve",
        description="Serve the policy of a run to robots and simulators in openpi's websocket protocol (msgpack): "
        "openpi_client.WebsocketClientPolicy and its brokers are clients. Every answer has `actions` [chunk, ...].",
    )
    parser.add_argument("policy", metavar="RUN", help="a run directory, or an exported folder")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: this machine alone)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default 8000)")
    parser.add_argument("--token", help=f"what clients must send; other hosts need one (or {_TOKEN})")
    parser.add_argument("--measure", type=int, metavar="N", help="send N random observations, print latencies, and end")
    parser.add_argument(
        "--real-time",
        type=float,
        metavar="HZ",
        help="with --measure: N actions at this rate while the next chunk is computed; prints stalls",
    )
    options = parser.parse_args(list(arguments))
    if options.real_time is not None and (options.measure is None or options.real_time <= 0):
        raise UserError("--real-time HZ (above 0) is for --measure N: N actions are carried out at that rate")
    token = options.token or os.environ.get(_TOKEN)
    if options.host not in _LOCAL and token is None:
        raise UserError(
            f"--host {options.host} lets other machines in: give them a token with --token or {_TOKEN}, which "
            "clients send (openpi: WebsocketClientPolicy(api_key=...))"
        )
    from rlinf.serve.server import PolicyServer, measure, measure_real_time, percentiles
    from rlinf.serve.session import Session, load_session_policy

    policy, turn = load_session_policy(options.policy), threading.Lock()
    with PolicyServer(lambda: Session(policy, turn), host=options.host, port=options.port, token=token) as server:
        host = f"[{options.host}]" if ":" in options.host else options.host
        url = f"ws://{host}:{server.port}"
        print(f"{policy.folder} is served at {url} (openpi's protocol)", flush=True)
        if options.measure is not None:
            request = Session(policy, turn).random_request()
            if options.real_time is None:
                print(f"client: {percentiles(measure(url, request, options.measure, token=token))}")
            else:
                figures = measure_real_time(url, request, options.measure, rate=options.real_time, token=token)
                print(f"client: {figures}")
        else:
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                print("stopped")
    print(f"server: {percentiles(server.latencies_ms)}")
    return 0
