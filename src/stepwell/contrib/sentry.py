"""Errors and traces for Sentry: `App(plugins=[Sentry()])`, after `sentry_sdk.init(...)`.

A job that has failed for good is an error, with its exception. An attempt that is tried again is none.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from stepwell.errors import ConfigError
from stepwell.errors.text import how_to_install
from stepwell.plugins import Enqueue, Plugin, Run
from stepwell.plugins.hooks import report_failure
from stepwell.telemetry.bus import JobEvent, Telemetry, logger
from stepwell.telemetry.jobs import AttemptFailed, HandlerAbandoned, JobBroken, OutcomeKept, RescuedJobFailed
from stepwell.telemetry.plugins import PluginFailed
from stepwell.telemetry.steps import UndoFailed
from stepwell.telemetry.worker import HookFailed, LeaseLost, LoopFailed

try:
    import sentry_sdk
    from sentry_sdk import Scope
    from sentry_sdk.integrations.logging import ignore_logger
except ImportError:
    raise ConfigError(f"errors in Sentry need sentry-sdk: {how_to_install('sentry')}") from None

_MOST_SCOPES = 1000


class Sentry(Plugin):
    """Reports jobs that fail for good, with the breadcrumbs and tags of their last run, and Stepwell's own errors.

    With tracing on, an enqueue is a span `queue.publish`, and a run is a transaction `queue.process` in the same trace.
    The logger `stepwell` is left out of Sentry's integration for logging, which would report the same errors again.
    What is logged there at the level ERROR and is no event is reported, too.
    """

    wanted_events = (
        AttemptFailed,
        RescuedJobFailed,
        JobBroken,
        HandlerAbandoned,
        OutcomeKept,
        UndoFailed,
        HookFailed,
        LeaseLost,
        LoopFailed,
        PluginFailed,
    )

    def __init__(self) -> None:
        self._app: Any = None
        self._scopes: dict[str, Scope] = {}

    def start_app(self, app: Any) -> None:
        """Keep the log of Stepwell out of Sentry's own integration."""
        if self._app is not None and self._app is not app:
            raise ConfigError("this Sentry() is the plugin of another app: make one for each app")
        self._app = app
        ignore_logger(logger.name)
        # A handler would be the first one in a program that configures no logging. Python would then no longer print
        # warnings and errors of Stepwell.
        logger.addFilter(_report_record)

    def on_event(self, event: Telemetry) -> None:
        """Report an error. It is reported in the scope of its run, which ends here."""
        is_attempt = isinstance(event, AttemptFailed)
        scope = self._scopes.pop(event.job_id, None) if is_attempt else None
        if event.final if is_attempt else event.own_level >= logging.ERROR:
            try:
                self._report(event, scope)
            except Exception:
                # A failed subscriber is not called again. The next error may go through.
                logger.exception("Sentry was not told of %s", type(event).__name__)

    def _report(self, event: Telemetry, scope: Scope | None) -> None:
        with sentry_sdk.new_scope() as current:
            if isinstance(event, JobEvent):
                _describe(current, event.job_id, event.task, event.queue, event.attempt)
            current.set_level("error")
            exception = getattr(event, "exception", None)
            crumbs: Any = {}
            if scope is not None:
                left: Any = scope._breadcrumbs  # pyright: ignore[reportPrivateUsage]
                crumbs = {"breadcrumbs": {"values": list(left)}}
            if scope is not None:
                current.update_from_scope(scope)
            if isinstance(event, AttemptFailed) and exception is None:
                # It was raised in another process, and only its text came back.
                current.set_extra("traceback", event.traceback)
                values = [{"type": event.type, "value": event.message}]
                made: Any = {"level": "error", "exception": {"values": values}, **crumbs}
                sentry_sdk.capture_event(made, scope=current)
            elif exception is not None:

                def add_crumbs(made: Any, _: Any) -> Any:
                    return {**made, **crumbs}

                current.add_event_processor(add_crumbs)
                sentry_sdk.capture_exception(exception, scope=current)
            else:
                current.set_extra("event", type(event).__name__)
                if (detail := event.detail()) is not None:
                    current.set_extra("traceback", detail)
                sentry_sdk.capture_message(event.text(), level="error", scope=current)

    def wrap_enqueue(self, enqueue: Enqueue) -> AbstractContextManager[object]:
        """Make a span, and keep its trace with the jobs."""
        return self._enqueuing(enqueue)

    @contextmanager
    def _enqueuing(self, enqueue: Enqueue) -> Generator[None]:
        name = enqueue.task or "(several tasks)"
        with sentry_sdk.start_span(op="queue.publish", name=name) as span:
            traceparent, baggage = sentry_sdk.get_traceparent(), sentry_sdk.get_baggage()
            if traceparent:
                enqueue.headers["sentry-trace"] = traceparent
            if baggage:
                enqueue.headers.setdefault("baggage", baggage)
            yield
            span.set_data("messaging.destination.name", enqueue.queue or "(several queues)")
            if len(enqueue.job_ids) == 1:
                span.set_data("messaging.message.id", enqueue.job_ids[0])

    async def wrap_run(self, run: Run, call: Callable[[], Awaitable[None]]) -> None:
        """Run the handler in a scope and a transaction of its own."""
        entered = contextlib.ExitStack()
        try:
            scope, span = _enter(run, entered)
        except Exception as error:
            # The SDK calls functions of the user's, such as `traces_sampler`. The run must not fail with them.
            entered.close()
            self._ignore(error)
            await call()
            return
        raised = False
        try:
            await call()
        except BaseException:
            raised = True
            raise
        finally:
            try:
                self._end_run(run, scope, span, raised=raised)
                entered.close()
            except Exception as error:
                self._ignore(error)

    def _end_run(self, run: Run, scope: Scope, span: Any, *, raised: bool) -> None:
        if not raised:
            span.set_status("ok")
        elif run.stop_reason in (None, "timeout"):
            span.set_status("internal_error" if run.stop_reason is None else "deadline_exceeded")
            # For the event about the failed attempt, which comes when the run has ended.
            for job in run.jobs:
                self._scopes[job.id] = scope
            while len(self._scopes) > _MOST_SCOPES:
                self._scopes.pop(next(iter(self._scopes)))
        else:
            span.set_status("cancelled")

    def _ignore(self, error: Exception) -> None:
        report_failure(self._app.events, (self,), "wrap_run", error)


