"""The plugin: a span for each enqueue, run and step, and metrics.

Names follow the semantic conventions for messaging, which are still in development; so they are written out here. What
the conventions have no name for is called stepwell.*, and comes out of a Prometheus exporter with the names that
`stepwell.contrib.prometheus` has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any
from uuid import UUID

from opentelemetry import baggage, context, metrics, propagate, trace
from opentelemetry.context import Context as TraceContext
from opentelemetry.metrics._internal import _ProxyMeterProvider  # pyright: ignore[reportPrivateUsage]
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind

from stepwell.contrib.opentelemetry.failed_span import mark_failed
from stepwell.contrib.opentelemetry.instruments import Instruments
from stepwell.contrib.opentelemetry.origins import NO_CONTEXT, Origins
from stepwell.contrib.opentelemetry.run_spans import RunSpans, UnsampledSpan, run_spans
from stepwell.errors import ConfigError
from stepwell.plugins import Enqueue, Plugin, Run, StepRun
from stepwell.plugins.hooks import report_failure
from stepwell.telemetry.jobs import RunsEnded
from stepwell.values.job import ClaimedJob

if TYPE_CHECKING:
    from stepwell.contrib.opentelemetry.gauges import Gauges

_MOST_KNOWN = 500
_TRACE_ID = context.create_key("stepwell-trace-id")
(_SPAN_KEY,) = trace.set_span_in_context(trace.INVALID_SPAN, NO_CONTEXT)
_NO_LINKS: list[Link] = []
_ASKED_TO_STOP = {"timeout": "failed", "cancel": "cancelled", "shutdown": "handed_back", "lease": "refused"}


class OpenTelemetry(Plugin):
    """A span for each enqueue, run and step, and metrics.

    The providers are the global ones unless given. The trace of an enqueue is kept with the job. Each run has a trace
    of its own that is linked to it; with `parent=True` the run of a single job is part of the trace instead. With
    `steps=False` steps have no spans. `propagator` is the global one unless given.
    """

    def __init__(
        self,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        parent: bool = False,
        steps: bool = True,
    ) -> None:
        self._traces = tracer_provider
        self._tracer = trace.get_tracer("stepwell", tracer_provider=tracer_provider)
        self._spans: RunSpans | None = None
        self._propagator = propagator
        self._parent = parent
        self._steps = steps
        self._server: dict[str, Any] = {}
        self._abouts: dict[str, dict[str, Any]] = {}
        self._origins = Origins(propagator, parent=parent)
        self._meters = meter_provider
        self._measures = True
        self._app: Any = None
        self._counts = False
        self._instruments = Instruments(metrics.get_meter("stepwell", meter_provider=meter_provider))
        self._gauges: Gauges | None = None
        self._around = _NO_LINKS

    def start_app(self, app: Any) -> None:
        """Find the address of the database, which spans name, and the providers, which may have been set by now."""
        if self._app is not None and self._app is not app:
            raise ConfigError("this OpenTelemetry() is the plugin of another app: make one for each app")
        self._app = app
        self._server = _server_of(app)
        self._tracer = trace.get_tracer("stepwell", tracer_provider=self._traces)
        self._spans = run_spans(self._tracer, self._process_about)
        # Without a provider, the numbers would go nowhere.
        provider = metrics.get_meter_provider() if self._meters is None else self._meters
        self._measures = not isinstance(provider, metrics.NoOpMeterProvider | _ProxyMeterProvider)
        if self._measures and not self._counts:
            # Not by `wanted_events`: without a provider, the event is not even made.
            self._counts = True
            app.events.subscribe(self._instruments.count_runs, (RunsEnded,))

    async def start_worker(self, worker: Any) -> None:
        """Report what the worker is doing, and what its database has. Runs are linked to the span around it."""
        self._around = _around()
        if self._gauges is None:
            from stepwell.contrib.opentelemetry.gauges import gauges_of  # a program that only enqueues needs no worker

            self._gauges = gauges_of(metrics.get_meter_provider() if self._meters is None else self._meters)
        self._gauges.add(self._app, worker)

    async def stop_worker(self, worker: Any) -> None:
        """Report it no more."""
        if self._gauges is not None:
            self._gauges.remove(self._app, worker)

    def wrap_enqueue(self, enqueue: Enqueue) -> AbstractContextManager[object]:
        """Make a producer span, and keep its trace with the jobs."""
        return self._enqueuing(enqueue)

    @contextmanager
    def _enqueuing(self, enqueue: Enqueue) -> Generator[None]:
        # A job in the caller's transaction is not sent before that commits, and never if it is rolled back.
        operation = "schedule" if enqueue.scheduled else "create" if enqueue.in_transaction else "send"
        known = self._about(operation, "send" if operation == "send" else "create", enqueue.queue)
        attributes = dict(known)
        if enqueue.task is not None:
            attributes["stepwell.task"] = enqueue.task
        if enqueue.many:
            attributes["messaging.batch.message_count"] = enqueue.count
        if enqueue.parent_id is not None:
            attributes["stepwell.parent_id"] = enqueue.parent_id
        span = self._tracer.start_span(
            f"{operation} {enqueue.queue or '(several queues)'}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        token = context.attach(trace.set_span_in_context(span))
        began = perf_counter()
        try:
            sampled = span.get_span_context().trace_flags.sampled
            # An unsampled trace is worth keeping only where a run would be part of it.
            if sampled or self._parent or baggage.get_all():
                self._inject(enqueue.headers)
            yield
        except BaseException as error:
            known["error.type"] = mark_failed(span, error)
            raise
        else:
            if not enqueue.many and enqueue.job_ids and span.is_recording():
                span.set_attribute("messaging.message.id", _MessageId(enqueue.job_ids[0]))
        finally:
            context.detach(token)
            span.end()
            self._instruments.enqueued(enqueue.count, perf_counter() - began, known)

    def wants_run(self, job: ClaimedJob) -> bool:
        """Decide whether the run is sampled. One that is not has a span that does nothing, and needs no more."""
        spans = self._spans
        if spans is None or spans.samples_every or self._measures:
            return True
        if job.policy is not None and (self._parent or self._origins.links_and_context(job.policy)[1]):
            return True  # it may have a parent, or has baggage
        trace_id = spans.new_trace_id()
        if spans.samples(trace_id):
            context.attach(context.set_value(_TRACE_ID, trace_id))
            return True
        # As `set_span_in_context` does, which takes twice as long. It is not detached: the context ends with the run.
        context.attach(TraceContext({_SPAN_KEY: UnsampledSpan(spans, trace_id)}))
        return False

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:
        """Make a consumer span that is linked to the producer's."""
        try:
            span, above, copied_by = self._start_run(run)
        except Exception as error:
            # A sampler or span processor failed: the run must not.
            self._ignore(error)
            await call()
            return
        token = context.attach(TraceContext({**above, _SPAN_KEY: span}))
        began = perf_counter()
        raised: BaseException | None = None
        try:
            await call()
        except BaseException as error:
            raised = error
            raise
        finally:
            context.detach(token)
            try:
                self._end_run(run, span, copied_by, raised, perf_counter() - began)
            except Exception as error:
                self._ignore(error)

    def _ignore(self, error: Exception) -> None:
        report_failure(self._app.events, (self,), "wrap_run", error)

    def _start_run(self, run: Run) -> tuple[Span, TraceContext, RunSpans | None]:
        """Start the span of a run. Return it, the context in which it begins, and what has made it by copying."""
        job, jobs = run.job, run.jobs
        if len(jobs) > 1:
            attributes: dict[str, Any] = {"messaging.batch.message_count": len(jobs)}
            links, above = self._origins.of_batch(jobs)
            links += self._around
        else:
            message_id = _MessageId(job.id)
            enqueued, above = self._origins.links_and_context(job.policy)
            links = enqueued + self._around if self._around else enqueued
            if (spans := self._spans) is not None and not (self._parent and enqueued):
                known: Any = None if spans.samples_every else context.get_value(_TRACE_ID)
                trace_id = known or spans.new_trace_id()
                if spans.samples_every or spans.samples(trace_id):
                    return spans.start(trace_id, run, message_id, links, above), above, spans
                return UnsampledSpan(spans, trace_id), above, None
            attributes = {"messaging.message.id": message_id}
        attributes |= {**self._process_about(job.queue), "stepwell.task": job.task, "stepwell.attempt": run.attempt}
        span = self._tracer.start_span(
            f"process {job.queue}", above, SpanKind.CONSUMER, attributes, links, record_exception=False
        )
        return span, above, None

    def _end_run(
        self, run: Run, span: Span, copied_by: RunSpans | None, raised: BaseException | None, seconds: float
    ) -> None:
        error_type: str | None = None
        outcome = run.outcome or "failed"
        if run.stop_reason is not None and outcome != "succeeded":
            outcome = _ASKED_TO_STOP[run.stop_reason]
        if raised is not None:
            if run.stop_reason is None:
                error_type = mark_failed(span, raised, job_id=run.job_id)
            elif run.stop_reason == "timeout":
                error_type = mark_failed(span, raised, "timeout")
            else:
                error_type = run.stop_reason
        if span.is_recording():
            if copied_by is not None:
                copied_by.end(span, outcome)
            else:
                span.set_attribute("stepwell.outcome", outcome)
                span.end()
        if self._measures:
            known = self._process_about(run.queue)
            if error_type is not None:
                known = {**known, "error.type": error_type}
            self._instruments.ran(len(run.jobs), seconds, known)

    def wrap_step(self, step: StepRun) -> AbstractContextManager[object]:
        """Make a span of a step. What its function does is part of it."""
        return self._in_step(step)

    @contextmanager
    def _in_step(self, step: StepRun) -> Generator[None]:
        if not self._steps:
            yield
            return
        attributes = {"stepwell.step": step.key, "stepwell.task": step.job.task}
        name = step.key.partition("#")[0]
        span = self._tracer.start_span(f"step {name}", attributes=attributes, record_exception=False)
        token = context.attach(trace.set_span_in_context(span))
        try:
            yield
        except BaseException as error:
            mark_failed(span, error)
            raise
        finally:
            context.detach(token)
            span.end()

    def _about(self, name: str, kind: str, queue: str | None) -> dict[str, Any]:
        about = {
            "messaging.system": "stepwell",
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            **self._server,
        }
        if queue is not None:
            about["messaging.destination.name"] = queue
        return about

    def _inject(self, headers: dict[str, str]) -> None:
        if self._propagator is None:
            propagate.inject(headers)
        else:
            self._propagator.inject(headers)  # pyright: ignore[reportArgumentType] its default suits a dict

    def _process_about(self, queue: str) -> dict[str, Any]:
        known = self._abouts.get(queue)
        if known is None:
            if len(self._abouts) >= _MOST_KNOWN:
                self._abouts.clear()
            known = self._abouts[queue] = self._about("process", "process", queue)
        return known


def _around() -> list[Link]:
    """A link to the span in which the worker was started, if there is one. It is no parent: it outlasts all runs."""
    span = context.get_current().get(_SPAN_KEY)
    if not isinstance(span, Span) or not (found := span.get_span_context()).is_valid:
        return _NO_LINKS
    return [Link(found)]


class _MessageId(str):
    """The id of a job as an attribute, which must be text. `JobHandle.id` is a UUID, and equals this."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, str(other) if isinstance(other, UUID) else other)

    __hash__ = str.__hash__


def _server_of(app: Any) -> dict[str, Any]:
    """The address of the database as attributes; nothing if it is embedded or on a socket."""
    from psycopg import conninfo

    database = app.database
    if database.is_embedded:
        return {}
    parts = conninfo.conninfo_to_dict(database.dsn)
    host = str(parts.get("host") or "")
    if not host or host.startswith("/"):
        return {}
    port = str(parts.get("port") or "5432").partition(",")[0]
    return {"server.address": host.partition(",")[0], "server.port": int(port)}


__all__ = ["OpenTelemetry"]
