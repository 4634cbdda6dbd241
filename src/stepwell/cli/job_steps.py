"""The steps of one job: as a table, and what to say when it has no such step."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from stepwell.cli.names import nearest
from stepwell.cli.output import Column, compact, local, table, warn
from stepwell.errors import StepNotFound
from stepwell.postgres import queries
from stepwell.postgres.errors import stepwell_error
from stepwell.postgres.fetch import fetch
from stepwell.values.duration import describe
from stepwell.values.job import JobInfo
from stepwell.values.step import StepInfo

_MOST_NAMED = 10
# Of what a cell shows; the rest is in --json.
_LONGEST_VALUE = 80


def print_steps(job: JobInfo, steps: Sequence[StepInfo]) -> None:
    """Print a job's steps in order."""
    table(
        [
            Column("step"),
            Column("kind"),
            Column("state"),
            Column("took", right=True),
            Column("until"),
            Column("child"),
            # Of a chain or machine what is saved is what each step was given.
            Column("input" if any(step.kind == "state" for step in steps) else "value", cut=True),
        ],
        (
            (
                step.key,
                step.kind,
                _state(job, step),
                None if step.seconds is None else describe(step.seconds),
                local(step.until) if step.pending or step.timed_out else None,
                step.child_id,
                _value(step),
            )
            for step in steps
        ),
        empty="it has saved no steps",
    )


def _state(job: JobInfo, step: StepInfo) -> str:
    if step.kind == "state" and step.key == job.cursor:
        # The job stands at the last that was given something.
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


@contextmanager
def lacks_step() -> Generator[list[StepNotFound]]:
    """Within this, that a job has no such step is no error, but noted in what is given."""
    lacking: list[StepNotFound] = []
    try:
        yield lacking
    except psycopg.Error as error:
        ours = stepwell_error(error)
        if not isinstance(ours, StepNotFound):
            raise
        lacking.append(ours)


def no_such_step(connection: psycopg.Connection[Any], job_id: str, step: str) -> str:
    """What to say of a job that has no such step: which it has."""
    keys = [found.key for found in fetch(connection, queries.reads.steps(job_id))]
    if not keys:
        return f"has no step {step!r}, as it has saved none: retry it without --step"
    named = ", ".join(keys[:_MOST_NAMED])
    more = f' and {len(keys) - _MOST_NAMED} more: see "stepwell jobs show {job_id}"' if len(keys) > _MOST_NAMED else ""
    return f"has no step {step!r}: it has {named}{more}"


def check_step_to_enter(connection: psycopg.Connection[Any], job_id: str, step: str, *, yes: bool) -> None:
    """Raise if a chain or machine has not come to a step of this name, and the name looks mistyped, unless `yes`.

    Only the code knows all steps: any other name that the job has not come to is warned about.
    """
    found = fetch(connection, queries.reads.info(job_id))
    if not found or found[0].state not in ("failed", "cancelled"):
        return  # it is refused for that
    known = {saved.key for saved in fetch(connection, queries.reads.steps(job_id))} | {found[0].cursor}
    if step in known:
        return
    near = nearest(step, (key for key in known if key is not None))
    if near and not yes:
        raise StepNotFound(f"job {job_id} has not come to a step {step!r}{near} If not, add --yes (-y)")
    warn(
        f"job {job_id} has not come to a step {step!r} yet{near or '.'} If no worker's code has such a step, the job "
        "waits for one that has, and fails in the end"
    )