def _enter(run: Run, entered: contextlib.ExitStack) -> tuple[Scope, Any]:
    scope = entered.enter_context(sentry_sdk.isolation_scope())
    _describe(scope, run.job_id, run.task, run.queue, run.attempt)
    scope.clear_breadcrumbs()
    transaction = sentry_sdk.continue_trace(
        dict(run.headers), op="queue.process", name=run.task, source="task", origin="auto.queue.stepwell"
    )
    span = entered.enter_context(sentry_sdk.start_transaction(transaction))
    span.set_data("messaging.message.id", run.job_id)
    span.set_data("messaging.destination.name", run.queue)
    if (waited := run.waited) is not None:
        span.set_data("messaging.message.receive.latency", waited * 1000)
    span.set_data("messaging.message.retry.count", run.attempt - 1)
    return scope, span


_REPORTED = {kind.__name__ for kind in Sentry.wanted_events or ()}


def _report_record(record: logging.LogRecord) -> bool:
    """Report an error that was only logged: the plugin hears of no such event, or it is none."""
    if record.levelno >= logging.ERROR and getattr(record, "event", None) not in _REPORTED:
        # Whoever logs must not be harmed.
        with contextlib.suppress(Exception), sentry_sdk.new_scope() as scope:
            scope.set_level("error")
            scope.set_extra("message", record.getMessage())
            if record.exc_info and record.exc_info[1] is not None:
                sentry_sdk.capture_exception(record.exc_info, scope=scope)
            else:
                sentry_sdk.capture_message(record.getMessage(), level="error", scope=scope)
    return True


def _describe(scope: Scope, job_id: str, task: str, queue: str, attempt: int) -> None:
    scope.set_tag("stepwell.task", task)
    scope.set_tag("stepwell.queue", queue)
    scope.set_context("stepwell", {"job_id": job_id, "task": task, "queue": queue, "attempt": attempt})


__all__ = ["Sentry"]
