"""Every path of the dashboard: pages, which only read, and acts, each with the right that it needs."""

from __future__ import annotations

from stepwell.web.access import Right
from stepwell.web.acts import bulk, enqueue, failures, fleet, jobs, saved_views, schedules, stack
from stepwell.web.dashboard import Handler
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

PAGES: list[tuple[str, Handler]] = [
    ("/", overview.show),
    ("/jobs", job_list.show),
    ("/jobs/bulk", bulk_pages.preview),
    ("/jobs/export", export.export),
    ("/bulk", bulk_pages.show_all),
    ("/bulk/{id:uuid}", bulk_pages.show),
    ("/jobs/{id:uuid}", job.show),
    ("/jobs/{id:uuid}/steps", job.steps),
    ("/jobs/{id:uuid}/children", job.children),
    ("/jobs/{id:uuid}/logs", logs.show),
    ("/views", saved_view_list.show),
    ("/queues", queues.show),
    ("/tasks", tasks.show),
    ("/tasks/enqueue", new_job.show),
    ("/schedules", schedule_list.show),
    ("/workers", workers.show),
    ("/failures", failure_list.show),
    ("/failures/{id:uuid}", failure_list.one),
    ("/audit", audit.show),
    ("/limits", limits.show),
    ("/database", database.show),
    ("/database/listener", database.listener),
]

ACTS: list[tuple[str, Right, Handler]] = [
    ("/jobs/{id:uuid}/retry", "retry", jobs.retry),
    ("/jobs/{id:uuid}/cancel", "cancel", jobs.cancel),
    ("/jobs/{id:uuid}/run", "run", jobs.run),
    ("/jobs/{id:uuid}/signal", "signal", jobs.signal),
    ("/jobs/{id:uuid}/args", "edit", jobs.edit),
    ("/jobs/{id:uuid}/fork", "enqueue", jobs.fork),
    ("/jobs/{id:uuid}/move", "move", jobs.move),
    ("/jobs/{id:uuid}/delete", "delete", jobs.delete),
    ("/jobs/{id:uuid}/stack", "view", stack.stack),
    ("/jobs/retry", "retry", jobs.retry),
    ("/jobs/cancel", "cancel", jobs.cancel),
    ("/jobs/run", "run", jobs.run),
    ("/jobs/move", "move", jobs.move),
    ("/jobs/delete", "delete", jobs.delete),
    ("/bulk/retry", "retry", bulk.start("retry")),
    ("/bulk/cancel", "cancel", bulk.start("cancel")),
    ("/bulk/run", "run", bulk.start("run")),
    ("/bulk/move", "move", bulk.start("move")),
    ("/bulk/delete", "delete", bulk.start("delete")),
    # It needs the right of what is stopped.
    ("/bulk/{id:uuid}/stop", "view", bulk.stop),
    ("/views/save", "save", saved_views.save),
    ("/views/delete", "save", saved_views.delete),
    ("/queues/pause", "pause", fleet.pause_queue),
    ("/queues/resume", "pause", fleet.resume_queue),
    ("/queues/resume-all", "pause", fleet.resume_everything),
    ("/schedules/pause", "pause", schedules.pause),
    ("/schedules/resume", "pause", schedules.resume),
    ("/schedules/trigger", "trigger", schedules.trigger),
    ("/schedules/backfill", "trigger", schedules.backfill),
    ("/workers/quiet", "worker", fleet.quiet_worker),
    ("/workers/resume", "worker", fleet.resume_worker),
    ("/workers/stop", "worker", fleet.stop_worker),
    ("/tasks/enqueue", "enqueue", enqueue.enqueue),
    ("/failures/resolve", "triage", failures.resolve),
    ("/failures/ignore", "triage", failures.ignore),
    ("/failures/reopen", "triage", failures.reopen),
]
