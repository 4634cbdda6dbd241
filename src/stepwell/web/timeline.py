"""The life of a job as phases: in which state it was, and for how long, as far as its row tells."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepwell.web.wording import between, to_time


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of time: what the job did, for how many seconds, and its place on a line of 1,000 units."""

    name: str
    state: str
    """The state whose colour it has."""
    begin: Any
    seconds: float
    x: float = 0.0
    width: float = 0.0


_LEAST = 14.0


def phases_of(job: dict[str, Any], now: Any) -> list[Phase]:
    """The phases in their order, drawn so that the shortest can still be seen."""
    found = [phase for phase in _phases(job, now) if phase is not None]
    total = sum(phase.seconds for phase in found) or 1.0
    room = 1000.0 - _LEAST * len(found)
    x, placed = 0.0, list[Phase]()
    for phase in found:
        width = _LEAST + max(room, 0.0) * phase.seconds / total
        placed.append(Phase(phase.name, phase.state, phase.begin, phase.seconds, round(x, 1), round(width - 2, 1)))
        x += width
    return placed


def _phases(job: dict[str, Any], now: Any) -> Iterator[Phase | None]:
    """The row has the time of the last claim only, and of the failed attempts the newest. The epoch counts the claims,
    so it tells what is missing between two of them: runs that were suspended, snoozed or handed back."""
    end = job["finished_at"] or now
    at, claims = job["enqueued_at"], 0
    for attempt in sorted((one for one in job["failures"] if one["claimed_at"]), key=lambda one: one["epoch"]):
        yield _gap(at, attempt["claimed_at"], claims, attempt["epoch"])
        yield _phase(f"attempt {attempt['attempt']} failed", "failed", attempt["claimed_at"], attempt["failed_at"])
        at, claims = attempt["failed_at"], attempt["epoch"]
    last = job["claimed_at"] if job["epoch"] > claims else None
    # Later, the time at which it is due is that of another run.
    due = job["run_at"] if not claims and job["epoch"] <= 1 else None
    if _earlier(at, due) and _earlier(due, last or end):
        yield _phase("delayed", "scheduled", at, due)
        at = due
    elif _earlier(at, due) and last is None:
        yield _phase("delayed", "scheduled", at, end)
        return
    if last is not None:
        yield _gap(at, last, claims, job["epoch"])
        ran = job["state"] if job["finished_at"] else "running"
        if job["state"] == "cancelled" and job["worker_id"] is None:
            yield _phase("ran and waited, cancelled", ran, last, end)
        elif job["state"] in ("running", "succeeded", "failed", "cancelled"):
            yield _phase("runs" if ran == "running" else f"ran, {ran}", ran, last, end)
        else:
            yield _phase("began; now " + job["state"], job["state"], last, end)
    elif claims and job["finished_at"] is None:
        yield _phase("waits to try again" if job["state"] == "scheduled" else job["state"], job["state"], at, now)
    elif claims and _earlier(at, end):
        yield _phase("waited to try again", "scheduled", at, end)
    elif not claims:
        yield _phase("waited for a worker" if job["finished_at"] else job["state"], job["state"], at, end)


def _gap(at: Any, claimed_at: Any, claims: int, epoch: int) -> Phase | None:
    """What was before a claim, seen from the last claim that is known."""
    if epoch > claims + 1:
        return _phase("earlier runs and waits", "waiting", at, claimed_at)
    if claims:
        return _phase("waited to try again", "scheduled", at, claimed_at)
    return _phase("waited for a worker", "ready", at, claimed_at)


def _phase(name: str, state: str, begin: Any, end: Any) -> Phase | None:
    seconds = between(begin, end)
    return None if seconds is None else Phase(name, state, begin, seconds)


def _earlier(one: Any, other: Any) -> bool:
    first, second = to_time(one), to_time(other)
    return first is not None and second is not None and first < second
