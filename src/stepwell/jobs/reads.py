"""Read one job: everything about it, and its result once it has ended. Sealed values are opened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from stepwell.errors import JobCancelled, JobFailed, StepwellError, no_such_job
from stepwell.jobs.codec import Codec
from stepwell.postgres import queries
from stepwell.postgres.query_plan import QueryPlan
from stepwell.values.job import Ended, JobInfo
from stepwell.values.sealing import PLAIN, Sealer


def info_of(job_id: str, sealer: Sealer = PLAIN) -> QueryPlan[JobInfo | None]:
    found = yield queries.reads.info(job_id)
    if not found:
        return None
    failures = yield queries.reads.failures(job_id)
    steps = yield queries.reads.steps(job_id)
    shown = tuple(replace(step, value=sealer.shown(step.value)) for step in steps)
    return replace(opened_info(found[0], sealer), failures=tuple(failures), steps=shown)


def opened_info(info: JobInfo, sealer: Sealer) -> JobInfo:
    """The same job with its sealed values opened, as far as this app can."""
    return replace(info, args=sealer.shown_args(info.args), result=sealer.shown(info.result))


def result_of(ended: Ended, codec: Codec | None, sealer: Sealer = PLAIN) -> Any:
    """Return the result, typed if the codec of the task is known. Raises if the job did not succeed."""
    task = ended.task or "unknown task"
    match ended.state:
        case "succeeded":
            return decoded_result(ended.id, task, ended.result, codec, sealer)
        case "failed":
            # If the failure's own row is no longer kept, one line of it is left in `error`.
            message = ended.error if ended.message is None else ended.message
            raise JobFailed(ended.id, task, ended.type or "Error", message or "", ended.traceback)
        case "cancelled":
            raise JobCancelled(ended.id, task, ended.error)
        case _:
            raise no_such_job(ended.id)


def decoded_result(job_id: str, task: str, result: str | None, codec: Codec | None, sealer: Sealer) -> Any:
    if codec is None:
        return None if result is None else msgspec.json.decode(sealer.open(result))
    try:
        return codec.decode_result(result)
    except msgspec.ValidationError as error:
        raise StepwellError(
            f"the result of job {job_id} ({task}) does not fit its return annotation: {error}; "
            "app.job(id) gives it as plain JSON values"
        ) from None
