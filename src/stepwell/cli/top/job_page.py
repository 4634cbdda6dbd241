"""One job as text, for the window of `stepwell top`."""

from __future__ import annotations

import json
from typing import Any

from rich.text import Text

from stepwell.cli.output import STYLES, clean, compact
from stepwell.cli.top.tables import progress_text
from stepwell.cli.top.view import Record
from stepwell.postgres.queries.reads import value_of
from stepwell.values.job import FINISHED
from stepwell.values.why import Why
from stepwell.web.wording import ago, exact

_LONGEST = 4000


def job_text(job: Record, why: Why | None) -> Text:
    """The fields that matter, why it waits, and the last traceback. Fields that STEPWELL_REDACT names are hidden."""
    text = Text()

    def field(name: str, value: object, style: str = "") -> None:
        if value not in (None, ""):
            text.append(f"{name:<12}", "bold").append(clean(str(value)[:_LONGEST], lines=True) + "\n", style)

    now = job["now"]
    field("job", job["id"])
    field("task", job["task"])
    field("queue", job["queue"])
    field("state", job["state"] + (", asked to stop" if job["cancelling"] else ""), STYLES.get(job["state"], ""))
    if why is not None and job["state"] not in FINISHED:
        field("why", " ".join(part for part in (why.cause.replace("_", " "), why.subject) if part))
        field("next", why.next_act)
    field("attempt", job["attempt"] if job["max_attempts"] is None else f"{job['attempt']} of {job['max_attempts']}")
    field("progress", progress_text(job["progress"]))
    for name, at in (
        ("enqueued", "enqueued_at"),
        ("due", "run_at"),
        ("claimed", "claimed_at"),
        ("ended", "finished_at"),
    ):
        if job[at]:
            field(name, f"{exact(job[at])}  ({ago(job[at], now)})")
    if job["worker"]:
        field("worker", f"{job['worker']['host']}:{job['worker']['pid']}")
    field("steps", job["steps"] or None)
    field("args", _value(job["args"], job["args_size"]))
    field("metadata", _value(job["metadata"]))
    field("result", _value(job["result"], job["result_size"]))
    field("error", job["error"], "red")
    for failure in job["failures"][:1]:
        text.append(f"\nattempt {failure['attempt']} failed {ago(failure['failed_at'], now)}\n", "bold")
        said = failure["traceback"] or f"{failure['type']}: {failure['message']}"
        text.append(clean(str(said), lines=True))
    return text


def _value(stored: str | None, size: int | None = None) -> str | None:
    if stored is None:
        return None if not size else f"({size:,} bytes: see it with stepwell jobs show)"
    try:
        value: Any = value_of(stored)
        return compact(value)
    except (ValueError, RecursionError, json.JSONDecodeError):
        return "(it cannot be decoded)"
