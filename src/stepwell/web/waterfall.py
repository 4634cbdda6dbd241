"""The steps of a job as a waterfall: when each ran, drawn on one line of time from which long idle times are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from stepwell.web.wording import to_time

WIDTH = 1000.0
_LEAST = 3.0
# An idle time of more than this share of the busy time is drawn as a gap of this share.
_GAP = 0.08
_LEAST_IDLE = 1.0


@dataclass(frozen=True, slots=True)
class StepBar:
    """A step and its bar, and the idle seconds before it, if they were cut."""

    step: dict[str, Any]
    x: float
    width: float
    kind: str
    """The colour: done, failed, pending or waited."""
    seconds: float | None
    idle: float | None = None


@dataclass(slots=True)
class _Span:
    step: dict[str, Any]
    start: float
    end: float
    idle: float | None = None
    place: float = 0.0
    size: float = field(default=0.0)


def waterfall(steps: Sequence[dict[str, Any]], now: Any, *, finished: bool) -> list[StepBar]:
    """Place each step. A step that waits still, of a job that has not ended, goes on until now."""
    spans = _spans(steps, now, finished=finished)
    if not spans:
        return []
    busy = _cut_idle(spans)
    scale = WIDTH / busy if busy > 0 else 0.0
    return [
        StepBar(
            span.step,
            round(min(span.place * scale, WIDTH - _LEAST), 1),
            round(max(span.size * scale, _LEAST), 1),
            _kind(span.step),
            span.end - span.start,
            span.idle,
        )
        for span in spans
    ]


def _spans(steps: Sequence[dict[str, Any]], now: Any, *, finished: bool) -> list[_Span]:
    present = to_time(now)
    found: list[_Span] = []
    for step in steps:
        saved = to_time(step["saved_at"])
        if saved is None:
            continue
        seconds = step["seconds"]
        if step["pending"]:
            # A wait is saved when it begins.
            end = present if present is not None and not finished else saved
            found.append(_Span(step, saved.timestamp(), max(end, saved).timestamp()))
        elif step["kind"] in ("sleep", "wait", "receive", "child") and seconds is None:
            until = to_time(step["until"]) if step["kind"] == "sleep" else None
            end = until if until is not None and until < (present or until) else saved
            found.append(_Span(step, saved.timestamp(), max(end, saved).timestamp()))
        else:
            begin = saved - timedelta(seconds=max(seconds or 0.0, 0.0)) if _fits(seconds) else saved
            found.append(_Span(step, begin.timestamp(), saved.timestamp()))
    return found


def _fits(seconds: float | None) -> bool:
    return seconds is not None and 0 <= seconds < timedelta(days=36500).total_seconds()


def _cut_idle(spans: list[_Span]) -> float:
    """Give each span its place on a line without long idle times, and return the length of that line. Steps may run at
    the same time, and are in the order in which the job came to them."""
    in_time = sorted(spans, key=lambda span: (span.start, span.end))
    busy = 0.0
    reached = in_time[0].start
    for span in in_time:
        busy += max(span.end - max(span.start, reached), 0.0) if not _is_idle(span.step) else 0.0
        reached = max(reached, span.end)
    gap = max(busy * _GAP, 0.001)
    cut = 0.0
    reached = in_time[0].start
    origin = in_time[0].start
    for span in in_time:
        before = span.start - reached
        if before > gap:
            cut += before - gap
            span.idle = before if before > _LEAST_IDLE else None
        length = span.end - span.start
        if _is_idle(span.step) and length > gap:
            span.place, span.size = span.start - origin - cut, gap
            if span.end > reached:
                cut += span.end - max(reached, span.start) - gap
        else:
            span.place, span.size = max(span.start - origin - cut, 0.0), length
        reached = max(reached, span.end)
    return max(max(span.place + span.size for span in spans), 0.001)


def _is_idle(step: dict[str, Any]) -> bool:
    return step["pending"] or step["kind"] in ("sleep", "wait", "receive", "child")


def _kind(step: dict[str, Any]) -> str:
    if step["error"]:
        return "failed"
    if step["pending"]:
        return "pending"
    return "waited" if _is_idle(step) else "done"
