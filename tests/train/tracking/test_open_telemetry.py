"""Timelines as OpenTelemetry traces: with the in-memory exporter, and over HTTP to a collector that is a test's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import tiny_runs

from rlinf.base.timeline import Span
from rlinf.train.tracking.open_telemetry import TraceExport

pytest.importorskip("opentelemetry.sdk.trace")

SPANS = [
    Span("update", 100.0, 2.0, "driver", ""),
    Span("forward", 100.5, 0.5, "learner 0", "", {"rows": 8}),
    Span("tool search", 99.0, 0.25, "env 0", "row 3"),
    Span("inside", 100.25, 1.0, "driver", ""),
]


def test_an_iteration_is_a_trace_whose_spans_are_nested_as_they_ran() -> None:
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    memory, warnings = InMemorySpanExporter(), list[str]()
    export = TraceExport(memory, run="tiny", warn=warnings.append)
    export.send(SPANS, 7)
    export.send([], 8)
    export.close()
    found = {span.name: span for span in memory.get_finished_spans()}
    assert set(found) == {"step 7", "update", "forward", "tool search", "inside"}
    root = found["step 7"]
    assert (root.start_time, root.end_time, root.parent) == (99 * 10**9, 102 * 10**9, None)
    assert len({span.context.trace_id for span in found.values()}) == 1
    parents = {name: span.parent.span_id for name, span in found.items() if span.parent is not None}
    assert parents["update"] == parents["forward"] == parents["tool search"] == root.context.span_id
    assert parents["inside"] == found["update"].context.span_id
    assert dict(found["forward"].attributes or {}) == {
        "rlinf.process": "learner 0",
        "rlinf.track": "calls",
        "rlinf.rows": 8,
    }
    assert found["tool search"].end_time - found["tool search"].start_time == 250_000_000
    assert root.resource.attributes["service.name"] == "rlinf"
    assert root.resource.attributes["rlinf.run"] == "tiny"
    assert warnings == []


class Collector(BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        self.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write nothing."""


@pytest.fixture
def collector() -> Iterator[str]:
    Collector.bodies.clear()
    httpd = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_address[1]}/v1/traces"
    httpd.shutdown()
    httpd.server_close()


def test_a_run_sends_its_traced_iterations(collector: str, tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    logging = {"trace_every": 2, "otlp_endpoint": collector}
    tiny_runs.run(tiny_runs.config(tmp_path, run={"max_steps": 3}, logging=logging))
    names = [
        span.name
        for body in Collector.bodies
        for resource in ExportTraceServiceRequest.FromString(_plain(body)).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert sorted(name for name in names if name.startswith("step ")) == ["step 1", "step 3"]
    assert names.count("update") == 4  # of the loop, and of the learner's rank
    assert "forward" in names


def _plain(body: bytes) -> bytes:
    import gzip

    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
