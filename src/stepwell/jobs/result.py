"""Turn the end of a job into its result, or into the exception that `result()` raises."""

from __future__ import annotations

from typing import Any

import msgspec

from stepwell.error_text import error_line
from stepwell.errors import JobCancelled, JobFailed, StepwellError, no_such_job
from stepwell.jobs.codec import Codec
from stepwell.values.duration import describe
from stepwell.values.job import Ended, JobInfo


def result_of(ended: Ended, codec: Codec | None) -> Any:
    """Return the result, typed if the codec of the task is known. Raises if the job did not succeed."""
    task = ended.task or "unknown task"
    match ended.state:
        case "succeeded":
            return _decode(ended, codec)
        case "failed":
            # If the failure's own row is no longer kept, one line of it is left in `error`.
            message = ended.error if ended.message is None else ended.message
            raise JobFailed(ended.id, task, ended.type or "Error", message or "", ended.traceback)
        case "cancelled":
            raise JobCancelled(ended.id, task, ended.error)
        case _:
            raise no_such_job(ended.id)


def _decode(ended: Ended, codec: Codec | None) -> Any:
    if codec is None:
        return None if ended.result is None else msgspec.json.decode(ended.result)
    try:
        return codec.decode_result(ended.result)
    except msgspec.ValidationError as error:
        raise StepwellError(
            f"the result of job {ended.id} ({ended.task}) does not fit its return annotation: {error}; "
            "app.job(id) gives it as plain JSON values"
        ) from None


def timed_out(job_id: str, limit: float | None, info: JobInfo | None) -> TimeoutError:
    """Make the error for a job that has not ended in time. `info` is its present state, if known."""
    text = f"job {job_id} has not ended within {describe(limit or 0)}"
    if info is None:
        return TimeoutError(text)
    if info.state == "ready":
        return TimeoutError(
            f"{text}: {info.task!r} is ready in queue {info.queue!r}; does a worker run that task and queue?"
        )
    text = f"{text}: {info.task!r} is {info.state}, attempt {info.attempt}"
    if not info.failures:
        return TimeoutError(text)
    last = info.failures[-1]
    return TimeoutError(f"{text}; attempt {last.attempt} failed: {error_line(last.type, last.message)}")
