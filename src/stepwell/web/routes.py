"""Every path of the dashboard: pages, which only read, and acts, each with the right that it needs.

A parameter or field that is not named here is refused: a filter with a wrong name would otherwise choose all jobs.
"""

from __future__ import annotations

from stepwell.web.access import Right
from stepwell.web.acts import bulk, enqueue, failures, fleet, jobs, saved_views, schedules, stack
from stepwell.web.dashboard import Handler
from stepwell.web.filters import NAMES
from stepwell.web.pages import (
    audit,
    database,
    export,
    job,
    limits,
    logs,
    new_job,
    overview,
    queues,
    tasks,
    workers,
)
from stepwell.web.pages import bulk as bulk_pages
from stepwell.web.pages import failures as failure_list
from stepwell.web.pages import jobs as job_list
from stepwell.web.pages import saved_views as saved_view_list
from stepwell.web.pages import schedules as schedule_list

_CHANGES = {
    "retry": ("step", "from_start"),
    "cancel": ("reason",),
    "run": (),
    "move": ("to", "priority", "run_at"),
    "delete": (),
}
# The form of the list of jobs has one field for all its buttons: the queue to move to.
_SELECTED = ("id", "to")
_CONFIRMED = (*NAMES, "count", "shown", "as_of", "more")
_SCHEDULE = ("owner", "name")

PAGES: list[tuple[str, tuple[str, ...], Handler]] = [
    ("/", ("range",), overview.show),
    ("/jobs", (*NAMES, "before", "offset", "limit", "patience"), job_list.show),
    ("/jobs/bulk", ("act", *NAMES), bulk_pages.preview),
    ("/jobs/export", ("format", *NAMES, "before"), export.export),
    ("/bulk", ("before", "limit"), bulk_pages.show_all),
    ("/bulk/{id:uuid}", ("back",), bulk_pages.show),
    ("/jobs/{id:uuid}", ("level",), job.show),
    ("/jobs/{id:uuid}/steps", ("offset", "limit"), job.steps),
    ("/jobs/{id:uuid}/children", ("offset", "limit"), job.children),
    ("/jobs/{id:uuid}/logs", ("level", "before", "after", "limit"), logs.show),
    ("/views", (), saved_view_list.show),
    ("/queues", ("name", "after", "limit", "range"), queues.show),
    ("/tasks", ("name", "after", "limit", "range"), tasks.show),
    ("/tasks/enqueue", ("task", "like"), new_job.show),
    ("/schedules", (*_SCHEDULE, "after_owner", "after", "limit"), schedule_list.show),
    ("/workers", ("before", "limit"), workers.show),
    ("/failures", ("state", "task", "sort", "after", "limit"), failure_list.show),
    ("/failures/{id:uuid}", (), failure_list.one),
    ("/audit", ("who", "act", "before", "limit"), audit.show),
    ("/limits", ("after", "limit"), limits.show),
    ("/database", (), database.show),
    ("/database/listener", (), database.listener),
]
"""Each with the parameters that its URL may have."""

ACTS: list[tuple[str, Right, tuple[str, ...], Handler]] = [
    ("/jobs/{id:uuid}/retry", "retry", _CHANGES["retry"], jobs.retry),
    ("/jobs/{id:uuid}/cancel", "cancel", _CHANGES["cancel"], jobs.cancel),
    ("/jobs/{id:uuid}/run", "run", _CHANGES["run"], jobs.run),
    ("/jobs/{id:uuid}/signal", "signal", ("name", "value"), jobs.signal),
    ("/jobs/{id:uuid}/args", "edit", ("args", "arg.", "as."), jobs.edit),
    ("/jobs/{id:uuid}/fork", "enqueue", ("step",), jobs.fork),
    ("/jobs/{id:uuid}/move", "move", _CHANGES["move"], jobs.move),
    ("/jobs/{id:uuid}/delete", "delete", _CHANGES["delete"], jobs.delete),
    ("/jobs/{id:uuid}/stack", "view", (), stack.stack),
    ("/jobs/retry", "retry", (*_SELECTED, *_CHANGES["retry"]), jobs.retry),
    ("/jobs/cancel", "cancel", (*_SELECTED, *_CHANGES["cancel"]), jobs.cancel),
    ("/jobs/run", "run", _SELECTED, jobs.run),
    ("/jobs/move", "move", (*_SELECTED, "priority", "run_at"), jobs.move),
    ("/jobs/delete", "delete", _SELECTED, jobs.delete),
    ("/bulk/retry", "retry", (*_CONFIRMED, "from_start"), bulk.start("retry")),
    ("/bulk/cancel", "cancel", (*_CONFIRMED, *_CHANGES["cancel"]), bulk.start("cancel")),
    ("/bulk/run", "run", _CONFIRMED, bulk.start("run")),
    ("/bulk/move", "move", (*_CONFIRMED, *_CHANGES["move"]), bulk.start("move")),
    ("/bulk/delete", "delete", _CONFIRMED, bulk.start("delete")),
    # It needs the right of what is stopped.
    ("/bulk/{id:uuid}/stop", "view", (), bulk.stop),
    ("/views/save", "save", ("name", *NAMES), saved_views.save),
    ("/views/delete", "save", ("name",), saved_views.delete),
    ("/queues/pause", "pause", ("queue",), fleet.pause_queue),
    ("/queues/resume", "pause", ("queue",), fleet.resume_queue),
    ("/queues/pause-all", "pause", (), fleet.pause_everything),
    ("/queues/resume-all", "pause", (), fleet.resume_everything),
    ("/tasks/pause", "pause", ("task",), fleet.pause_task),
    ("/tasks/resume", "pause", ("task",), fleet.resume_task),
    ("/schedules/pause", "pause", _SCHEDULE, schedules.pause),
    ("/schedules/resume", "pause", _SCHEDULE, schedules.resume),
    ("/schedules/trigger", "trigger", _SCHEDULE, schedules.trigger),
    ("/schedules/backfill", "trigger", (*_SCHEDULE, "since", "until", "expected"), schedules.backfill),
    ("/workers/quiet", "worker", ("worker",), fleet.quiet_worker),
    ("/workers/resume", "worker", ("worker",), fleet.resume_worker),
    ("/workers/stop", "worker", ("worker",), fleet.stop_worker),
    ("/tasks/enqueue", "enqueue", ("task", "arg.", "as.", *enqueue.OPTIONS, "like"), enqueue.enqueue),
    ("/failures/resolve", "triage", ("id",), failures.resolve),
    ("/failures/ignore", "triage", ("id",), failures.ignore),
    ("/failures/reopen", "triage", ("id",), failures.reopen),
]
"""Each with the right that it needs, and the fields that its form may have."""
