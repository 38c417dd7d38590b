"""Timelines of iterations as OpenTelemetry traces: one trace an iteration, sent to a collector over HTTP.

The libraries are those of the extra `otel`; they are imported here alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlinf.base.errors import UserError
from rlinf.base.packages import missing_package
from rlinf.base.timeline import Span
from rlinf.train.tracking.step_timeline import by_process, tracks_of

_TIMEOUT_S = 10
"""Of one message to the collector, and of waiting for all at the end."""


class TraceExport:
    """Sends the spans of iterations in the background; a collector that is away never stops the run."""

    def __init__(self, exporter: Any, *, run: str, warn: Callable[[str], None]) -> None:
        """Take spans for ``exporter``, an OpenTelemetry ``SpanExporter``; ``warn`` prints that some were not sent."""
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource.create({"service.name": "rlinf", "rlinf.run": run})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=1 << 16))
        self._tracer = self._provider.get_tracer("rlinf")
        self._warn = warn

    @classmethod
    def to(cls, endpoint: str, *, run: str, warn: Callable[[str], None]) -> TraceExport:
        """Build an export to the collector at ``endpoint``, such as http://localhost:4318/v1/traces.

        Raises:
            UserError: the extra `otel` is not installed; the message states how to install it.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        except ModuleNotFoundError as error:
            raise UserError(f"logging.otlp_endpoint: {missing_package(error) or error}") from error
        return cls(OTLPSpanExporter(endpoint=endpoint, timeout=_TIMEOUT_S), run=run, warn=warn)

    def send(self, spans: Sequence[Span], step: int) -> None:
        """Send the spans of iteration ``step`` below one of its own; those inside others of a track are their children.

        Each has the attributes `rlinf.process`, `rlinf.track` and its details, and times in ns since the epoch.
        """
        if not spans:
            return
        ends = max(span.begin_s + span.seconds for span in spans)
        whole = Span(f"step {step}", min(span.begin_s for span in spans), 0.0, "", "", {"step": step})
        root = self._begun(whole, whole.track, None)
        for own in by_process(spans).values():
            for track, members in tracks_of(own):
                self._send_track(members, track, root)
        root.end(end_time=_nanoseconds(ends))

    def close(self) -> None:
        """Wait for what is not sent yet, for at most ten seconds."""
        if not self._provider.force_flush(timeout_millis=_TIMEOUT_S * 1000):
            self._warn(f"logging.otlp_endpoint: some spans were not sent within {_TIMEOUT_S} s")
        self._provider.shutdown()

    def _send_track(self, members: Sequence[Span], track: str, root: Any) -> None:
        """Send spans that are disjoint or nested, by their beginnings."""
        around: list[tuple[float, Any]] = []
        for span in members:
            end = span.begin_s + span.seconds
            while around and around[-1][0] < end:
                around.pop()
            made = self._begun(span, track, around[-1][1] if around else root)
            made.end(end_time=_nanoseconds(end))
            around.append((end, made))

    def _begun(self, span: Span, track: str, parent: Any) -> Any:
        from opentelemetry.trace import set_span_in_context

        attributes = {f"rlinf.{name}": value for name, value in span.details.items()}
        attributes |= {"rlinf.process": span.process, "rlinf.track": track} if span.process else {}
        context = None if parent is None else set_span_in_context(parent)
        start = _nanoseconds(span.begin_s)
        return self._tracer.start_span(span.name, context=context, attributes=attributes, start_time=start)


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
