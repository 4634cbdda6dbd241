"""The result of a call as Celery has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from stepwell.errors import JobCancelled, JobFailed
from stepwell.jobs.handle import JobHandle
from stepwell.values.job import JobInfo

_STATES = {"running": "STARTED", "succeeded": "SUCCESS", "failed": "FAILURE", "cancelled": "REVOKED"}
_ENDED = ("SUCCESS", "FAILURE", "REVOKED")
_HINTS = {
    "forget": "keep= on the task, which says how long results are kept",
    "parent": "the result of a chain is that of its last task",
    "children": "result.handle.info().steps",
    "collect": "result.get()",
    "then": "chain(task.s(...), callback.s())",
    "join": "result.get()",
    "results": "result.handle.info().steps",
}


class AsyncResult:
    """A job. `handle` is Stepwell's own handle to it, which can do more."""

    def __init__(self, handle: JobHandle[Any]) -> None:
        self.handle = handle

    @property
    def id(self) -> str:
        return str(self.handle.id)

    @property
    def task_id(self) -> str:
        return self.id

    def get(self, timeout: float | None = None, *, propagate: bool = True) -> Any:
        """Wait for the job and return its result. If it failed, this raises `stepwell.JobFailed`, which names the
        error, or returns that without `propagate`. Raises `TimeoutError` if it has not ended in time."""
        try:
            return self.handle.result(timeout)
        except (JobFailed, JobCancelled) as error:
            if propagate:
                raise
            return error

    wait = get

    async def aget(self, timeout: float | None = None) -> Any:
        """The same as `get`, for async code. Celery has none."""
        return await self.handle.aresult(timeout)

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED. As in Celery, an unknown id is PENDING."""
        return _state(self.handle.info())

    @property
    def status(self) -> str:
        return self.state

    def ready(self) -> bool:
        return self.state in _ENDED

    def successful(self) -> bool:
        return self.state == "SUCCESS"

    def failed(self) -> bool:
        return self.state == "FAILURE"

    @property
    def result(self) -> Any:
        """The return value, the error, or None if the job has not ended."""
        return self.get(propagate=False) if self.ready() else None

    @property
    def traceback(self) -> str | None:
        info = self.handle.info()
        return info.failures[-1].traceback if info is not None and info.failures else None

    def revoke(self, *, terminate: bool = True) -> None:  # noqa: ARG002 a running job is always asked to stop
        """Cancel the job. Unlike Celery's, this also asks a running one to stop."""
        self.handle.cancel("revoked")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and self.handle == other.handle

    def __hash__(self) -> int:
        return hash(self.handle)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            hint = f": write {_HINTS[name]}" if name in _HINTS else ""
            raise AttributeError(f"a result has no {name!r} in Stepwell{hint}")


class GroupResult(AsyncResult):
    """The job of a group. Its result is the list of its members' results."""

    def completed_count(self) -> int:
        """How many members have ended."""
        info = self.handle.info()
        return 0 if info is None else sum(1 for step in info.steps if step.child_id is not None and not step.pending)


def _state(info: JobInfo | None) -> str:
    if info is None:
        return "PENDING"
    if info.state == "scheduled" and info.failures:
        return "RETRY"
    return _STATES.get(info.state, "PENDING")
