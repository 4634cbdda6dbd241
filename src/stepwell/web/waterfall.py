"""The steps of a job as a waterfall: when each ran, drawn on one line of time from which long idle times are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

from stepwell.web.wording import to_time

WIDTH = 1000.0
_LEAST = 3.0
# An idle time of more than this share of the busy time is drawn as a gap of this share. All gaps together are drawn no
# longer than the busy time.
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
    size: float = 0.0


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
        elif _is_idle(step) and seconds is None:
            until = to_time(step["until"]) if step["kind"] == "sleep" or step["timed_out"] else None
            end = until if until is not None and until <= (present or until) else saved
            found.append(_Span(step, saved.timestamp(), max(end, saved).timestamp()))
        else:
            begin = saved - timedelta(seconds=max(seconds or 0.0, 0.0)) if _fits(seconds) else saved
            found.append(_Span(step, begin.timestamp(), saved.timestamp()))
    return found


def _fits(seconds: float | None) -> bool:
    return seconds is not None and 0 <= seconds < timedelta(days=36500).total_seconds()


def _cut_idle(spans: list[_Span]) -> float:
    """Give each span its place on a line without long idle times, and return the length of that line. Steps may run at
    the same time, and are in the order in which the job came to them. A stretch of time is idle if nothing but waits
    is in it, so a step that ran during a wait is drawn within it, and what came later behind both."""
    moments = sorted({moment for span in spans for moment in (span.start, span.end)})
    busy = [(span.start, span.end) for span in spans if not _is_idle(span.step)]
    stretches = [(start, end, any(a <= start and end <= b for a, b in busy)) for start, end in pairwise(moments)]
    worked = sum(end - start for start, end, is_busy in stretches if is_busy)
    idle = sum(not is_busy for *_, is_busy in stretches)
    gap = max(worked * min(_GAP, 1 / max(idle, 1)), 0.001)
    places = {moments[0]: 0.0}
    for start, end, is_busy in stretches:
        places[end] = places[start] + (end - start if is_busy else min(end - start, gap))
    reached = moments[0]
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        before = span.start - reached
        span.idle = before if before > max(gap, _LEAST_IDLE) else None
        span.place, span.size = places[span.start], places[span.end] - places[span.start]
        reached = max(reached, span.end)
    return max(places[moments[-1]], 0.001)


def _is_idle(step: dict[str, Any]) -> bool:
    return step["pending"] or step["kind"] in ("sleep", "wait", "receive", "child")


def _kind(step: dict[str, Any]) -> str:
    if step["error"]:
        return "failed"
    if step["pending"]:
        return "pending"
    return "waited" if _is_idle(step) else "done"
