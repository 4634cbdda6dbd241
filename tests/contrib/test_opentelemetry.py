"""Traces and metrics, as the SDK records them and as a receiver gets them over the network."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import SpanKind, StatusCode

from stepwell import App, Context, JobFailed, Plugin, Retry, Snooze, SyncContext, Worker
from stepwell.contrib.opentelemetry import OpenTelemetry
from stepwell.contrib.opentelemetry.run_spans import run_spans
from stepwell.contrib.prometheus import Prometheus
from stepwell.testing import adrain

from .spans import Recorder, attributes


async def part(n: int) -> int:
    trace.get_current_span().set_attribute("inside", n)
    return n


def plain_part(n: int) -> int:
    trace.get_current_span().set_attribute("inside", n)
    return n


async def test_runs_are_linked_to_their_enqueue_and_steps_are_inside(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin()])

    @app.task
    async def child() -> int:
        return 1

    @app.task
    async def work(ctx: Context, n: int) -> int:
        return await ctx.step(part, n) + await ctx.step(plain_part, n) + await ctx.spawn(child)

    @app.task
    def in_thread(ctx: SyncContext, n: int) -> int:
        return ctx.step(plain_part, n) + ctx.step(part, n)

    async with app, Worker(app, always_replay=False):
        with recorder.provider.get_tracer("web").start_as_current_span("GET /") as request:
            job = await work.aenqueue(7)
            thread_job = await in_thread.aenqueue(8)
        assert await job.aresult(timeout="20s") == 15
        assert await thread_job.aresult(timeout="20s") == 16
    sent = {attributes(span)["stepwell.task"]: span for span in recorder.of(SpanKind.PRODUCER)}
    assert set(sent) == {"work", "in_thread", "child"}
    assert sent["work"].name == "send default"
    assert sent["work"].parent is not None
    assert sent["work"].parent.span_id == request.get_span_context().span_id
    runs = recorder.of(SpanKind.CONSUMER)
    first = next(span for span in runs if attributes(span)["stepwell.task"] == "work")
    assert first.name == "process default"
    assert first.parent is None
    assert [link.context.span_id for link in first.links] == [sent["work"].context.span_id]  # pyright: ignore
    about = attributes(first)
    assert about["messaging.system"] == "stepwell"
    assert about["messaging.operation.name"] == about["messaging.operation.type"] == "process"
    assert about["messaging.destination.name"] == "default"
    assert about["messaging.message.id"] == str(job.id)
    assert about["messaging.message.id"] == job.id
    assert about["messaging.message.id"] != UUID(int=0)
    assert about["stepwell.outcome"] == "suspended", "it waits for its child"
    assert attributes(sent["work"])["messaging.message.id"] == str(job.id)
    # The child is sent from inside the run.
    assert sent["child"].parent is not None
    assert sent["child"].parent.span_id in {span.context.span_id for span in runs}  # pyright: ignore
    for task in ("work", "in_thread"):
        own = {s.context.span_id for s in runs if attributes(s)["stepwell.task"] == task}  # pyright: ignore
        steps = [s for s in recorder.of(SpanKind.INTERNAL) if attributes(s).get("stepwell.task") == task]
        assert {step.name for step in steps} == {"step part", "step plain_part"}
        assert all(step.parent is not None and step.parent.span_id in own for step in steps)
        assert all("inside" in attributes(step) for step in steps), "the function runs inside the span"


async def test_with_parent_a_run_is_part_of_the_trace_and_keeps_the_link(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin(parent=True)])

    @app.task
    async def work() -> str:
        return str(baggage.get_baggage("tenant"))

    async with app, Worker(app):
        token = context.attach(baggage.set_baggage("tenant", "ada"))
        job = await work.aenqueue()
        context.detach(token)
        assert await job.aresult(timeout="20s") == "ada"
    [sent], [run] = recorder.of(SpanKind.PRODUCER), recorder.of(SpanKind.CONSUMER)
    assert run.parent is not None
    assert run.parent.span_id == sent.context.span_id == run.links[0].context.span_id  # pyright: ignore


@pytest.mark.parametrize("sampler", [ALWAYS_ON, ParentBased(TraceIdRatioBased(0.9999999))])
@pytest.mark.parametrize("parent", [False, True])
async def test_a_span_around_the_worker_is_linked_too(dsn: str, sampler: Sampler, parent: bool) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = App(dsn, plugins=[OpenTelemetry(tracer_provider=provider, parent=parent)])

    @app.task
    async def work() -> None: ...

    @app.task(batch=2, batch_wait="10s")
    async def together(ns: list[int]) -> list[int]:
        return ns

    async with app:
        await work.aenqueue()
        await together.aenqueue_many([{"ns": 1}, {"ns": 2}])
        with provider.get_tracer("shop").start_as_current_span("main") as main:
            await adrain(app)
        await work.aenqueue_many([{} for _ in range(20)])
        async with Worker(app, concurrency=1):
            await (await work.aenqueue()).aresult(timeout="20s")
    around = main.get_span_context().span_id
    runs = [span for span in exporter.get_finished_spans() if span.kind is SpanKind.CONSUMER]
    assert [[link.context.span_id == around for link in run.links] for run in runs[:2]] == [[False, True]] * 2
    assert {len(run.links) for run in runs[2:]} == {1}, "of no other run"


async def test_errors_retries_snoozes_and_timeouts(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin(steps=False)])
    runs = 0

    @app.task(retry=Retry(max_attempts=2, backoff="fixed", initial=0))
    async def fails() -> None:
        raise LookupError("nothing here")

    @app.task
    async def snoozes() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise Snooze(0.01)

    @app.task(timeout="50ms", retry=Retry(max_attempts=1))
    async def hangs() -> None:
        await asyncio.sleep(60)

    async with app, Worker(app):
        jobs = [await fails.aenqueue(), await snoozes.aenqueue(), await hangs.aenqueue()]
        await jobs[1].aresult(timeout="20s")
        for job in (jobs[0], jobs[2]):
            with pytest.raises(JobFailed):
                await job.aresult(timeout="20s")
    by_task: dict[str, list[ReadableSpan]] = {}
    for span in recorder.of(SpanKind.CONSUMER):
        by_task.setdefault(attributes(span)["stepwell.task"], []).append(span)
    [sent] = [s for s in recorder.of(SpanKind.PRODUCER) if attributes(s)["stepwell.task"] == "fails"]
    assert [attributes(span)["stepwell.attempt"] for span in by_task["fails"]] == [1, 2]
    for span in by_task["fails"]:
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "LookupError"
        assert span.links[0].context.span_id == sent.context.span_id, "each attempt is linked"  # pyright: ignore
        assert span.events[0].name == "exception"
    assert [attributes(s)["stepwell.outcome"] for s in by_task["snoozes"]] == ["snoozed", "succeeded"]
    assert all(span.status.status_code is StatusCode.UNSET for span in by_task["snoozes"])
    [late] = by_task["hangs"]
    assert (attributes(late)["error.type"], attributes(late)["stepwell.outcome"]) == ("timeout", "failed")
    points = recorder.points()
    outcomes = {
        (point.attributes["task"], point.attributes["outcome"]): point.value for point in points["stepwell.jobs"]
    }
    assert outcomes == {
        ("fails", "failed"): 2,
        ("hangs", "failed"): 1,
        ("snoozes", "snoozed"): 1,
        ("snoozes", "succeeded"): 1,
    }
    assert sum(point.count for point in points["stepwell.wait"]) == 5
    assert sum(point.count for point in points["stepwell.run"]) == 5
    assert sum(point.value for point in points["messaging.client.sent.messages"]) == 3
    assert sum(point.value for point in points["messaging.client.consumed.messages"]) == 5
    assert {"messaging.client.operation.duration", "messaging.process.duration"} <= set(points)


async def test_a_batch_has_one_span_with_a_link_to_each_enqueue(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin(parent=True)])

    @app.task(batch=4, batch_wait="10s")
    async def together(ns: list[int]) -> list[int]:
        return ns

    async with app:
        await together.aenqueue_many([{"ns": n} for n in range(3)])
        await together.aenqueue(3)
        await adrain(app)
    many, one = recorder.of(SpanKind.PRODUCER)
    assert attributes(many)["messaging.batch.message_count"] == 3
    [run] = recorder.of(SpanKind.CONSUMER)
    assert attributes(run)["messaging.batch.message_count"] == 4
    assert run.parent is None
    assert {link.context.span_id for link in run.links} == {many.context.span_id, one.context.span_id}  # pyright: ignore


async def test_each_job_of_a_batch_is_counted_as_prometheus_counts_it(dsn: str, recorder: Recorder) -> None:
    prometheus = Prometheus()
    app = App(dsn, plugins=[recorder.plugin(), prometheus])

    @app.task(batch=4, batch_wait="10s", retry=Retry(max_attempts=1))
    async def together(ns: list[int]) -> list[int | Exception]:
        return [LookupError("not zero") if n == 0 else n for n in ns]

    @app.task(name="greet")
    async def greet(name: str) -> None: ...

    newer = App(dsn)

    @newer.task(name="greet")
    async def greet_with_title(name: str, title: str) -> None: ...

    async with app, newer:
        await together.aenqueue_many([{"ns": n} for n in range(3)])
        await greet_with_title.aenqueue("ada", "Countess")
        await adrain(app)
    points = recorder.points()
    outcomes = {
        (point.attributes["task"], point.attributes["queue"], point.attributes["outcome"]): point.value
        for point in points["stepwell.jobs"]
    }
    assert outcomes == {
        ("together", "default", "failed"): 1,
        ("together", "default", "succeeded"): 2,
        ("greet", "default", "handed_back"): 1,
    }
    assert outcomes == prometheus.counts().ended
    for name in ("stepwell.run", "stepwell.wait"):
        assert {point.attributes["task"]: point.count for point in points[name]} == {"together": 3, "greet": 1}


async def test_gauges_have_the_numbers_that_prometheus_has(dsn: str, recorder: Recorder) -> None:
    prometheus = Prometheus()
    app = App(dsn, plugins=[recorder.plugin(), prometheus])

    @app.task
    async def work() -> None: ...

    async with app:
        async with Worker(app, concurrency=7):
            await work.using(queue="elsewhere").aenqueue_many([{} for _ in range(5)])
            async with asyncio.timeout(60):
                while "stepwell.queue.depth" not in (points := await asyncio.to_thread(recorder.points)):
                    pass  # it does not lead yet
            families = {family.name: family for family in await asyncio.to_thread(prometheus.registry.collect)}
        assert "stepwell.slots" not in recorder.points(), "the worker has ended"
    [depth], [oldest] = points["stepwell.queue.depth"], points["stepwell.queue.oldest"]
    assert (depth.attributes, depth.value) == ({"queue": "elsewhere"}, 5)
    assert (oldest.attributes, oldest.value >= 0) == ({"queue": "elsewhere"}, True)
    for name in ("workers", "registered", "slots", "running_jobs", "unstarted_jobs", "unwritten_outcomes"):
        [point] = points[f"stepwell.{name}"]
        assert (name, point.value) == (name, families[f"stepwell_{name}"].samples[0].value)
    assert points["stepwell.slots"][0].value == 7


async def test_gauges_are_of_all_apps_of_the_process(dsn: str, recorder: Recorder) -> None:
    apps = [App(dsn, plugins=[recorder.plugin()]) for _ in range(2)]
    for app in apps:

        @app.task
        async def work() -> None: ...

    one, other = apps
    async with Worker(one, concurrency=3):
        async with Worker(other, concurrency=4):
            assert [point.value for point in (await asyncio.to_thread(recorder.points))["stepwell.slots"]] == [7]
        assert [point.value for point in (await asyncio.to_thread(recorder.points))["stepwell.slots"]] == [3]
    async with Worker(other, concurrency=4):
        assert [point.value for point in (await asyncio.to_thread(recorder.points))["stepwell.slots"]] == [4]
    for app in apps:
        await app.aclose()


def test_a_producer_with_traces_loads_no_worker() -> None:
    code = "import sys, stepwell.contrib.opentelemetry; sys.exit('stepwell.worker' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_an_unsampled_enqueue_stores_nothing(dsn: str) -> None:
    found: list[dict[str, str]] = []

    class Look(Plugin):
        def wrap_enqueue(self, enqueue: Any) -> Any:
            found.append(enqueue.headers)
            return super().wrap_enqueue(enqueue)

    app = App(dsn, plugins=[OpenTelemetry(tracer_provider=TracerProvider(sampler=ALWAYS_OFF)), Look()])

    @app.task
    async def work() -> None: ...

    async with app:
        await work.aenqueue()
        assert await adrain(app) == 1
    assert found == [{}]


class Looks(Sampler):
    """Samples by what it is told, so that the SDK has to make each span."""

    def should_sample(self, *args: Any, **kwargs: Any) -> SamplingResult:
        return ALWAYS_ON.should_sample(*args, **kwargs)

    def get_description(self) -> str:
        return "Looks"


async def test_a_span_that_is_copied_is_like_one_of_the_sdk(dsn: str) -> None:
    exported: list[list[dict[str, Any]]] = []
    for sampler in (ALWAYS_ON, ParentBased(TraceIdRatioBased(1)), Looks()):
        exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        plugin = OpenTelemetry(tracer_provider=provider)
        app = App(dsn, plugins=[plugin], name="copied")

        @app.task(retry=Retry(max_attempts=1))
        async def work(n: int) -> None:
            span = trace.get_current_span()
            span.set_attribute("n", n)
            span.add_event("met", {"n": n})
            span.add_link(trace.SpanContext(1, 2, is_remote=True))
            if n == 2:
                raise LookupError("nothing here")

        async with app:
            await work.aenqueue_many([{"n": 1}, {"n": 2}])
            await adrain(app)
        assert (plugin._spans is None) == isinstance(sampler, Looks)  # pyright: ignore[reportPrivateUsage]
        runs = [span for span in exporter.get_finished_spans() if span.kind is SpanKind.CONSUMER]
        assert len({span.context.trace_id for span in runs if span.context}) == 2
        assert all(span.start_time and span.end_time and span.start_time < span.end_time for span in runs)
        exported.append([_without_ids(span) for span in sorted(runs, key=lambda span: attributes(span)["n"])])
    assert exported[0] == exported[1] == exported[2]
    first, second = exported[0]
    assert (first["attributes"]["stepwell.outcome"], second["attributes"]["stepwell.outcome"]) == (
        "succeeded",
        "failed",
    )
    assert [event["name"] for event in second["events"]] == ["met", "exception"]
    assert len(first["links"]) == len(second["links"]) == 2


def _without_ids(span: ReadableSpan) -> dict[str, Any]:
    found = json.loads(span.to_json())
    ids = ("context", "start_time", "end_time")
    found["attributes"]["messaging.message.id"] = "any"
    for event in found["events"]:
        del event["timestamp"]
        event["attributes"].pop("exception.stacktrace", None)
    found["links"] = [link["attributes"] for link in found["links"]]
    flags = span.context.trace_flags if span.context else None
    return {name: value for name, value in found.items() if name not in ids} | {"flags": flags}


async def test_a_run_that_is_not_sampled_has_a_trace_that_is_not(dsn: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(1e-12)))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    wrapped: list[str] = []

    class Counts(OpenTelemetry):
        async def wrap_run(self, run: Any, call: Any) -> None:
            wrapped.append(run.task)
            await super().wrap_run(run, call)

    app = App(dsn, plugins=[Counts(tracer_provider=provider)])
    seen: list[trace.SpanContext] = []
    sent: list[str] = []

    @app.task
    async def work(ctx: Context) -> None:
        span = trace.get_current_span()
        assert not span.is_recording()
        seen.append(span.get_span_context())
        assert span.get_span_context() is seen[-1]
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        sent.append(carrier["traceparent"])
        await ctx.step(part, 1)

    async with app:
        await work.aenqueue_many([{}, {}])
        assert await adrain(app) == 2
    assert wrapped == []
    assert exporter.get_finished_spans() == ()
    assert len({context.trace_id for context in seen}) == len({context.span_id for context in seen}) == 2
    assert all(context.is_valid and not context.trace_flags.sampled for context in seen)
    assert sent == [f"00-{c.trace_id:032x}-{c.span_id:016x}-{c.trace_flags:02x}" for c in seen]


async def test_one_run_in_two_is_sampled(dsn: str) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=TraceIdRatioBased(0.5))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    app = App(dsn, plugins=[OpenTelemetry(tracer_provider=provider)])
    sampled: set[int] = set()

    @app.task
    async def work() -> None:
        context = trace.get_current_span().get_span_context()
        if context.trace_flags.sampled:
            sampled.add(context.trace_id)

    async with app:
        await work.aenqueue_many([work.call()] * 200)
        assert await adrain(app) == 200
    runs = [span for span in exporter.get_finished_spans() if span.kind is SpanKind.CONSUMER]
    assert {span.context.trace_id for span in runs if span.context} == sampled
    assert 50 < len(sampled) < 150, "the odds against this are beyond counting"


def test_spans_are_copied_only_where_a_copy_is_the_same() -> None:
    def copies(provider: TracerProvider) -> bool:
        return run_spans(provider.get_tracer("any"), lambda _: {}) is not None

    assert copies(TracerProvider())
    assert not copies(TracerProvider(sampler=Looks()))
    assert not copies(TracerProvider(sampler=ParentBased(Looks())))
    assert not copies(TracerProvider(span_limits=SpanLimits(max_span_attributes=3)))
    assert not copies(TracerProvider(span_limits=SpanLimits(max_span_attribute_length=10)))
    assert run_spans(trace.NoOpTracerProvider().get_tracer("any"), lambda _: {}) is None


class _Receiver(BaseHTTPRequestHandler):
    received: list[ExportTraceServiceRequest]

    def do_POST(self) -> None:
        request = ExportTraceServiceRequest()
        request.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
        self.received.append(request)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002


async def test_a_receiver_of_otlp_gets_the_spans(dsn: str) -> None:
    received: list[ExportTraceServiceRequest] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Receiver", (_Receiver,), {"received": received}))
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    provider = TracerProvider()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1/traces"
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(url)))
    app = App(dsn, plugins=[OpenTelemetry(tracer_provider=provider)])

    @app.task
    async def work(ctx: Context) -> int:
        return await ctx.step(part, 1)

    try:
        async with app:
            job = await work.aenqueue()
            await adrain(app)
        await asyncio.to_thread(provider.shutdown)
    finally:
        await asyncio.to_thread(server.shutdown)
        serving.join()
        server.server_close()
    spans = {
        span.name: span
        for request in received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    }
    assert set(spans) == {"send default", "process default", "step part"}
    run = spans["process default"]
    assert run.links[0].span_id == spans["send default"].span_id
    assert spans["step part"].parent_span_id == run.span_id
    [message_id] = [a.value.string_value for a in run.attributes if a.key == "messaging.message.id"]
    assert message_id == str(job.id)
