"""The plugins of the app that is measured, by BENCH_PLUGINS."""

from __future__ import annotations

import os

from stepwell import Plugin


def chosen() -> list[Plugin]:
    name = os.environ.get("BENCH_PLUGINS", "")
    if name == "prometheus":
        from stepwell.contrib.prometheus import Prometheus

        return [Prometheus(port=0)]
    if name.startswith("opentelemetry"):
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
        from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

        from stepwell.contrib.opentelemetry import OpenTelemetry

        class Nowhere(SpanExporter):
            def export(self, spans: object) -> SpanExportResult:  # noqa: ARG002
                return SpanExportResult.SUCCESS

        share = float(name.partition(" ")[2] or 1)
        provider = TracerProvider(sampler=TraceIdRatioBased(share))
        provider.add_span_processor(BatchSpanProcessor(Nowhere()))
        return [OpenTelemetry(tracer_provider=provider)]
    return []
