"""One job, with all its fields, steps and failed attempts."""

from __future__ import annotations

from stepwell.cli.jobs.steps import print_steps
from stepwell.cli.output import clean, compact, fields, say
from stepwell.cli.wording import policy_text
from stepwell.errors.text import error_line
from stepwell.jobs.act_by_id import waits_of
from stepwell.values.duration import describe, local_time
from stepwell.values.job import Failure, JobInfo

_LONGEST_LINE = 100


def print_job(job: JobInfo) -> None:
    known = [
        ("id", job.id),
        ("state", _state(job)),
        ("waits for", "\n".join(waits_of(str(job.id), job.steps)) if job.state == "waiting" else None),
        ("task", clean(job.task)),
        ("queue", clean(job.queue)),
        ("owner", None if job.owner is None else clean(job.owner)),
        ("priority", job.priority),
        ("args", _json(job.args)),
        ("metadata", None if job.metadata is None else _json(job.metadata)),
        ("result", _json(job.result) if job.state == "succeeded" else None),
        ("error", job.error),
        ("progress", None if job.progress is None else _json(job.progress)),
        ("at step", None if job.cursor is None else clean(job.cursor)),
        ("parent", job.parent_id),
        ("forked from", job.forked_from),
        ("group", job.group_id),
        ("attempt", job.attempt if job.max_attempts is None else f"{job.attempt} of {job.max_attempts}"),
        ("policy", None if job.policy is None else policy_text(job.policy, job.max_attempts)),
        ("epoch", job.epoch),
        ("worker", job.worker_id),
        ("enqueued at", local_time(job.enqueued_at)),
        ("run at", local_time(job.run_at)),
        ("claimed at", local_time(job.claimed_at)),
        ("finished at", local_time(job.finished_at)),
        ("expires at", local_time(job.expires_at)),
    ]
    fields((name, value) for name, value in known if value is not None and value != "")
    if job.steps:
        say("")
        print_steps(job, job.steps)
    for failure in job.failures:
        say("", f"attempt {failure.attempt} failed at {local_time(failure.failed_at)}{_lasted(failure)}")
        detail = [
            ("reason", clean(failure.reason)),
            ("epoch", failure.epoch),
            ("worker", failure.worker_id),
            ("error", error_line(failure.type, failure.message)),
            ("traceback", failure.traceback and failure.traceback.rstrip("\n")),
        ]
        fields((f"  {name}", value) for name, value in detail if value is not None)


def _state(job: JobInfo) -> str:
    if job.misfit_until is not None:
        return f"{job.state}, waits until {local_time(job.misfit_until)} for a worker whose code fits its args"
    if job.undoing:
        return f"{job.state}, undoing its steps"
    return f"{job.state}, asked to stop" if job.cancelling else job.state


def _json(value: object) -> str:
    line = compact(value)
    return line if len(line) <= _LONGEST_LINE else compact(value, indent=2)


def _lasted(failure: Failure) -> str:
    if failure.claimed_at is None:
        return ""
    return f" after {describe(max((failure.failed_at - failure.claimed_at).total_seconds(), 0))}"
