"""Spans of runs that begin a trace, made by copying a span of the SDK.

`Tracer.start_span` takes longer than a whole run that does little. The runs of a task have spans that differ in a few
fields, and copying a span while setting these fields takes a third of the time. A run that is not sampled has a span
whose ids are made when somebody asks for them.

A copy sets private fields of the SDK. So `run_spans` compares two spans that the SDK has made: if they differ in other
fields than those which a copy sets, or the sampler decides by more than the trace id, it returns None. Then the tracer
makes all spans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from threading import Lock
from time import time_ns
from typing import Any, cast

from opentelemetry.context import Context as TraceContext
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, Tracer

from stepwell.plugins import Run

_SET_ANEW = {"_context", "_lock", "_attributes", "_events", "_links", "_start_time"}
_FEWEST_ATTRIBUTES = 32
_MOST_TEMPLATES = 500
_PLACE = 2**64 - 1
_EVERY = 2**64


class UnsampledSpan(NonRecordingSpan):
    """The span of a run that is not sampled. Most handlers never ask for its ids."""

    _made: SpanContext | None = None

    def __init__(self, spans: RunSpans, trace_id: int) -> None:
        self._spans = spans
        self._trace_id = trace_id

    def get_span_context(self) -> SpanContext:
        if self._made is None:
            self._made = self._spans.context_of(self._trace_id, sampled=False)
        return self._made

    def __repr__(self) -> str:
        return f"UnsampledSpan({self.get_span_context()!r})"


class RunSpans:
    """Makes the spans of runs that have no parent. The sampler samples a trace if its id is below a bound."""

    def __init__(self, tracer: Any, bound: int, flags: TraceFlags, about: Callable[[str], Mapping[str, Any]]) -> None:
        self._tracer = tracer
        self._about = about
        self._processor = tracer.span_processor
        self._bound = bound
        self._sampled = flags
        self._unsampled = TraceFlags(flags & ~TraceFlags.SAMPLED)
        self._templates: dict[tuple[str, str], _Template] = {}
        self.new_trace_id = tracer.id_generator.generate_trace_id
        self._new_span_id = tracer.id_generator.generate_span_id
        self.samples_every = bound >= _EVERY

    def samples(self, trace_id: int) -> bool:
        return trace_id & _PLACE < self._bound

    def context_of(self, trace_id: int, *, sampled: bool) -> SpanContext:
        """A new span context in this trace."""
        return SpanContext(trace_id, self._new_span_id(), False, self._sampled if sampled else self._unsampled)

    def start(self, trace_id: int, run: Run, message_id: str, links: Sequence[Link], above: TraceContext) -> Span:
        """Start the span of a run that is sampled. It has no parent."""
        job = run.job
        template = self._templates.get((job.task, job.queue)) or self._new_template(job.task, job.queue)
        span: Any = object.__new__(template.kind)
        span.__dict__ = fields = template.fields.copy()
        fields["_context"] = self.context_of(trace_id, sampled=True)
        fields["_lock"] = Lock()
        fields["_attributes"] = own = _copied(template.attributes, "_dict")
        own._dict["stepwell.attempt"] = run.attempt
        own._dict["messaging.message.id"] = message_id
        fields["_events"] = _copied(template.events, "_dq")
        fields["_links"] = linked = _copied(template.links, "_dq")
        linked._dq.extend(links)
        fields["_start_time"] = time_ns()
        self._processor.on_start(span, parent_context=above)
        return span

    def end(self, span: Any, outcome: str) -> None:
        """End a span that `start` has started."""
        own = span._attributes
        if own.maxlen is None or len(own._dict) < own.maxlen:
            own._dict["stepwell.outcome"] = outcome
        else:
            span.set_attribute("stepwell.outcome", outcome)
        span.end()

    def _new_template(self, task: str, queue: str) -> _Template:
        if len(self._templates) >= _MOST_TEMPLATES:
            self._templates.clear()
        made = _Template(self._tracer, f"process {queue}", {**self._about(queue), "stepwell.task": task})
        self._templates[task, queue] = made
        return made


class _Template:
    """What to copy of a span that the SDK has made."""

    __slots__ = ("attributes", "events", "fields", "kind", "links")

    def __init__(self, tracer: Any, name: str, about: Mapping[str, Any]) -> None:
        made: Any = _new_span(_quiet(tracer), name, about)
        self.kind: Any = type(made)
        own = {"_sampler": tracer.sampler, "_span_processor": tracer.span_processor}
        self.fields: dict[str, Any] = {**vars(made), **own}
        self.attributes: Any = made._attributes
        self.events: Any = made._events
        self.links: Any = made._links


def run_spans(tracer: Tracer, about: Callable[[str], Mapping[str, Any]]) -> RunSpans | None:
    """Spans of runs for this tracer, or None if it must make them itself. `about` returns the attributes of the runs of
    a queue."""
    try:
        from opentelemetry.sdk import trace as sdk
    except ImportError:
        return None
    if type(tracer) is not sdk.Tracer:
        return None
    bound = _bound_of(tracer.sampler)
    if bound is None:
        return None
    quiet = _quiet(tracer)
    one, other = (_new_span(quiet, "probe", {"probe": "probe"}) for _ in range(2))
    if not (_may_copy(one, other, _SET_ANEW) and _may_copy(one._attributes, other._attributes, {"_dict", "_lock"})):
        return None
    if not all(_may_copy(vars(one)[name], vars(other)[name], {"_dq", "_lock"}) for name in ("_events", "_links")):
        return None
    # A copy does not count or cut its attributes.
    limits = one._attributes
    if limits.max_value_len is not None or (limits.maxlen is not None and limits.maxlen < _FEWEST_ATTRIBUTES):
        return None
    return RunSpans(tracer, bound, one.get_span_context().trace_flags, about)


def _quiet(tracer: Any) -> Any:
    """The tracer without its sampler and span processors: what it makes goes nowhere."""
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    quiet = copy(tracer)
    quiet.sampler, quiet.span_processor = ALWAYS_ON, SpanProcessor()
    return quiet


def _new_span(quiet: Any, name: str, attributes: Mapping[str, Any]) -> Any:
    return quiet.start_span(name, TraceContext(), SpanKind.CONSUMER, attributes, record_exception=False)


def _copied(original: Any, items: str) -> Any:
    kind = cast("type[Any]", type(original))  # pyright: ignore[reportUnknownArgumentType]
    made = object.__new__(kind)
    made.__dict__ = fields = cast("dict[str, Any]", vars(original)).copy()
    fields[items] = fields[items].copy()
    fields["_lock"] = Lock()
    return made


def _may_copy(one: Any, other: Any, set_anew: set[str]) -> bool:
    """Whether two objects share all their fields but these, which they have."""
    mine, theirs = getattr(one, "__dict__", {}), getattr(other, "__dict__", {})
    differ = {name for name, value in mine.items() if theirs.get(name, mine) is not value}
    return set_anew <= set(mine) and mine.keys() == theirs.keys() and differ <= set_anew


def _bound_of(sampler: Any) -> int | None:
    """The trace ids below this are sampled, by their last 64 bits; None: the sampler does not decide by them alone."""
    from opentelemetry.sdk.trace import sampling

    if type(sampler) in (sampling.ParentBased, sampling.ParentBasedTraceIdRatio):
        sampler = getattr(sampler, "_root", None)
    if sampler is sampling.ALWAYS_ON:
        return _EVERY
    if sampler is sampling.ALWAYS_OFF:
        return 0
    return sampler.bound if type(sampler) is sampling.TraceIdRatioBased else None
