"""Where a job came from: the link to its enqueue, and the context that its run begins in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry import baggage, propagate, trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context as TraceContext
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link

from stepwell.values.headers import read_headers
from stepwell.values.job import ClaimedJob

NO_CONTEXT = TraceContext()
_NO_LINKS: list[Link] = []
_MOST_KNOWN = 500


class Origins:
    """Reads the headers of jobs. With `parent`, the context of a run has the span of its enqueue."""

    def __init__(self, propagator: TextMapPropagator | None, *, parent: bool) -> None:
        self._propagator = propagator
        self._parent = parent
        self._known: dict[str, tuple[list[Link], TraceContext]] = {}

    def links_and_context(self, policy: str | None) -> tuple[list[Link], TraceContext]:
        """The link to the enqueue of a job, and the context in which the span of its run begins."""
        if policy is None:
            return _NO_LINKS, NO_CONTEXT
        known = self._known.get(policy)  # jobs that were enqueued together have the same
        if known is None:
            links, above = _NO_LINKS, NO_CONTEXT
            if headers := read_headers(policy):
                found = self._extract(headers)
                sent = trace.get_current_span(found).get_span_context()
                links = [Link(sent, BoundedAttributes())] if sent.is_valid else links
                above = found if self._parent else _without_span(found)
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[policy] = links, above
        return known

    def of_batch(self, jobs: Sequence[ClaimedJob]) -> tuple[list[Link], TraceContext]:
        """The links to the enqueues of a batch, each once. Its span has no parent: it may have many."""
        links = {link.context.span_id: link for job in jobs for link in self.links_and_context(job.policy)[0]}
        return list(links.values()), NO_CONTEXT

    def _extract(self, headers: Mapping[str, str]) -> TraceContext:
        if self._propagator is None:
            return propagate.extract(headers, NO_CONTEXT)
        return self._propagator.extract(headers, NO_CONTEXT)


def _without_span(found: TraceContext) -> TraceContext:
    """The context without the span: a run has a trace of its own, but keeps the baggage."""
    kept = baggage.get_all(found)
    if not kept:
        return NO_CONTEXT
    above = NO_CONTEXT
    for name, value in kept.items():
        above = baggage.set_baggage(name, value, above)
    return above
