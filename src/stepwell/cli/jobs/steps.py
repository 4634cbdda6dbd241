"""The steps of one job: print them, and check the name of one."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.cli.output import Column, compact, table, warn
from stepwell.errors import StepNotFound
from stepwell.errors.text import nearest
from stepwell.postgres import queries
from stepwell.postgres.database import Database
from stepwell.values.duration import describe, local_time
from stepwell.values.job import JobInfo
from stepwell.values.step import StepInfo

# The most that a cell shows; --json has the whole value.
_LONGEST_VALUE = 80


def print_steps(job: JobInfo, steps: Sequence[StepInfo]) -> None:
    # Chains and machines save the input of each step.
    value = "input" if any(step.kind == "state" for step in steps) else "value"
    table(
        steps,
        [
            Column("step", lambda step: step.key),
            Column("kind", lambda step: step.kind),
            Column("state", lambda step: _state(job, step)),
            Column("took", lambda step: None if step.seconds is None else describe(step.seconds), right=True),
            Column("until", lambda step: local_time(step.until) if step.pending or step.timed_out else None),
            Column("child", lambda step: step.child_id),
            Column(value, _value, cut=True),
        ],
        empty="the job has saved no steps",
    )


def check_step_to_enter(database: Database, job_id: str, step: str, *, yes: bool) -> None:
    """Raise if a chain or machine has not reached this step and its name looks mistyped, unless `yes`. Only the code
    knows all steps, so any other name that the job has not reached is warned about."""
    found = database.fetch(queries.reads.info(job_id))
    if not found or found[0].state not in ("failed", "cancelled"):
        return  # the change itself refuses such a job
    known = {saved.key for saved in database.fetch(queries.reads.steps(job_id))} | {found[0].cursor}
    if step in known:
        return
    near = nearest(step, (key for key in known if key is not None))
    if near and not yes:
        raise StepNotFound(f"job {job_id} has not reached a step {step!r}{near} If not, add --yes (-y)")
    warn(
        f"job {job_id} has not reached a step {step!r} yet{near or '.'} If no worker's code has such a step, the job "
        "waits for a worker that has it, and fails in the end"
    )


def _state(job: JobInfo, step: StepInfo) -> str:
    if step.kind == "state" and step.key == job.cursor:
        # The cursor is the last step that got an input: it is done only if the job is.
        return {"succeeded": "done", "failed": "failed", "cancelled": "cancelled"}.get(job.state, "pending")
    if step.timed_out:
        return "timed out"
    if step.pending:
        return "pending"
    if step.cancelled:
        return "cancelled"
    return "done" if step.error is None else "failed"


def _value(step: StepInfo) -> str:
    if step.error is not None:
        return _short(step.error)
    if step.large:
        return "(over 64 kB)"
    return "" if step.value is None else _short(compact(step.value))


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}\N{HORIZONTAL ELLIPSIS}"
