"""Traces when something goes wrong: broken exporters, hostile errors, rollbacks, replays, and runs that are cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import SpanKind
from process_tasks import divide
from waiting import auntil

from stepwell import App, ConfigError, Context, JobFailed, Retry, SyncContext, Worker
from stepwell.contrib.opentelemetry import OpenTelemetry
from stepwell.telemetry.plugins import PluginFailed
from stepwell.testing import adrain

from .spans import Recorder, attributes


class BrokenStart(SpanProcessor):
    def on_start(self, span: Any, parent_context: Any = None) -> None:
        raise OSError("no memory")


class BrokenEnd(SpanProcessor):
    def on_end(self, span: ReadableSpan) -> None:
        raise OSError("no disk")


class BrokenExporter(SpanExporter):
    def export(self, spans: Any) -> Any:
        raise OSError("no network")


class BrokenSampler(Sampler):
    def should_sample(self, *args: Any, **kwargs: Any) -> Any:
        raise OSError("no rate")

    def get_description(self) -> str:
        return "broken"


def _provider(*processors: SpanProcessor, sampler: Sampler = ALWAYS_ON) -> TracerProvider:
    provider = TracerProvider(sampler=sampler)
    for processor in processors:
        provider.add_span_processor(processor)
    return provider


@pytest.mark.parametrize(
    "make",
    [
        lambda: _provider(BrokenStart()),
        lambda: _provider(BrokenEnd()),
        lambda: _provider(SimpleSpanProcessor(BrokenExporter())),
        lambda: _provider(sampler=BrokenSampler()),
    ],
    ids=["start", "end", "exporter", "sampler"],
)
async def test_a_tracer_that_fails_harms_no_job(dsn: str, make: Callable[[], TracerProvider]) -> None:
    app = App(dsn, plugins=[OpenTelemetry(tracer_provider=make())], retry=Retry(max_attempts=1))

    @app.task
    async def work(ctx: Context) -> int:
        return await ctx.step(one)

    @app.task
    async def fails() -> None:
        raise LookupError("its own error")

    @app.task(batch=2, batch_wait="0s")
    async def together(ns: list[int]) -> list[int]:
        return ns

    async with app:
        job, failed = await work.aenqueue(), await fails.aenqueue()
        batch = await together.aenqueue_many([{"ns": 1}, {"ns": 2}])
        await adrain(app)
        assert await job.aresult(timeout="5s") == 1
        assert [await one.aresult(timeout="5s") for one in batch] == [1, 2]
        with pytest.raises(JobFailed, match="LookupError: its own error"):
            await failed.aresult(timeout="5s")


async def one() -> int:
    return 1


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


async def test_an_error_that_cannot_be_shown_is_still_the_error_of_its_job(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin()], retry=Retry(max_attempts=1))

    @app.task
    async def hostile() -> None:
        raise Hostile

    @app.task
    async def in_step(ctx: Context) -> None:
        await ctx.step(raises)

    async def raises() -> None:
        raise Hostile

    @app.task
    async def unreadable() -> None:
        raise LookupError("\ud800 and \x00" + "x" * 1_000_000)

    async with app:
        jobs = [await hostile.aenqueue(), await in_step.aenqueue(), await unreadable.aenqueue()]
        await adrain(app)
        for job, name in zip(jobs, ("Hostile", "Hostile", "LookupError"), strict=True):
            with pytest.raises(JobFailed, match=name):
                await job.aresult(timeout="5s")
    spans = recorder.exporter.get_finished_spans()
    encode_spans(spans).SerializeToString()
    assert max(len(str(span.to_json())) for span in spans) < 300_000


def test_a_rolled_back_enqueue_is_not_called_sent(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin()])

    @app.task
    def work() -> None: ...

    with app, psycopg.connect(dsn) as connection:
        work.using(connection=connection).enqueue()
        connection.rollback()
        work.enqueue()
    created, sent = recorder.of(SpanKind.PRODUCER)
    assert created.name == "create default"
    assert attributes(created)["messaging.operation.type"] == "create"
    assert sent.name == "send default"
    counted = {
        point.attributes["messaging.operation.name"]: point.value
        for point in recorder.points()["messaging.client.sent.messages"]
    }
    assert counted == {"create": 1, "send": 1}


async def test_a_replay_makes_no_second_span_of_a_step(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin()])

    @app.task
    async def work(ctx: Context) -> int:
        total = 0
        for _ in range(3):
            total += await ctx.step(one)
        return total

    @app.task
    def plain(ctx: SyncContext) -> int:
        return sum(ctx.step(one_plain) for _ in range(3))

    async with app, Worker(app, always_replay=True):
        assert await (await work.aenqueue()).aresult(timeout="20s") == 3
        assert await (await plain.aenqueue()).aresult(timeout="20s") == 3
    keys = [(attributes(s)["stepwell.task"], attributes(s)["stepwell.step"]) for s in recorder.of(SpanKind.INTERNAL)]
    assert len(keys) == len(set(keys)) == 6
    ids = {span.context.span_id for span in recorder.of(SpanKind.CONSUMER) if span.context}
    assert all(s.parent and s.parent.span_id in ids for s in recorder.of(SpanKind.INTERNAL))
    # Each run has its own trace.
    runs = recorder.of(SpanKind.CONSUMER)
    assert len({span.context.trace_id for span in runs if span.context}) == len(runs)


def one_plain() -> int:
    return 1


@pytest.mark.parametrize("rate", [0, 1])
async def test_no_context_leaks_between_jobs_and_threads(dsn: str, rate: int) -> None:
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

    app = App(dsn, plugins=[OpenTelemetry(tracer_provider=_provider(sampler=TraceIdRatioBased(rate)))])
    seen: dict[int, tuple[int, Any]] = {}

    def note(n: int) -> None:
        span = trace.get_current_span().get_span_context()
        assert n not in seen
        seen[n] = (span.span_id, baggage.get_baggage("n"))
        context.attach(baggage.set_baggage("left", str(n)))  # left behind on purpose
        context.attach(trace.set_span_in_context(trace.INVALID_SPAN))

    @app.task
    async def work(n: int) -> None:
        assert baggage.get_baggage("left") is None
        note(n)
        await asyncio.sleep(0.001)

    @app.task
    def in_thread(n: int) -> None:
        assert baggage.get_baggage("left") is None
        note(n)

    async with app:
        for n in range(30):
            token = context.attach(baggage.set_baggage("n", str(n))) if n % 2 else None
            await (work if n % 3 else in_thread).aenqueue(n)
            if token:
                context.detach(token)
        before = trace.get_current_span()
        async with Worker(app, concurrency=4):
            await auntil(lambda: len(seen) == 30)
        assert trace.get_current_span() is before
        assert baggage.get_baggage("left") is None
    assert len({span for span, _ in seen.values()}) == 30
    assert {n: bag for n, (_, bag) in seen.items()} == {n: str(n) if n % 2 else None for n in range(30)}


async def test_a_trace_is_kept_although_its_baggage_is_too_large(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin()])
    failed: list[PluginFailed] = []
    app.events.subscribe(failed.append, (PluginFailed,))  # pyright: ignore[reportArgumentType]

    @app.task
    async def work(n: int) -> None: ...

    async with app:
        for n in range(3):
            ctx = context.get_current()
            for m in range(3):
                ctx = baggage.set_baggage(f"key{m}", "x" * 2720, ctx)
            token = context.attach(ctx)
            await work.aenqueue(n)
            context.detach(token)
        await adrain(app)
    sent = recorder.of(SpanKind.PRODUCER)
    runs = recorder.of(SpanKind.CONSUMER)
    assert [link.context.span_id for run in runs for link in run.links] == [s.context.span_id for s in sent]  # pyright: ignore


async def test_children_and_retries_keep_the_trace(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin(parent=True)], retry=Retry(max_attempts=2, backoff="fixed", initial=0))
    runs = 0

    @app.task
    async def child() -> None: ...

    @app.task
    async def work(ctx: Context) -> None:
        nonlocal runs
        runs += 1
        await ctx.spawn(child)
        if runs < 3:
            raise LookupError

    async with app:
        with recorder.provider.get_tracer("web").start_as_current_span("GET /") as request:
            await work.aenqueue()
        await adrain(app)
    trace_id = request.get_span_context().trace_id
    assert {s.context.trace_id for s in recorder.of(SpanKind.CONSUMER) if s.context} == {trace_id}
    assert {attributes(s)["stepwell.task"] for s in recorder.of(SpanKind.CONSUMER)} == {"work", "child"}


@pytest.mark.parametrize(
    "headers",
    [
        "[]",
        '{"traceparent": 5}',
        '{"traceparent": "00-zz-\\u00e9"}',
        '{"baggage": "%%%=,=;;"}',
        f'{{"traceparent": "00-{"0" * 32}-{"0" * 16}-01", "tracestate": ",,,="}}',
    ],
)
async def test_headers_that_nobody_can_read_are_no_trace(
    dsn: str, conn: psycopg.Connection[Any], recorder: Recorder, headers: str
) -> None:
    app = App(dsn, plugins=[recorder.plugin(parent=True)])

    @app.task
    async def work() -> int:
        return 1

    async with app:
        job = await work.aenqueue()
        conn.execute("update stepwell.job set policy = jsonb_build_object('headers', %s::jsonb)::text::json", [headers])
        await adrain(app)
        assert await job.aresult(timeout="5s") == 1
    [run] = recorder.of(SpanKind.CONSUMER)
    assert run.links == () or not run.links


async def test_a_run_that_the_shutdown_cuts_off_ends_its_span(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin()])
    begun = asyncio.Event()

    @app.task
    async def hangs() -> None:
        begun.set()
        await asyncio.sleep(60)

    async with app, Worker(app, grace="0s"):
        await hangs.aenqueue()
        await begun.wait()
    [run] = recorder.of(SpanKind.CONSUMER)
    assert attributes(run)["stepwell.outcome"] == "handed_back"


async def test_a_run_in_a_process_has_a_span(dsn: str, recorder: Recorder) -> None:
    app = App(dsn, plugins=[recorder.plugin()], retry=Retry(max_attempts=1))
    task = app.task(process=True)(divide.fn)
    async with app, Worker(app, process_slots=1):
        with pytest.raises(JobFailed):
            await (await task.aenqueue(0)).aresult(timeout="60s")
    [run] = recorder.of(SpanKind.CONSUMER)
    assert attributes(run)["error.type"] == "ZeroDivisionError"
    assert "divide" in str(run.events[0].attributes)


async def test_one_plugin_is_for_one_app(dsn: str, recorder: Recorder) -> None:
    plugin = recorder.plugin()
    async with App(dsn, plugins=[plugin]):
        with pytest.raises(ConfigError, match="make one for each app"):
            async with App(dsn, plugins=[plugin]):
                pass
