"""A service on 127.0.0.1 that grades, and fails as often as configured."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], Any]


class Service:
    """What came in, and what is wrong with the answers: by the number of the request."""

    def __init__(self, answer: Answer, fault: Callable[[int], str] = lambda number: "") -> None:
        self.answer, self.fault = answer, fault
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""
        self._lock = threading.Lock()

    def take(self, content: dict[str, Any], headers: dict[str, str]) -> int:
        with self._lock:
            self.requests.append(content)
            self.headers.append(headers)
            return len(self.requests) - 1


@contextmanager
def serving(service: Service) -> Iterator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fault = service.fault(service.take(content, dict(self.headers)))
            if fault == "hang":
                time.sleep(3)
            body = b"nonsense" if fault == "nonsense" else json.dumps(service.answer(content)).encode()
            self.send_response(500 if fault == "500" else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            try:
                self.wfile.write(body)
            except OSError:  # the client is gone
                return

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()


def completion(content: str) -> dict[str, Any]:
    """As an OpenAI-compatible server answers."""
    return {"choices": [{"message": {"role": "assistant", "content": content}}]}
